mod progress;

use std::ffi::OsString;
use std::io::{IsTerminal as _, stderr, stdout};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use canopus_parts::{Part, ensure};

use crate::shell::{cargo, root, run, succeeds};

/// The programs of the demo, each with its package.
const PROGRAMS: [(&str, &str); 4] = [
    ("canopus-cli", "canopus"),
    ("canopus-daemon", "canopusd"),
    ("canopus-agent", "canopus-agent"),
    ("canopus-storefront", "storefront"),
];

/// Runs a whole mesh on this machine: a small shop with a proxy beside every program.
///
/// Fetches Envoy, builds Canopus and the shop, and runs `canopus up samples/storefront`. On a terminal that is the live view; in
/// a pipe or CI it is the tour, told line by line, and the status says whether every step went as it should. With root (`sudo`)
/// each program has a network namespace of its own and its traffic is captured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Tell the tour line by line, also on a terminal.
    #[arg(long)]
    tour: bool,
    /// Use loopback mode even where network namespaces are permitted.
    #[arg(long)]
    loopback: bool,
}

pub(crate) fn run_it(arguments: &Arguments) -> Result<()> {
    build()?;
    let mesh = Mesh::prepare(arguments.loopback)?;
    let mut command = mesh.up();
    if arguments.tour || !stdout().is_terminal() {
        command.arg("--tour");
    }
    run(&mut command)
}

/// Takes the tour with programs that were built with the tests: cargo would choose other features for them alone, and build again.
pub(crate) fn tour_of_built() -> Result<()> {
    run(Mesh::prepare(false)?.up().arg("--tour"))
}

/// The sample and the programs that run it.
pub(crate) struct Mesh {
    envoy: PathBuf,
    programs: PathBuf,
    path: OsString,
    loopback: bool,
}

impl Mesh {
    /// Fetches what is not there.
    pub(crate) fn prepare(loopback: bool) -> Result<Self> {
        let envoy = ensure_part(Part::Envoy)?;
        let mut tools = vec![envoy.clone()];
        // Only root's mesh has packet rules. Where the system has no iptables, one is fetched.
        let has_rules = !loopback && is_root() && succeeds(Command::new("ip").args(["netns", "list"]));
        if has_rules && !succeeds(Command::new("iptables").arg("--version")) {
            tools.push(ensure_part(Part::Iptables)?);
        }
        let programs = std::env::current_exe()?.parent().context("the directory of this program")?.to_owned();
        tools.push(programs.clone());
        Ok(Self { envoy: envoy.join("envoy"), programs, path: path(&tools)?, loopback })
    }

    /// A command of `canopus`.
    pub(crate) fn canopus(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("canopus"));
        command.args(arguments).env("PATH", &self.path);
        command
    }

    /// `canopus up` with the sample.
    pub(crate) fn up(&self) -> Command {
        let mut command = self.canopus(&["up"]);
        command.arg(sample()).arg("--envoy").arg(&self.envoy);
        if self.loopback {
            command.arg("--loopback");
        }
        command
    }
}

/// The directory of the sample.
pub(crate) fn sample() -> PathBuf {
    root().join("samples/storefront")
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn ensure_part(part: Part) -> Result<PathBuf> {
    let installed = ensure(&[part])?;
    Ok(installed.iter().next().context("the part that was installed")?.1.to_owned())
}

fn path(tools: &[PathBuf]) -> Result<OsString> {
    #[expect(clippy::disallowed_methods, reason = "programs are looked for where the user's shell does")]
    let own = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    Ok(std::env::join_paths(tools.iter().cloned().chain(std::env::split_paths(&own)).chain(system))?)
}

/// Builds what runs. Cargo shows its own progress on a terminal; a log gets a line now and then.
pub(crate) fn build() -> Result<()> {
    let mut command = cargo();
    command.arg("build");
    for (package, program) in PROGRAMS {
        command.args(["--package", package, "--bin", program]);
    }
    if stderr().is_terminal() {
        return run(&mut command);
    }
    progress::run_with_lines(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_of_the_demo_exists() {
        assert!(sample().join("mesh.yaml").exists());
    }
}
