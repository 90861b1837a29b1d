use std::process::Command;

use crate::InstallError;
use crate::job::{Client, Job};
use crate::recipe::CargoBuild;

const CARGO: Client = Client {
    name: "cargo",
    remedy: "Install Rust with rustup (your system's package manager, or the download page of the Rust project).",
    registry: "crate registry",
    fetches: "the sources of version",
    counts: Some("crates fetched and compiled"),
};

/// Compiles the part from a crate, whose own lock file holds every source to its checksum.
pub(crate) fn install(job: &mut Job, build: &CargoBuild) -> Result<(), InstallError> {
    job.bin()?;
    job.progress.step(format!("compiling with Cargo, this once ({})", build.cost));
    let (root, target) = (job.scratch("done"), job.scratch("target"));
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--locked", "--no-track", build.package, "--version", job.part.version()]);
    cargo.arg("--root").arg(root).arg("--target-dir").arg(target).current_dir(job.scratch(""));
    // It runs for a few seconds at a time: compiling it fast is worth more than running it fast.
    cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_LTO", "off");
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    // Flags of the build that this may run inside of are not for this one.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    job.run(&CARGO, &mut cargo)
}
