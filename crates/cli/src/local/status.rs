//! `canopus status`.

use std::process::ExitCode;

use anyhow::Result;
use canopus_local::control;
use canopus_local::snapshot::{Snapshot, UnitState};

use super::MeshLocation;
use crate::exit;
use crate::output::{print, say};

/// Print how a mesh on this machine is.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    location: MeshLocation,
    /// `table`, or `json` for everything that is known.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match render(arguments) {
        Ok((text, true)) => print(&text, ExitCode::SUCCESS),
        Ok((text, false)) => print(&text, exit::FAILURE),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// The text, and whether all is well.
fn render(arguments: &Arguments) -> Result<(String, bool)> {
    let snapshot = control::snapshot(&arguments.location.state()?)?;
    let text = match arguments.output.as_str() {
        "json" => format!("{}\n", serde_json::to_string_pretty(&snapshot)?),
        _ => table(&snapshot),
    };
    Ok((text, snapshot.is_ready()))
}

fn table(snapshot: &Snapshot) -> String {
    let width = snapshot.units.iter().map(|unit| unit.name.len()).max().unwrap_or_default();
    let mut text = format!("{:width$}  {:8}  {:>7}  {:>8}\n", "PROCESS", "STATE", "PID", "RESTARTS");
    for unit in &snapshot.units {
        let state = match unit.state {
            UnitState::Waiting => "waiting",
            UnitState::Starting => "starting",
            UnitState::Ready => "ready",
            UnitState::Crashed => "crashed",
            UnitState::Stopped => "stopped",
        };
        let pid = unit.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let line =
            format!("{:width$}  {state:8}  {pid:>7}  {:>8}  {}", unit.name, unit.restarts, unit.message);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for problem in &snapshot.problems {
        text.push_str(&format!("{problem}\n"));
    }
    text
}
