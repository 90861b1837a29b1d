//! A mesh on this machine: `canopus up` and what goes with it.

mod init;
mod logs;
mod status;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use canopus_local::clean;
use canopus_local::control::{self, Command as Control};
use canopus_local::state::State;

use crate::exit;
use crate::output::say;

pub(crate) use init::{Arguments as InitArguments, run as init};
pub(crate) use logs::{Arguments as LogsArguments, run as logs};
pub(crate) use status::{Arguments as StatusArguments, run as status};
pub(crate) use up::{Arguments as UpArguments, run as up};

/// Which mesh is meant.
#[derive(clap::Args, Debug)]
pub(crate) struct MeshLocation {
    /// Directory with mesh.yaml.
    #[arg(short = 'C', long = "directory", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Directory of the mesh's state, if it was started with one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl MeshLocation {
    fn state(&self) -> Result<State> {
        State::locate(&self.directory, self.state.as_deref())
    }
}

/// End a mesh on this machine and remove everything it made.
#[derive(clap::Args, Debug)]
pub(crate) struct DownArguments {
    /// Directory with mesh.yaml.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Directory of the mesh's state, if it was started with one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// A workload and its mesh.
#[derive(clap::Args, Debug)]
pub(crate) struct WorkloadArguments {
    /// Workload, one of its replicas, `NAME/proxy` for the proxy beside it, or `canopusd`.
    #[arg(value_name = "WORKLOAD")]
    name: String,
    #[command(flatten)]
    location: MeshLocation,
}

pub(crate) fn down(arguments: &DownArguments) -> ExitCode {
    finish(end(arguments))
}

fn end(arguments: &DownArguments) -> Result<String> {
    let state = State::locate(&arguments.directory, arguments.state.as_deref())?;
    if !state.exists()? {
        return Ok(format!("{}: no mesh runs here\n", arguments.directory.display()));
    }
    if let Some(supervisor) = clean::supervisor(&state)? {
        // A supervisor that does not answer is ended below, with its processes.
        let _ = control::order(&state, &Control::Stop);
        clean::wait_end(supervisor)?;
    }
    if !state.exists()? {
        return Ok("down\n".to_owned());
    }
    let removed = clean::clean(&state)?;
    Ok(format!("down: removed {} processes and {} namespaces\n", removed.processes, removed.namespaces))
}

pub(crate) fn kill(arguments: &WorkloadArguments) -> ExitCode {
    let name = arguments.name.clone();
    finish(order(&arguments.location, &Control::Kill { name }))
}

pub(crate) fn restart(arguments: &WorkloadArguments) -> ExitCode {
    let name = arguments.name.clone();
    finish(order(&arguments.location, &Control::Restart { name }))
}

fn order(location: &MeshLocation, command: &Control) -> Result<String> {
    Ok(format!("{}\n", control::order(&location.state()?, command)?))
}

/// Says what was done, or why not.
fn finish(result: Result<String>) -> ExitCode {
    match result {
        Ok(words) => say(&words, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}
