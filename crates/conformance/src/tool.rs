//! Programs of the product as processes of their own: this very program, called by their names.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

/// The command line tool under the name of Istio's.
const ISTIOCTL: &str = "istioctl";

/// The control plane.
const CANOPUSD: &str = "canopusd";

/// What a run of the tool left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// `None` if it was killed.
    pub(crate) code: Option<i64>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// What this process is to run instead of the runner, by the name it was called by.
pub fn called_as(program: &OsStr) -> Option<fn() -> ExitCode> {
    match program.to_str()? {
        ISTIOCTL => Some(canopus_cli::command::main),
        CANOPUSD => Some(canopus_daemon::command::main),
        _ => None,
    }
}

/// The control plane, to be given arguments and started.
pub(crate) fn canopusd() -> anyhow::Result<Command> {
    own(CANOPUSD)
}

fn own(name: &str) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find the runner itself")?;
    let mut command = Command::new(program);
    command.arg0(name);
    Ok(command)
}

/// Runs the tool in a directory, without a cluster.
pub(crate) fn run(arguments: &[&str], directory: &Path, input: &str) -> anyhow::Result<Output> {
    run_in_cluster(arguments, directory, input, Path::new("/dev/null"))
}

/// Runs the tool in a directory, with the cluster of a kubeconfig.
pub(crate) fn run_in_cluster(
    arguments: &[&str],
    directory: &Path,
    input: &str,
    kubeconfig: &Path,
) -> anyhow::Result<Output> {
    let mut child = own(ISTIOCTL)?
        .args(arguments)
        .current_dir(directory)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the tool")?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that has seen enough does not read on.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().context("cannot wait for the tool")?;
    Ok(Output {
        code: output.status.code().map(i64::from),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
