//! The tour of the sample, as `cargo xtask demo` takes it in CI.

use std::fs;
use std::path::Path;
use std::process::Output;

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

/// Steps that apply objects which proxies accept; of the one that they reject nobody waits for an acknowledgement.
const ACKNOWLEDGED: usize = 5;

pub(crate) fn whole() -> Result<()> {
    let sample = sample(18_080)?;
    let output = canopus()?.args(["up", "--tour"]).arg(sample.path()).output()?;
    judge(&output)
}

/// Holds what a tour has told against what every step must have shown.
pub(crate) fn judge(output: &Output) -> Result<()> {
    let told = text(output);
    ensure!(output.status.success() && told.contains("All 7 steps went as they should."), "{told}");
    for line in [
        "400 requests to ",
        ": takes 4",
        ": 403, after ",
        "plain text to catalogue, answered before: refused now (connection ",
        ": 503, after ",
        "EnvoyFilter/shop/broken is held",
        "canopusd is back and serves 8 proxies",
        "8 proxies have new certificates",
    ] {
        ensure!(told.contains(line), "{line} is not in:\n{told}");
    }
    let acknowledged = told.lines().filter(|line| acknowledged(line).is_some()).count();
    ensure!(acknowledged == ACKNOWLEDGED, "{acknowledged} changes were acknowledged:\n{told}");
    let loads: Vec<usize> = told.lines().filter_map(requests).collect();
    ensure!(loads.len() == 3 && loads.iter().all(|count| *count >= 100), "{loads:?} in:\n{told}");
    Ok(())
}

/// In how many milliseconds all proxies had a change.
fn acknowledged(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(": acknowledged by ")?;
    let (_, rest) = rest.split_once(" proxies ")?;
    rest.strip_suffix(" ms after the change was seen")?.parse().ok()
}

/// How many requests were sent under load, none of which failed.
fn requests(line: &str) -> Option<usize> {
    let (count, _) = line.trim().strip_suffix(" meanwhile, 0 failed")?.split_once(" requests to ")?;
    count.parse().ok()
}
