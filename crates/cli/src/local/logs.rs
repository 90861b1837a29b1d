//! `canopus logs`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use canopus_local::process::{last_lines, new_lines};
use canopus_local::state::State;

use super::MeshLocation;
use crate::exit;
use crate::output::say;

/// How often logs are looked at.
const POLL: Duration = Duration::from_millis(200);

/// How long a mesh may take from the end of its logs to its own.
const END: Duration = Duration::from_secs(1);

/// Print what the processes of a mesh write.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Workload, `NAME/proxy` for the proxy beside it, or `canopusd`; all if none is named.
    #[arg(value_name = "WORKLOAD")]
    name: Option<String>,
    /// Go on with what is written from now on.
    #[arg(short, long)]
    follow: bool,
    /// Lines of each log to begin with.
    #[arg(long, value_name = "N", default_value_t = 20)]
    tail: usize,
    #[command(flatten)]
    location: MeshLocation,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match show(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<io::Error>() {
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            _ => say(&format!("Error: {error:#}\n"), exit::FAILURE),
        },
    }
}

fn show(arguments: &Arguments) -> Result<()> {
    let state = arguments.location.state()?;
    if !state.exists()? {
        bail!("{}: no mesh runs here; start it with `canopus up`", state.root().display());
    }
    let logs = named(&state, arguments.name.as_deref())?;
    let several = logs.len() > 1;
    let mut positions: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for (name, path) in &logs {
        positions.insert(path.clone(), path.metadata().map_or(0, |metadata| metadata.len()));
        for line in last_lines(path, arguments.tail) {
            write(name, &line, several)?;
        }
    }
    while arguments.follow && state.exists()? {
        sleep(POLL);
        if let Err(error) = follow(&state, arguments.name.as_deref(), &mut positions, several) {
            sleep(END);
            // Logs go away when the mesh ends.
            return if state.exists()? { Err(error) } else { Ok(()) };
        }
    }
    Ok(())
}

/// Prints what was written since the last time.
fn follow(
    state: &State,
    wanted: Option<&str>,
    positions: &mut BTreeMap<PathBuf, u64>,
    several: bool,
) -> Result<()> {
    for (name, path) in named(state, wanted)? {
        let position = positions.entry(path.clone()).or_default();
        for line in new_lines(&path, position)?.lines() {
            write(&name, line, several)?;
        }
    }
    Ok(())
}

/// The logs that are meant, with the names of their processes.
fn named(state: &State, wanted: Option<&str>) -> Result<Vec<(String, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(state.logs()).context("logs")? {
        let path = entry?.path();
        let stem = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log"));
        logs.extend(stem.map(|stem| (stem.replace('.', "/"), path.clone())));
    }
    logs.sort();
    let Some(wanted) = wanted else { return Ok(logs) };
    let is_meant = |name: &str| {
        let replica = name.strip_prefix(wanted).and_then(|rest| rest.strip_prefix('-'));
        name == wanted || replica.is_some_and(|number| number.parse::<u16>().is_ok())
    };
    let known: Vec<String> = logs.iter().map(|(name, _)| name.clone()).collect();
    logs.retain(|(name, _)| is_meant(name));
    if logs.is_empty() {
        bail!("{wanted:?} has written nothing; there are logs of: {}", known.join(", "));
    }
    Ok(logs)
}

fn write(name: &str, line: &str, several: bool) -> io::Result<()> {
    let mut output = io::stdout().lock();
    if several { writeln!(output, "{name:16} | {line}") } else { writeln!(output, "{line}") }
}
