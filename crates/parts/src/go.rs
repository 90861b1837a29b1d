use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::InstallError;
use crate::job::{Client, Job};
use crate::recipe::{GoBuild, ModuleFiles};

const GO: Client = Client {
    name: "go",
    remedy: "Install Go 1.26 or newer (your system's package manager, or the download page of the Go project).",
    registry: "Go module proxy",
    fetches: "the sources of version",
    counts: Some("packages compiled"),
};

/// Compiles the part from our own small module; go.sum holds every source to its checksum.
pub(crate) fn install(job: &mut Job, build: &GoBuild) -> Result<(), InstallError> {
    let module = write_sources(job, build)?;
    let bin = job.bin()?;
    let [first, others @ ..] = job.part.programs() else {
        unreachable!("every part brings a program");
    };
    job.progress.step(format!("compiling with Go, this once ({})", build.cost));
    job.run(&GO, &mut compile(build, &module, &bin.join(first)))?;
    // One executable that answers to several names.
    for program in others {
        let link = bin.join(program);
        job.io("linking", &link, symlink(first, &link))?;
    }
    build.files.iter().try_for_each(|files| copy_files(job, &module, files, &bin.with_file_name(files.into)))
}

/// Copies files of a module that the build has downloaded; go.sum holds those to their checksums as well.
fn copy_files(job: &Job, module: &Path, files: &ModuleFiles, into: &Path) -> Result<(), InstallError> {
    let mut list = go(module);
    list.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", files.module]);
    let output = job.io("running", Path::new("go"), list.output())?;
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join(files.directory);
    job.io("making", into, fs::create_dir_all(into))?;
    for entry in job.io("listing", &directory, fs::read_dir(&directory))?.flatten() {
        let from = entry.path();
        let bytes = job.io("reading", &from, fs::read(&from))?;
        let to = into.join(entry.file_name());
        job.io("writing", &to, fs::write(&to, bytes))?;
    }
    Ok(())
}

fn write_sources(job: &Job, build: &GoBuild) -> Result<PathBuf, InstallError> {
    let module = job.scratch(&format!("source/{}", job.part));
    job.io("making", &module, fs::create_dir_all(&module))?;
    for file in build.sources {
        let path = job.scratch("source").join(file.path);
        job.io("writing", &path, fs::write(&path, file.text))?;
    }
    Ok(module)
}

fn compile(build: &GoBuild, module: &Path, executable: &Path) -> Command {
    let mut go = go(module);
    go.args(["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags"])
        .arg(["-s", "-w"].iter().chain(build.link).copied().collect::<Vec<_>>().join(" "))
        .arg("-o")
        .arg(executable)
        .arg(build.package);
    go
}

fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module)
        .env("CGO_ENABLED", "0")
        // Settings of the user's own Go projects must not leak into this build.
        .env("GOFLAGS", "")
        .env("GOWORK", "off");
    go
}
