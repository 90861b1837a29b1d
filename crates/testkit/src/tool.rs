use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;

/// Runs a command-line tool to its end and returns what it printed; its failure is an error with what it complained of.
pub(crate) async fn run(command: Command, input: &str) -> Result<String> {
    let line = std::iter::once(command.get_program().display().to_string())
        .chain(command.get_args().map(OsStr::to_string_lossy).map(Into::into))
        .collect::<Vec<_>>()
        .join(" ");
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting `{line}`"))?;

    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A tool that does not read its input closes it, which is its right.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.with_context(|| format!("running `{line}`"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "`{line}` failed ({}):\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(printed)
}
