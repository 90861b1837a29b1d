use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, IsTerminal as _, stderr, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use canopus_parts::{Part, ensure};

use crate::shell::{cargo, root, run, succeeds};

/// How often a log without a terminal hears how far the build is.
const HEARTBEAT: Duration = Duration::from_secs(10);

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
    let mut tools = vec![ensure_part(Part::Envoy)?];
    let envoy = tools[0].join("envoy");
    // Only root's mesh has packet rules. Where the system has no iptables, one is fetched.
    if succeeds(Command::new("ip").args(["netns", "list"]))
        && !succeeds(Command::new("iptables").arg("--version"))
    {
        tools.push(ensure_part(Part::Iptables)?);
    }
    build()?;
    let programs = std::env::current_exe()?.parent().context("the directory of this program")?.to_owned();
    tools.push(programs.clone());
    let mut command = Command::new(programs.join("canopus"));
    command
        .arg("up")
        .arg(root().join("samples/storefront"))
        .arg("--envoy")
        .arg(envoy)
        .env("PATH", path(&tools)?);
    if arguments.tour || !stdout().is_terminal() {
        command.arg("--tour");
    }
    if arguments.loopback {
        command.arg("--loopback");
    }
    run(&mut command)
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
fn build() -> Result<()> {
    let mut command = cargo();
    command.arg("build");
    for (package, program) in PROGRAMS {
        command.args(["--package", package, "--bin", program]);
    }
    if stderr().is_terminal() {
        return run(&mut command);
    }
    let start = Instant::now();
    let mut child = command.stderr(Stdio::piped()).spawn().context("cargo")?;
    let mut progress = BuildProgress::default();
    for line in BufReader::new(child.stderr.take().context("cargo's output")?).lines() {
        progress.take(&line?, start.elapsed());
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo build failed ({status}):\n{}", progress.errors.join("\n"));
    }
    eprintln!("build: done in {} s", start.elapsed().as_secs());
    Ok(())
}

#[derive(Default)]
struct BuildProgress {
    compiled: usize,
    told: Duration,
    errors: Vec<String>,
}

impl BuildProgress {
    fn take(&mut self, line: &str, elapsed: Duration) {
        match line.trim_start().strip_prefix("Compiling ") {
            Some(name) => {
                self.compiled += 1;
                if elapsed.saturating_sub(self.told) >= HEARTBEAT {
                    self.told = elapsed;
                    let name = name.split(' ').next().unwrap_or(name);
                    eprintln!("build: {} crates so far, now {name}, {} s", self.compiled, elapsed.as_secs());
                }
            }
            None => self.errors.push(line.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_of_the_demo_exists() {
        assert!(root().join("samples/storefront/mesh.yaml").exists());
    }

    #[test]
    fn what_is_no_progress_is_kept_for_the_error() {
        let mut progress = BuildProgress::default();
        progress.take("   Compiling serde v1.0.0", Duration::from_secs(1));
        progress.take("error: no such thing", Duration::from_secs(2));
        assert_eq!((progress.compiled, progress.errors.len()), (1, 1));
    }
}
