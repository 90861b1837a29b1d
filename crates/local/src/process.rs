//! Starting processes of the mesh: in their pods, with their logs, written down in the journal.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::journal::{Entry, Journal, ProcessId};
use crate::launch::{self, Launch};
use crate::state::State;

/// A log that is longer is begun anew, and the old one kept once.
const LONGEST_LOG: u64 = 16 << 20;

/// What is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specification {
    /// Name of the process and its log.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// Variables.
    pub(crate) environment: BTreeMap<String, String>,
    /// Working directory.
    pub(crate) directory: PathBuf,
    /// Network namespace.
    pub(crate) namespace: Option<PathBuf>,
    /// Files that it sees in the place of others.
    pub(crate) files: Vec<(PathBuf, PathBuf)>,
    /// User, if not the supervisor's.
    pub(crate) user: Option<u32>,
    /// Group, if not the supervisor's.
    pub(crate) group: Option<u32>,
}

/// Starts processes.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) executable: PathBuf,
    pub(crate) journal: Arc<Journal>,
    pub(crate) state: State,
}

/// A process that runs, the leader of a group.
pub(crate) struct Running {
    child: Child,
    pub(crate) id: ProcessId,
}

impl Launcher {
    /// Starts a process. It must be called on a thread that lives as long as the mesh: the process ends with it.
    pub(crate) fn start(&self, specification: &Specification) -> Result<Running> {
        let launch = Launch {
            parent: std::process::id(),
            namespace: specification.namespace.clone(),
            files: specification.files.clone(),
            user: specification.user,
            group: specification.group,
            command: specification.command.clone(),
        };
        let log = self.open_log(&specification.name)?;
        let mut command = Command::new(&self.executable);
        command
            .arg(launch::SUBCOMMAND)
            .arg(serde_json::to_string(&launch)?)
            .envs(&specification.environment)
            .current_dir(&specification.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let child = command.spawn().with_context(|| {
            format!("{}: cannot start in {}", specification.name, specification.directory.display())
        })?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("the process has ended")?;
        let id = ProcessId::lookup(pid)?;
        self.journal.record(&Entry::Process { name: specification.name.clone(), id })?;
        Ok(Running { child, id })
    }

    fn open_log(&self, name: &str) -> Result<File> {
        let path = self.state.log(name);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        file.with_context(|| path.display().to_string())
    }
}

impl Running {
    /// Waits until the process has ended.
    pub(crate) async fn wait(&mut self) -> io::Result<std::process::ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal to the process and its children.
    pub(crate) fn signal(&self, signal: Signal) {
        // The process may have ended meanwhile.
        let _ = killpg(Pid::from_raw(self.id.pid), signal);
    }
}

/// Begins logs anew that have grown too long.
pub(crate) fn bound_logs(state: &State) -> io::Result<()> {
    for entry in fs::read_dir(state.logs())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log")
            && fs::metadata(&path)?.len() > LONGEST_LOG
        {
            fs::copy(&path, path.with_extension("old"))?;
            // Processes append to it, so they go on at the new end.
            OpenOptions::new().write(true).open(&path)?.set_len(0)?;
        }
    }
    Ok(())
}

/// The last lines of a log.
pub fn last_lines(path: &Path, count: usize) -> Vec<String> {
    const ENOUGH: u64 = 64 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH)))?;
        let mut bytes = Vec::new();
        file.take(ENOUGH).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The whole lines that were written to a log since a position, and the position behind them. A shorter log was begun anew.
pub fn new_lines(path: &Path, position: &mut u64) -> io::Result<String> {
    const CHUNK: u64 = 1 << 20;
    let mut file = File::open(path)?;
    if file.metadata()?.len() < *position {
        *position = 0;
    }
    file.seek(SeekFrom::Start(*position))?;
    let mut bytes = Vec::new();
    file.take(CHUNK).read_to_end(&mut bytes)?;
    // An incomplete line is kept for the next read, unless it is longer than what is read at once.
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None if bytes.len() as u64 == CHUNK => bytes.len(),
        None => 0,
    };
    *position += whole as u64;
    Ok(String::from_utf8_lossy(&bytes[..whole]).into_owned())
}
