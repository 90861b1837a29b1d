use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::InstallError;
use crate::job::{Client, Job};
use crate::recipe::{Debian, LISTING};

/// Where the unpacked packages are, beside the directory of executables.
pub(crate) const ROOT: &str = "root";

/// Downloads packages with apt, which checks the distribution's signature, and unpacks them without installing them.
///
/// Executables are reached through scripts that point them at the libraries they came with.
pub(crate) fn install(job: &mut Job, recipe: &Debian) -> Result<(), InstallError> {
    job.progress.step("downloading");
    let directory = job.scratch("download");
    job.io("making", &directory, fs::create_dir_all(&directory))?;
    let mut download = Command::new("apt-get");
    download.arg("download").args(recipe.packages).current_dir(&directory);
    job.run(&apt(recipe), &mut download)?;

    job.progress.step("unpacking");
    let bin = job.bin()?;
    let root = bin.with_file_name(ROOT);
    let mut listing = String::new();
    for package in entries(job, &directory)? {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&package).arg(&root);
        job.run(&apt(recipe), &mut unpack)?;
        listing.push_str(&name_and_version(&package));
    }
    let path = bin.with_file_name(LISTING);
    job.io("writing", &path, fs::write(&path, listing))?;
    for program in job.part.programs() {
        write_script(job, &bin, program)?;
    }
    Ok(())
}

fn entries(job: &Job, directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let files = job.io("listing", directory, fs::read_dir(directory))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    Ok(paths)
}

/// A line of the listing. The name of an archive has both: `libc6_2.36-9+deb12u10_amd64.deb`.
fn name_and_version(archive: &Path) -> String {
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut words = name.split('_');
    let (package, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    // apt writes the colon of an epoch so.
    format!("{package} {}\n", version.replace("%3a", ":"))
}

fn write_script(job: &Job, bin: &Path, program: &str) -> Result<(), InstallError> {
    let script = format!(
        "#!/bin/sh\n\
         root=$(dirname \"$0\")/../{ROOT}\n\
         program=$root/usr/sbin/{program}\n\
         [ -x \"$program\" ] || program=$root/usr/bin/{program}\n\
         for libraries in \"$root\"/usr/lib/*-linux-*; do\n\
         \tLD_LIBRARY_PATH=$libraries:$root/lib/${{libraries##*/}} XTABLES_LIBDIR=$libraries/xtables \\\n\
         \t\texec \"$program\" \"$@\"\n\
         done\n"
    );
    let path = bin.join(program);
    job.io("writing", &path, fs::write(&path, script))?;
    job.io("marking as executable", &path, fs::set_permissions(&path, PermissionsExt::from_mode(0o755)))
}

fn apt(recipe: &Debian) -> Client {
    Client {
        name: "apt-get",
        remedy: "This part comes from packages of Debian or Ubuntu; it can be had on those alone.",
        registry: "distribution's package archive",
        fetches: recipe.packages[0],
        counts: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_has_the_name_and_the_version_of_an_archive() {
        assert_eq!(
            name_and_version(Path::new("/d/libc6_2.36-9+deb12u10_amd64.deb")),
            "libc6 2.36-9+deb12u10\n"
        );
        assert_eq!(name_and_version(Path::new("/d/busybox_1%3a1.35.0-4_amd64.deb")), "busybox 1:1.35.0-4\n");
    }
}
