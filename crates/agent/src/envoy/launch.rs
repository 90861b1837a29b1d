//! The step between the agent and Envoy: a process that ties its life to the agent's and then becomes Envoy.
//!
//! The kernel sends the signal of `PR_SET_PDEATHSIG` when the thread that started the child ends, and the setting survives
//! `exec`. It has to be made in the child, which `std` can only do with unsafe code between fork and exec; a process of
//! our own does it after.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgid, setuid};

/// The first argument of such a process, followed by the id of the agent, the user or `-`, and the command.
pub const SUBCOMMAND: &str = "launch-proxy";

/// Becomes the command; returns only if that fails.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let Err(error) = become_command(arguments) else { return ExitCode::FAILURE };
    let command = arguments.get(2).map(|command| command.display().to_string()).unwrap_or_default();
    #[expect(clippy::print_stderr, reason = "the agent shows what its child writes")]
    {
        eprintln!(
            "{command}: {error}; set binaryPath of the proxy configuration to an Envoy that this user can run"
        );
    }
    ExitCode::from(127)
}

fn become_command(arguments: &[OsString]) -> io::Result<()> {
    let [agent, user, command, rest @ ..] = arguments else {
        return Err(io::Error::other("expected the agent's id, a user and a command"));
    };
    if let Some(user) = user.to_str().and_then(|user| user.parse().ok()) {
        setgid(Gid::from_raw(user))?;
        setuid(Uid::from_raw(user))?;
    }
    // After the change of user, which clears the setting.
    set_pdeathsig(Signal::SIGKILL)?;
    if agent.to_str().and_then(|agent| agent.parse().ok()) != Some(parent_id()) {
        // The agent ended before the setting was made.
        return Err(io::Error::other("the agent is gone"));
    }
    Err(Command::new(command).args(rest).exec())
}
