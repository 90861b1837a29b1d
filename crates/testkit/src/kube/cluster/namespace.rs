use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::addresses::Addresses;
use crate::tool;

/// Puts itself into the cluster's cgroup, then becomes the program inside the namespaces.
const ENTER: &str = r#"
holder=$1 name=$2
shift 2
for group in /sys/fs/cgroup/pids/$name/system /sys/fs/cgroup/$name/system; do
    if [ -d "$group" ]; then echo $$ >"$group/cgroup.procs"; fi
done
# Entering a mount namespace leads to its root.
exec nsenter --target "$holder" --net --mount -- sh -c 'cd "$1" && shift && exec "$@"' enter "$PWD" "$@"
"#;

/// The network and mount namespaces of a node, and the cgroup that everything in them is in.
///
/// When it is dropped, or this process dies, all processes of the cluster are killed and nothing of it is left.
#[derive(Debug)]
pub(super) struct Namespace {
    guard: Child,
    holder: u32,
    name: String,
}

impl Namespace {
    /// Makes the namespaces, with the first addresses that no other cluster has.
    pub(super) async fn new(directory: &Path) -> Result<(Self, Addresses)> {
        for addresses in Addresses::all() {
            if Path::new("/sys/class/net").join(addresses.name()).exists() {
                continue;
            }
            let namespace = Self::start(directory, addresses)?;
            match namespace.set_up(directory, addresses).await {
                Ok(()) => return Ok((namespace, addresses)),
                // Another test has taken the name in between.
                Err(error) if format!("{error:#}").contains("File exists") => {}
                Err(error) => return Err(error.context("making a network for the cluster; this takes root")),
            }
        }
        bail!("256 clusters run on this machine, more than there are addresses for")
    }

    fn start(directory: &Path, addresses: Addresses) -> Result<Self> {
        let name = addresses.name();
        let mut guard = Command::new("sh")
            .args(["-c", include_str!("guard.sh"), "guard", &name])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal to this process's group, such as Ctrl-C, must not reach who cleans up after it.
            .process_group(0)
            .spawn()
            .context("starting the guard of a cluster with `sh`")?;
        let mut line = String::new();
        let output = guard.stdout.take().context("the guard has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let holder = line.trim().parse().context("the guard did not say who holds the namespaces")?;
        Ok(Self { guard, holder, name })
    }

    async fn set_up(&self, directory: &Path, addresses: Addresses) -> Result<()> {
        self.wait_for_namespaces().await?;
        let mut command = Command::new("sh");
        command
            .args(["-c", include_str!("setup.sh"), "setup", &self.holder.to_string(), &self.name])
            .arg(directory)
            .args([addresses.name(), addresses.host().to_string(), addresses.node().to_string()])
            .args([addresses.pods(), addresses.services(), addresses.load_balancers()]);
        tool::run(command, "").await.map(drop)
    }

    /// The holder is known before it has left this process's namespaces.
    async fn wait_for_namespaces(&self) -> Result<()> {
        let own = std::fs::read_link("/proc/self/ns/mnt")?;
        let patience = std::time::Duration::from_secs(10);
        crate::eventually("the namespaces of the cluster", patience, async || {
            let its = std::fs::read_link(format!("/proc/{}/ns/mnt", self.holder))?;
            anyhow::ensure!(its != own, "not made yet");
            Ok(())
        })
        .await
    }

    /// A program that runs on the node.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "enter", &self.holder.to_string(), &self.name]).arg(program.as_ref());
        command
    }

    /// The same program, with its arguments, on the node.
    pub(super) fn enter(&self, inner: &Command) -> Command {
        let mut command = self.command(inner.get_program().as_ref() as &Path);
        command.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        if let Some(directory) = inner.get_current_dir() {
            command.current_dir(directory);
        }
        command
    }

    /// The cgroup below which the kubelet makes those of pods.
    pub(super) fn cgroup(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.guard.stdin.take() {
            // A guard that is gone already needs no word.
            let _ = writeln!(pipe, "done");
        }
        let _ = self.guard.wait();
    }
}
