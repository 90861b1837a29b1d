//! Commands to a mesh that runs: one line of JSON, answered by lines of JSON, on a socket in the directory of its state.
//!
//! Only who may enter that directory can connect.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use crate::snapshot::Snapshot;
use crate::state::State;

/// How often the mesh is looked at while a step is taken, and how long after it until its traffic shows what it did.
const LOOK: Duration = Duration::from_millis(100);
const AFTERMATH: Duration = Duration::from_secs(4);

/// The longest command.
const LONGEST: u64 = 64 << 10;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// How is the mesh?
    Snapshot,
    /// Kill a process as in a crash.
    Kill {
        /// A workload, one of its replicas, `NAME/proxy`, or `canopusd`.
        name: String,
    },
    /// End a process and start it again.
    Restart {
        /// Name of the process, as for `Kill`.
        name: String,
    },
    /// Take a step of the tour.
    Tour {
        /// Name of the step.
        step: String,
    },
    /// Take back what the last step has applied.
    EndTour,
    /// End the mesh.
    Stop,
}

/// A line of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// The mesh.
    Snapshot(Box<Snapshot>),
    /// The command was carried out.
    Done(String),
    /// The command cannot be carried out.
    Failed(String),
}

/// Sends a command to the mesh of a state directory.
pub fn ask(state: &State, command: &Command) -> Result<Reply> {
    let path = state.control();
    let mut stream = UnixStream::connect(&path)
        .with_context(|| format!("{}: no mesh runs here; start it with `canopus up`", path.display()))?;
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).context("the mesh has ended")?;
    if answer.is_empty() {
        bail!("the mesh ends");
    }
    serde_json::from_str(&answer).context("the mesh's answer; is it of another version?")
}

/// How the mesh of a state directory is.
pub fn snapshot(state: &State) -> Result<Snapshot> {
    match ask(state, &Command::Snapshot)? {
        Reply::Snapshot(snapshot) => Ok(*snapshot),
        Reply::Done(text) | Reply::Failed(text) => bail!(text),
    }
}

/// How the mesh is once its traffic has been watched for a while.
pub fn settled_snapshot(state: &State) -> Result<Snapshot> {
    for _ in 0..12 {
        snapshot(state)?;
        std::thread::sleep(Duration::from_secs(1));
    }
    snapshot(state)
}

/// Takes every step of the tour of a mesh that runs, and gives how the mesh was before, after each, and when the control plane was
/// away. Fails if a step does.
pub fn record_tour(state: &State) -> Result<Vec<Snapshot>> {
    let mut frames = vec![settled_snapshot(state)?];
    let steps = frames[0].tour.steps.clone();
    for step in steps {
        let command = Command::Tour { step: step.name };
        let (taker, mut outage) = (state.clone(), None);
        let taking = std::thread::spawn(move || order(&taker, &command));
        while !taking.is_finished() {
            let now = snapshot(state)?;
            if outage.is_none() && !now.control_plane {
                outage = Some(now);
            }
            std::thread::sleep(LOOK);
        }
        taking.join().map_err(|_| anyhow!("the step failed"))??;
        std::thread::sleep(AFTERMATH);
        frames.extend(outage);
        frames.push(snapshot(state)?);
    }
    order(state, &Command::EndTour)?;
    Ok(frames)
}

/// Carries out a command and gives the mesh's words.
pub fn order(state: &State, command: &Command) -> Result<String> {
    match ask(state, command)? {
        Reply::Done(text) => Ok(text),
        Reply::Failed(text) => bail!(text),
        Reply::Snapshot(_) => bail!("the mesh answered something else"),
    }
}

/// Reads the command of a connection.
pub(crate) async fn read(stream: &mut tokio::net::UnixStream) -> Result<Command> {
    let mut line = String::new();
    tokio::io::BufReader::new(stream.take(LONGEST)).read_line(&mut line).await?;
    serde_json::from_str(&line).context("this is no command")
}

/// Answers on a connection.
pub(crate) async fn answer(stream: &mut tokio::net::UnixStream, reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    Ok(stream.write_all(&line).await?)
}
