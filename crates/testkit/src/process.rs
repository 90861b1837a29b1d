mod guard;

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::eventually;
use guard::Guard;

/// How much of a log is shown when something went wrong.
const SHOWN_LINES: usize = 60;

/// A child process that does not outlive the test, nor does anything it starts: not when the test passes, panics, or is
/// killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    guard: Option<Guard>,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output going to `<name>.log` in `directory`, which is removed if this process is killed.
    pub fn spawn(name: &str, command: &mut Command, directory: &Path) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening the log {}", log.display()))?;

        let mut guard = Guard::start(directory)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(guard.group()?)
            .spawn()
            .with_context(|| format!("starting {name} ({})", command.get_program().display()))?;
        guard.watch(&child)?;
        Ok(Self { name: name.to_owned(), child, guard: Some(guard), log })
    }

    /// The name it was started under.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tries `probe` until it succeeds; fails with the end of the log once `patience` runs out or the process has ended.
    pub async fn eventually<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut probe: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let found = eventually(what, patience, async || match probe().await {
            Ok(found) => Ok(Ok(found)),
            // A process that ended will not come round: there is no use in further tries.
            Err(error) => self.check_running().map_or_else(|ended| Ok(Err(ended)), |()| Err(error)),
        });
        match found.await {
            Ok(found) => found,
            Err(error) => bail!("{error:#}\nthe log of {} ends with:\n{}", self.name, self.log_end()),
        }
    }

    /// Fails, with the end of the log, if the process has ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); its log ends with:\n{}", self.name, self.log_end()),
        }
    }

    /// All that the process has written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The closing lines of the log.
    pub fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Until it is waited for, the child keeps its process id, so the guard cannot hit another process by mistake.
        let _ = self.child.kill();
        drop(self.guard.take());
        let _ = self.child.wait();
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the test harness shows it beside the failure")]
            {
                eprintln!("---- log of {} ----\n{}\n----", self.name, self.log_end());
            }
        }
    }
}
