//! Forbids core dumps: the memory of a process that signs has keys in it.

use std::io;

use nix::sys::resource::{Resource, setrlimit};

/// The limit that keeps Linux from writing a core file and from piping one to a collector alike. Zero would not do: a
/// collector, such as systemd's, is run whatever the limit is, except for this one.
const NEITHER_FILE_NOR_PIPE: u64 = 1;

/// Forbids core dumps of this process and its children.
pub fn forbid() -> io::Result<()> {
    Ok(setrlimit(Resource::RLIMIT_CORE, NEITHER_FILE_NOR_PIPE, NEITHER_FILE_NOR_PIPE)?)
}
