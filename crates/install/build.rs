//! Embeds the charts of `manifests/charts`, so that the command line tool installs a mesh on its own.
#![allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/charts");
    println!("cargo::rerun-if-changed={}", charts.display());
    let mut text = "pub(super) const FILES: &[(&str, &str, &[u8])] = &[\n".to_owned();
    for chart in entries(&charts)? {
        let name = file_name(&chart);
        for file in files(&chart)? {
            println!("cargo::rerun-if-changed={}", file.display());
            let path = file.strip_prefix(&chart).unwrap_or(&file).display().to_string();
            let _ =
                writeln!(text, "    ({name:?}, {path:?}, include_bytes!({:?})),", file.display().to_string());
        }
    }
    text.push_str("];\n");
    #[expect(clippy::disallowed_methods, reason = "cargo's way to say where generated files go")]
    let Some(out) = env::var_os("OUT_DIR") else { return Err(io::Error::other("cargo sets OUT_DIR")) };
    fs::write(PathBuf::from(out).join("charts.rs"), text)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in entries(directory)? {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
