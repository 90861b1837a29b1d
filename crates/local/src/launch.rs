//! The step between the supervisor and a program: a process that enters the pod and then becomes the program.
//!
//! `std` can change namespaces and users of a child only with unsafe code between fork and exec; a process of our own does it
//! after. It also ties the program's life to the supervisor's: the kernel kills it when the supervisor ends in any way.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

/// The command of `canopus` that is such a process, followed by its [`Launch`] as JSON.
pub const SUBCOMMAND: &str = "launch-workload";

/// What a process becomes, and where.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// The supervisor.
    pub parent: u32,
    /// File of the network namespace.
    pub namespace: Option<PathBuf>,
    /// Files that the program sees in the place of others.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// User and group; the supervisor's if there is none.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// Becomes the program; returns only if that fails.
#[expect(clippy::print_stderr, reason = "the log of the workload is its standard error")]
pub fn run(specification: &str) -> ExitCode {
    let launch: Launch = match serde_json::from_str(specification) {
        Ok(launch) => launch,
        Err(error) => {
            eprintln!("{SUBCOMMAND}: this command is `canopus up`'s own: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Err(error) = launch.become_program() else { return ExitCode::FAILURE };
    eprintln!("{error}");
    ExitCode::from(127)
}

impl Launch {
    fn become_program(&self) -> Result<(), String> {
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err("there is no program".to_owned());
        };
        self.enter().map_err(|error| format!("cannot enter the pod's namespaces: {error}"))?;
        self.change_user().map_err(|error| format!("cannot change the user: {error}"))?;
        // After the change of user, which clears the setting.
        set_pdeathsig(Signal::SIGKILL).map_err(|error| error.to_string())?;
        if parent_id() != self.parent {
            return Err("the supervisor is gone".to_owned());
        }
        let error = Command::new(program).args(arguments).exec();
        Err(match error.kind() {
            io::ErrorKind::NotFound if program.contains('/') => {
                format!("{program}: no such program; build it, or change `command` in mesh.yaml")
            }
            io::ErrorKind::NotFound => format!(
                "{program}: not found on PATH; install it, or write a path relative to mesh.yaml such as ./{program}"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("{program}: may not be run by user {}; make it executable", nix::unistd::geteuid())
            }
            _ => format!("{program}: {error}"),
        })
    }

    fn enter(&self) -> io::Result<()> {
        if let Some(namespace) = &self.namespace {
            setns(File::open(namespace)?, CloneFlags::CLONE_NEWNET)?;
        }
        if self.files.is_empty() {
            return Ok(());
        }
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        // What is mounted here must not reach the machine.
        mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
        for (source, target) in self.files.iter().filter(|(_, target)| target.exists()) {
            mount(Some(source.as_path()), target.as_path(), none, MsFlags::MS_BIND, none)?;
        }
        Ok(())
    }

    fn change_user(&self) -> io::Result<()> {
        if let Some(group) = self.group {
            let group = Gid::from_raw(group);
            setgroups(&[group])?;
            setgid(group)?;
        }
        if let Some(user) = self.user {
            setuid(Uid::from_raw(user))?;
        }
        Ok(())
    }
}

/// The machine's `nsswitch.conf` with names looked up in files and DNS alone, which the agent answers: a resolver that asks
/// a daemon of the machine would not know the names of the mesh.
pub fn name_service(machine: &str) -> String {
    let lines = machine.lines().filter(|line| !line.trim_start().starts_with("hosts:"));
    let kept: String = lines.map(|line| format!("{line}\n")).collect();
    format!("{kept}hosts: files dns\n")
}

/// Files of the machine that a pod has its own of.
pub fn pod_files(resolver: &Path, name_service: &Path) -> Vec<(PathBuf, PathBuf)> {
    vec![
        (resolver.to_owned(), PathBuf::from("/etc/resolv.conf")),
        (name_service.to_owned(), PathBuf::from("/etc/nsswitch.conf")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_in_files_and_dns_alone() {
        let machine = "passwd: files systemd\nhosts: files resolve [!UNAVAIL=return] dns\n";
        assert_eq!(name_service(machine), "passwd: files systemd\nhosts: files dns\n");
    }
}
