//! The command line tool under the name of Istio's, as a process of its own: this very program, called by that name.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

const NAME: &str = "istioctl";

/// What a run of the tool left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// `None` if it was killed.
    pub(crate) code: Option<i64>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whether this process, by the name it was called by, is to be the tool rather than the runner.
pub fn is_called(program: &OsStr) -> bool {
    program == NAME
}

/// Runs the tool in a directory, without a cluster.
pub(crate) fn run(arguments: &[&str], directory: &Path, input: &str) -> anyhow::Result<Output> {
    let program = std::env::current_exe().context("cannot find the runner itself")?;
    let mut child = Command::new(program)
        .arg0(NAME)
        .args(arguments)
        .current_dir(directory)
        .env("KUBECONFIG", "/dev/null")
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
