use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// What the guard does: it notes the child's process id and waits for the word that all is in order. Where the pipe closes
/// without it, the test process was killed, and the child and its files have nobody else to remove them. Either way, what
/// is left of the process group goes with the guard.
const SCRIPT: &str = r#"
while read -r word; do
    case $word in
        done) kill -KILL 0 ;;
        *) child=$word ;;
    esac
done
kill -KILL "$child"
rm -rf -- "$1"
kill -KILL 0
"#;

/// A shell that leads the process group of a child and ends the group when this process does, however it does.
///
/// A death signal tied to the parent would be simpler, but it follows the thread that started the child, and tests share
/// components across threads.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
}

impl Guard {
    /// Starts a guard that also removes `directory` if this process is killed.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "guard"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the guard of a test process with `sh`")?;
        Ok(Self { shell })
    }

    /// The process group to put the child in.
    pub(super) fn group(&self) -> Result<i32> {
        i32::try_from(self.shell.id()).context("a process id is too large for a process group")
    }

    /// Tells the guard whom it guards.
    pub(super) fn watch(&mut self, child: &Child) -> Result<()> {
        let pipe = self.shell.stdin.as_mut().context("the guard's pipe is gone")?;
        writeln!(pipe, "{}", child.id()).context("telling the guard whom it guards")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // A guard that is gone already needs no word.
            let _ = writeln!(pipe, "done");
        }
        let _ = self.shell.wait();
    }
}
