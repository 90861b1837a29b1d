//! The tour of the sample, as `cargo xtask demo` takes it in CI.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::lab::{canopus, text};

/// The sample in a directory of its own, with another port, so that a demo beside the tests is not disturbed.
pub(crate) fn sample(port: u16) -> Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("storefront-").tempdir()?;
    copy(Path::new(env!("CARGO_MANIFEST_DIR")), directory.path(), &["mesh.yaml"], port)?;
    for folder in ["config", "tour"] {
        let names: Vec<String> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))?
            .map(|entry| Ok(format!("{folder}/{}", entry?.file_name().to_string_lossy())))
            .collect::<Result<_>>()?;
        fs::create_dir(directory.path().join(folder))?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        copy(Path::new(env!("CARGO_MANIFEST_DIR")), directory.path(), &names, port)?;
    }
    Ok(directory)
}

fn copy(from: &Path, to: &Path, names: &[&str], port: u16) -> Result<()> {
    for name in names {
        let text = fs::read_to_string(from.join(name))?;
        let text = text.replace("localhost:8080", &format!("localhost:{port}"));
        fs::write(to.join(name), text.replace("ports: [8080]", &format!("ports: ['{port}:8080']")))?;
    }
    Ok(())
}

pub(crate) fn whole() -> Result<()> {
    let sample = sample(18_080)?;
    let output = canopus()?.args(["up", "--tour"]).arg(sample.path()).output()?;
    let told = text(&output);
    ensure!(output.status.success() && told.contains("All 7 steps went as they should."), "{told}");
    for line in [
        "v1 ",
        "403",
        "refused",
        "EnvoyFilter/shop/broken is held",
        "canopusd is back",
        "have new certificates",
    ] {
        ensure!(told.contains(line), "{line} is not in:\n{told}");
    }
    ensure!(told.matches("0 failed").count() == 4, "{told}");
    Ok(())
}
