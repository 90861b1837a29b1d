use std::ffi::OsStr;
use std::process::Command;

use crate::shell::{cargo, root, run};

/// The build profile of the runner: compiling with optimisation takes longer than the suites do without.
const PROFILE: &str = "dev";

/// Measures how much of Istio's recorded behaviour is matched, suite by suite.
///
/// Arguments go to the conformance runner as they are; `cargo xtask conformance --help` is its own help.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of the conformance runner.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run_with(arguments: &Arguments) -> anyhow::Result<()> {
    run_runner(&arguments.arguments)
}

/// Whether this tree has the runner.
pub(crate) fn is_there() -> bool {
    root().join("crates/conformance/Cargo.toml").exists()
}

/// Builds the runner and runs it; where there is no corpus it says so and succeeds.
pub(crate) fn run_runner(arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<()> {
    run(cargo()
        .args(["run", "--quiet", "--profile", PROFILE, "--package", "canopus-conformance", "--"])
        .args(arguments))
}

/// Runs the runner that was built beside this tool.
pub(crate) fn run_built(arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<()> {
    let tool = std::env::current_exe()?;
    run(Command::new(tool.with_file_name("canopus-conformance")).current_dir(root()).args(arguments))
}
