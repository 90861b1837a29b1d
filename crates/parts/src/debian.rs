use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::InstallError;
use crate::job::{Client, Job};
use crate::recipe::Debian;

/// Where the unpacked packages are, beside the directory of executables.
const ROOT: &str = "root";

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
    for package in entries(job, &directory)? {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&package).arg(&root);
        job.run(&apt(recipe), &mut unpack)?;
    }
    for program in job.part.programs() {
        write_script(job, &bin, program)?;
    }
    Ok(())
}

fn entries(job: &Job, directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let files = job.io("listing", directory, fs::read_dir(directory))?;
    Ok(files.flatten().map(|file| file.path()).collect())
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
