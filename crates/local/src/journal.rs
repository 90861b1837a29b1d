//! What a mesh has made outside of its own memory, written down before or as it is made.
//!
//! A supervisor that is killed cannot clean up. Its journal says what is left: namespaces, and processes with the time they
//! started, so that a process which got the same number later is never taken for one of ours.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// The process that supervises the mesh.
    Supervisor(ProcessId),
    /// A network namespace; written before it is made.
    Namespace(String),
    /// A process that was started, which leads a process group of its own.
    Process {
        /// What it is.
        name: String,
        /// Which it is.
        id: ProcessId,
    },
}

/// A process that cannot be mistaken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: i32,
    /// When it started, in the kernel's clock ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn lookup(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, started: Stat::read(pid)?.started })
    }

    /// Whether the process is still there and not merely unburied.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_ok_and(|stat| stat.started == self.started && !stat.is_zombie)
    }
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process group.
    pub group: i32,
    /// When it started.
    pub started: u64,
    /// Whether it has ended and its parent has not noticed.
    pub is_zombie: bool,
}

impl Stat {
    /// Asks for a process.
    pub fn read(pid: i32) -> io::Result<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat"))?)
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not as expected")))
    }

    /// Reads `/proc/PID/stat`. The name in brackets may have blanks and brackets itself.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let group = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(16)?.parse().ok()?;
        Some(Self { group, started, is_zombie: matches!(state, "Z" | "X") })
    }
}

/// The journal of a mesh that runs.
#[derive(Debug)]
pub struct Journal(Mutex<File>);

impl Journal {
    /// Opens a journal to add to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Adds a line.
    pub fn record(&self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.0.lock().write_all(&line)
    }
}

/// The entries of a journal; none if there is no file. A line that was cut off is left out.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back_and_a_cut_line_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = Journal::open(&path).unwrap();
        let id = ProcessId { pid: 7, started: 42 };
        let entries = [Entry::Namespace("a".to_owned()), Entry::Process { name: "web".to_owned(), id }];
        entries.iter().for_each(|entry| journal.record(entry).unwrap());
        fs::write(&path, [fs::read(&path).unwrap(), b"{\"names".to_vec()].concat()).unwrap();
        assert_eq!(read(&path).unwrap(), entries);
        assert!(read(&directory.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn name_of_a_process_cannot_shift_its_fields() {
        let stat =
            Stat::parse("7 (a) b (c) S 1 9 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 10 20").unwrap();
        assert_eq!(stat, Stat { group: 9, started: 4242, is_zombie: false });
    }

    #[test]
    fn process_of_another_start_is_not_the_same() {
        let own = ProcessId::lookup(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { started: own.started + 1, ..own }.is_alive());
    }
}
