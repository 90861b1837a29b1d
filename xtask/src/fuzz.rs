use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::{root, run, succeeds};

/// Runs the fuzz targets, each for a while.
///
/// Needs a nightly toolchain and cargo-fuzz. Nothing is installed unless asked for with --install.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The target to run; every target in turn when none is named.
    target: Option<String>,

    /// Run every target in turn, which is what happens without a name.
    #[arg(long, conflicts_with = "target")]
    all: bool,

    /// How long to run each target.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,

    /// Install the nightly toolchain and cargo-fuzz first (some minutes of compilation).
    #[arg(long)]
    install: bool,
}

pub(crate) fn run_chosen(arguments: &Arguments) -> Result<()> {
    if arguments.install {
        install()?;
    }
    ensure!(
        succeeds(&mut fuzz(&["--version"])),
        "fuzzing needs a nightly toolchain with cargo-fuzz: `cargo xtask fuzz --install` gets both"
    );
    ensure!(
        root().join("fuzz/Cargo.toml").exists(),
        "there are no fuzz targets: fuzz/Cargo.toml does not exist"
    );

    let known = targets()?;
    ensure!(!arguments.all || !known.is_empty(), "there are no fuzz targets");
    if let Some(target) = &arguments.target {
        let list = known.join(", ");
        ensure!(known.contains(target), "no fuzz target is called `{target}`; there are: {list}");
    }
    let time = format!("-max_total_time={}", arguments.seconds);
    for target in known.iter().filter(|name| arguments.target.as_ref().is_none_or(|target| target == *name)) {
        // What is found goes into the first directory; what was worth keeping is in the second.
        let (found, kept) =
            (root().join("fuzz/corpus").join(target), root().join("crates/fuzzing/corpus").join(target));
        fs::create_dir_all(&found).with_context(|| format!("making {}", found.display()))?;
        let (found, kept) = (found.display().to_string(), kept.display().to_string());
        run(&mut fuzz(&["run", target, &found, &kept, "--", &time]))?;
    }
    Ok(())
}

fn install() -> Result<()> {
    run(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile", "minimal"]))?;
    run(&mut nightly(&["install", "--locked", "cargo-fuzz"]))
}

fn targets() -> Result<Vec<String>> {
    let listed = fuzz(&["list"]).output().context("listing the fuzz targets")?;
    ensure!(
        listed.status.success(),
        "listing the fuzz targets failed:\n{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}

fn fuzz(arguments: &[&str]) -> Command {
    let mut command = nightly(&["fuzz"]);
    command.args(arguments);
    command
}

/// Cargo of the nightly toolchain, found by rustup's proxy rather than by the toolchain this tool runs under.
fn nightly(arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments).current_dir(root());
    command
}
