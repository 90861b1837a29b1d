//! Work in another network namespace, on a thread of its own.
//!
//! A thread's namespaces are inherited by the programs it starts and gone when it ends, so nothing has to be undone.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Why a namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The file of the namespace cannot be opened.
    #[error("network namespace {path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("network namespace {path}: cannot enter: {source}; that needs the capability SYS_ADMIN")]
    Enter {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The thread cannot be started, or the work panicked.
    #[error("cannot work in a thread of its own: {0}")]
    Thread(String),
}

/// Does work on a thread in a network namespace, or in the current one.
///
/// With `hides_host` the programs it starts see no name service, which a half-made namespace could wait on for ever, and
/// the namespace's file in the place of the machine's lock of iptables. Where the system forbids that, work goes on
/// without.
pub fn in_namespace<T: Send>(
    path: Option<&Path>,
    hides_host: bool,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let body = move || {
            path.map_or(Ok(()), enter)?;
            if hides_host && let Err(error) = hide_host(path) {
                tracing::warn!("cannot hide files of the host, going on without: {error}");
            }
            Ok(work())
        };
        let thread = thread::Builder::new().name("capture".to_owned()).spawn_scoped(scope, body);
        let thread = thread.map_err(|error| NamespaceError::Thread(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(NamespaceError::Thread("it panicked".to_owned())))
    })
}

/// Does work on a thread in the network namespace of an open file.
pub fn in_open_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let body = move || {
            let path = || PathBuf::from(format!("(open file {})", namespace.as_raw_fd()));
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|error| NamespaceError::Enter { path: path(), source: error.into() })?;
            Ok(work())
        };
        let thread = thread::Builder::new().name("capture".to_owned()).spawn_scoped(scope, body);
        let thread = thread.map_err(|error| NamespaceError::Thread(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(NamespaceError::Thread("it panicked".to_owned())))
    })
}

fn enter(path: &Path) -> Result<(), NamespaceError> {
    let file = File::open(path).map_err(|source| NamespaceError::Open { path: path.to_owned(), source })?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .map_err(|error| NamespaceError::Enter { path: path.to_owned(), source: error.into() })
}

/// Gives the thread a mount namespace in which two files of the host are covered.
fn hide_host(lock_file: Option<&Path>) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    // Mounts must not reach the host. Some systems forbid private mounts; a slave does not reach it either.
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none)
        .or_else(|_| mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none))?;
    let bind = MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    // iptables looks up the owners in rules, though we only give numbers.
    mount(Some("/dev/null"), "/etc/nsswitch.conf", none, bind, none)?;
    // Versions before 1.8.6 cannot be told of another lock file.
    if let Some(file) = lock_file.filter(|_| Path::new(XTABLES_LOCK).exists()) {
        mount(Some(file), XTABLES_LOCK, none, bind, none)?;
    }
    Ok(())
}

const XTABLES_LOCK: &str = "/run/xtables.lock";
