use std::io;
use std::path::PathBuf;

use crate::Part;

/// Why a part could not be installed; each message says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The registry that has the part could not be reached.
    #[error(
        "{part}: {what} could not be had from the {registry}: it cannot be reached.\n\
         Connect to a network that can reach it (or set up the mirror your network offers, as for any other use of \
         `{client}`) and run `cargo xtask parts {part}` again.\n{detail}"
    )]
    Offline {
        /// The part being installed.
        part: Part,
        /// What was asked for.
        what: String,
        /// The kind of registry it comes from.
        registry: &'static str,
        /// The client that asked.
        client: &'static str,
        /// The closing lines of what the client said.
        detail: String,
    },

    /// A program that the recipe needs is not on the machine.
    #[error("{part}: needs `{tool}`, which is not on PATH. {remedy}")]
    ToolMissing {
        /// The part being installed.
        part: Part,
        /// The missing program.
        tool: &'static str,
        /// How to get it.
        remedy: &'static str,
    },

    /// Nothing is published for this operating system and processor.
    #[error("{part}: no build is published for {os} on {arch}")]
    Platform {
        /// The part being installed.
        part: Part,
        /// Operating system, as Rust names it.
        os: &'static str,
        /// Processor architecture, as Rust names it.
        arch: &'static str,
    },

    /// What was downloaded is not what was pinned.
    #[error(
        "{part}: checksum mismatch for {what}: {detail}.\n\
         Nothing was installed. A broken download goes away on a second try; if it does not, the registry serves something \
         other than what this version was tested with."
    )]
    Checksum {
        /// The part being installed.
        part: Part,
        /// The file or module.
        what: String,
        /// Expected and found.
        detail: String,
    },

    /// The file system is full.
    #[error(
        "{part}: no space left while installing into {}. Free some space, or point CANOPUS_CACHE at a roomier disk",
        dir.display()
    )]
    DiskFull {
        /// The part being installed.
        part: Part,
        /// The cache directory in use.
        dir: PathBuf,
    },

    /// A client ran and failed for a reason of its own.
    #[error("{part}: `{command}` failed ({status}):\n{output}")]
    Failed {
        /// The part being installed.
        part: Part,
        /// The command line.
        command: String,
        /// Exit status of the command.
        status: String,
        /// The closing lines of its output.
        output: String,
    },

    /// A file could not be written, read or moved.
    #[error("{part}: {what} {}: {source}", path.display())]
    Io {
        /// The part being installed.
        part: Part,
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// There is no directory to keep parts in.
    #[error(transparent)]
    NoCache(#[from] NoCacheDir),
}

/// Neither `CANOPUS_CACHE`, `XDG_CACHE_HOME` nor `HOME` names a directory.
#[derive(Debug, thiserror::Error)]
#[error("no cache directory: set CANOPUS_CACHE (or XDG_CACHE_HOME, or HOME) to an absolute path")]
pub struct NoCacheDir;

/// A part that has not been installed yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotInstalled {
    /// The part is not in the cache.
    #[error("{part} {} is not installed: run `cargo xtask parts {part}` once", part.version())]
    Missing {
        /// The part that was looked for.
        part: Part,
    },

    /// There is no directory to look in.
    #[error(transparent)]
    NoCache(#[from] NoCacheDir),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_part_is_named_with_the_command_that_installs_it() {
        let message = NotInstalled::Missing { part: Part::Envoy }.to_string();
        assert_eq!(message, "envoy 1.40.0 is not installed: run `cargo xtask parts envoy` once");
    }
}
