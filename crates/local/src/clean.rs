//! Removing everything that a mesh has made, by its journal: also after a crash.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::journal::{self, Entry, ProcessId, Stat};
use crate::network;
use crate::state::State;

/// How long processes may take to end once they are asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How long a supervisor may take to end everything.
const SUPERVISOR_GRACE: Duration = Duration::from_secs(15);

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Processes that were still there.
    pub processes: usize,
    /// Network namespaces.
    pub namespaces: usize,
}

/// The process that supervises the mesh, if it runs.
pub fn supervisor(state: &State) -> Result<Option<ProcessId>> {
    let entries = journal::read(&state.journal()).with_context(|| state.journal().display().to_string())?;
    let mut alive = entries.into_iter().filter_map(|entry| match entry {
        Entry::Supervisor(id) if id.is_alive() => Some(id),
        _ => None,
    });
    Ok(alive.next_back())
}

/// Waits until the supervisor has cleaned up and ended; one that takes too long is killed.
pub fn wait_end(supervisor: ProcessId) -> Result<()> {
    let asked = Instant::now();
    while supervisor.is_alive() {
        if asked.elapsed() > SUPERVISOR_GRACE {
            signal(&[supervisor], Signal::SIGKILL);
        }
        if asked.elapsed() > 2 * SUPERVISOR_GRACE {
            bail!("process {} does not end", supervisor.pid);
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Ends every process of the mesh, removes its namespaces, and then its state.
pub fn clean(state: &State) -> Result<Removed> {
    let removed = remove_made(state)?;
    fs::remove_dir_all(state.root()).with_context(|| state.root().display().to_string())?;
    Ok(removed)
}

/// Ends every process of the mesh and removes its namespaces.
pub fn remove_made(state: &State) -> Result<Removed> {
    let entries = journal::read(&state.journal()).with_context(|| state.journal().display().to_string())?;
    let mut namespaces = BTreeSet::new();
    let mut leaders = Vec::new();
    for entry in entries {
        match entry {
            Entry::Namespace(name) if network::is_ours(&name) => _ = namespaces.insert(name),
            Entry::Process { id, .. } => leaders.push(id),
            Entry::Namespace(_) | Entry::Supervisor(_) => {}
        }
    }
    namespaces.retain(|name| network::path(name).exists());
    let inodes: BTreeSet<(u64, u64)> =
        namespaces.iter().filter_map(|name| identity(&network::path(name))).collect();
    let processes = end_all(|| members(&leaders, &inodes))?;
    let namespaces: Vec<String> = namespaces.into_iter().collect();
    network::delete(&namespaces)?;
    Ok(Removed { processes, namespaces: namespaces.len() })
}

/// Processes of these groups, unless they began before their leader, and processes in these namespaces.
fn members(leaders: &[ProcessId], namespaces: &BTreeSet<(u64, u64)>) -> Vec<ProcessId> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let Ok(directory) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own)
        .filter_map(|pid| {
            let stat = Stat::read(pid).ok().filter(|stat| !stat.is_zombie)?;
            let in_group =
                leaders.iter().any(|leader| leader.pid == stat.group && leader.started <= stat.started);
            let in_namespace = || {
                let namespace = identity(&PathBuf::from(format!("/proc/{pid}/ns/net")));
                namespace.is_some_and(|namespace| namespaces.contains(&namespace))
            };
            (in_group || in_namespace()).then_some(ProcessId { pid, started: stat.started })
        })
        .collect()
}

/// The device and number of a namespace's file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Asks processes to end, and kills those that do not.
fn end_all(members: impl Fn() -> Vec<ProcessId>) -> Result<usize> {
    let first = members();
    signal(&first, Signal::SIGTERM);
    let asked = Instant::now();
    let mut killed = 0;
    loop {
        let left = members();
        if left.is_empty() {
            return Ok(first.len());
        }
        if asked.elapsed() > GRACE {
            signal(&left, Signal::SIGKILL);
            killed += 1;
        }
        if killed > 200 {
            bail!("process {} does not end; what it waits for is in /proc/{0}/stack", left[0].pid);
        }
        sleep(Duration::from_millis(10));
    }
}

fn signal(processes: &[ProcessId], signal: Signal) {
    for process in processes.iter().filter(|process| process.is_alive()) {
        // The process may have ended meanwhile.
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;
    use crate::journal::Journal;

    #[test]
    fn processes_of_the_journal_and_their_children_are_ended() {
        let mesh = tempfile::tempdir().unwrap();
        let state = State::locate(mesh.path(), None).unwrap();
        state.create().unwrap();
        let journal = Journal::open(&state.journal()).unwrap();
        let mut child =
            Command::new("sh").args(["-c", "sleep 600 & sleep 600"]).process_group(0).spawn().unwrap();
        let id = ProcessId::lookup(i32::try_from(child.id()).unwrap()).unwrap();
        journal.record(&Entry::Process { name: "web".to_owned(), id }).unwrap();
        // A number that another process has by now is left alone.
        let own = i32::try_from(std::process::id()).unwrap();
        let other = Entry::Process { name: "old".to_owned(), id: ProcessId { pid: own, started: u64::MAX } };
        journal.record(&other).unwrap();
        sleep(Duration::from_millis(100));
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        let removed = clean(&state).unwrap();
        waiter.join().unwrap();
        assert!(removed.processes >= 2, "{removed:?}");
        assert!(!state.root().exists() && !id.is_alive());
    }
}
