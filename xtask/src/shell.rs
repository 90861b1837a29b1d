use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the repository this tool was built from.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tool lives in a directory of the repository")
}

/// The cargo that runs this tool, working at the root of the repository.
pub(crate) fn cargo() -> Command {
    #[expect(clippy::disallowed_methods, reason = "cargo's own way to say which cargo it is")]
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    if is_ci() {
        // What nobody will edit need not be compiled so that it compiles again quickly: that is half of the disk.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Whether this runs where every build is the first and the last.
fn is_ci() -> bool {
    #[expect(clippy::disallowed_methods, reason = "every CI system sets this variable")]
    let ci = std::env::var_os("CI");
    ci.is_some()
}

/// Shows a command, runs it with this tool's own streams, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("starting `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Whether a command runs and succeeds; what it prints is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
