//! One installation: its lock, its scratch directory, and the clients it runs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::cache::Slot;
use crate::command::{self, Finished, Trouble};
use crate::progress::Progress;
use crate::{InstallError, Part};

/// One installation under way, holding the part's lock.
pub(crate) struct Job {
    pub(crate) part: Part,
    pub(crate) progress: Progress,
    workshop: TempDir,
    cache: PathBuf,
    _lock: File,
}

impl Job {
    pub(crate) fn begin(part: Part, slot: &Slot, mut progress: Progress) -> Result<Self, InstallError> {
        let fail = |source| io_error(part, "preparing", slot.root(), source);
        let lock = slot
            .lock(|| progress.step("another process is installing it; waiting for that one"))
            .map_err(fail)?;
        let workshop = slot.workshop().map_err(fail)?;
        Ok(Self { part, progress, workshop, cache: slot.root().to_owned(), _lock: lock })
    }

    /// A path in the job's own scratch directory.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.workshop.path().join(name)
    }

    /// Where the recipe puts the part's executables.
    pub(crate) fn bin(&self) -> Result<PathBuf, InstallError> {
        let bin = self.scratch("done/bin");
        self.io("making", &bin, fs::create_dir_all(&bin))?;
        Ok(bin)
    }

    /// Runs one of the ordinary clients; its failures are put in words a user can act on.
    pub(crate) fn run(&mut self, client: &Client, command: &mut Command) -> Result<(), InstallError> {
        let progress = &mut self.progress;
        let mut lines = 0;
        let finished = command::run(command, |line| {
            lines += usize::from(line.is_some());
            progress.beat(&client.counts.map(|what| format!(", {lines} {what}")).unwrap_or_default());
        });
        self.judge(client, command, finished)
    }

    /// Runs a client that downloads one file by way of a directory. How far it is shows in the files there, and `size` finds in
    /// its words how far it has to go.
    pub(crate) fn run_download(
        &mut self,
        client: &Client,
        command: &mut Command,
        directory: &Path,
        size: impl Fn(&str) -> Option<u64>,
    ) -> Result<(), InstallError> {
        let progress = &mut self.progress;
        let mut total = None;
        let finished = command::run(command, |line| {
            total = line.and_then(&size).or(total);
            progress.bytes(bytes_below(directory), total);
        });
        self.judge(client, command, finished)
    }

    fn judge(
        &self,
        client: &Client,
        command: &Command,
        finished: io::Result<Finished>,
    ) -> Result<(), InstallError> {
        match finished {
            Ok(finished) if finished.status.success() => Ok(()),
            Ok(finished) => Err(self.explain(client, command, finished)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(InstallError::ToolMissing { part: self.part, tool: client.name, remedy: client.remedy })
            }
            Err(error) => Err(io_error(self.part, "running", Path::new(client.name), error)),
        }
    }

    fn explain(&self, client: &Client, command: &Command, finished: Finished) -> InstallError {
        let part = self.part;
        let what = format!("{} {}", client.fetches, part.version());
        match finished.trouble() {
            Some(Trouble::Offline) => InstallError::Offline {
                part,
                what,
                registry: client.registry,
                client: client.name,
                detail: finished.tail,
            },
            Some(Trouble::Checksum) => InstallError::Checksum { part, what, detail: finished.tail },
            Some(Trouble::DiskFull) => InstallError::DiskFull { part, dir: self.cache.clone() },
            None => InstallError::Failed {
                part,
                command: command_line(command),
                status: finished.status.to_string(),
                output: finished.tail,
            },
        }
    }

    /// Gives an error of the file system its context.
    pub(crate) fn io<T>(
        &self,
        what: &'static str,
        path: &Path,
        result: io::Result<T>,
    ) -> Result<T, InstallError> {
        result.map_err(|source| io_error(self.part, what, path, source))
    }

    pub(crate) fn publish(self, slot: &Slot) -> Result<(), InstallError> {
        let finished = self.scratch("done");
        self.io("moving into place", &finished, slot.publish(&finished))?;
        self.progress.done();
        Ok(())
    }
}

/// An ordinary client of a registry, and how to talk about it.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) remedy: &'static str,
    pub(crate) registry: &'static str,
    pub(crate) fetches: &'static str,
    /// What a line of its output stands for, where it says something about how far it is.
    pub(crate) counts: Option<&'static str>,
}

/// The size of all files below a directory.
fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        // The file was moved meanwhile.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn io_error(part: Part, what: &'static str, path: &Path, source: io::Error) -> InstallError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            InstallError::DiskFull { part, dir: path.to_owned() }
        }
        _ => InstallError::Io { part, what, path: path.to_owned(), source },
    }
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
