//! Running a mesh: everything is made in order, watched, and removed at the end.

mod lines;
mod run;

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::clean;
use crate::components::{self, Components};
use crate::mesh_file::MeshFile;
use crate::network;
use crate::plan::{Mode, Plan, Pod};
use crate::process::{Launcher, last_lines};
use crate::programs::Programs;
use crate::state::State;

pub use lines::Start;
pub use run::{Front, run};

/// What a mesh is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// When the process began; times to readiness are counted from there.
    pub began: Instant,
    /// How long the mesh may take to become ready before it is said what keeps it.
    pub patience: Duration,
    /// The directory with the mesh file.
    pub directory: PathBuf,
    /// Where the state is kept, if not there.
    pub state: Option<PathBuf>,
    /// Envoy, if not on the path.
    pub envoy: Option<PathBuf>,
    /// The socket of the service manager that waits for the mesh (`NOTIFY_SOCKET`).
    pub service_manager: Option<String>,
    /// Whether to use loopback mode even where namespaces are permitted.
    pub loopback: bool,
}

/// A mesh that can be run: its file is right, its programs are there, and nothing is left of an earlier run.
pub struct Prepared {
    file: MeshFile,
    directory: PathBuf,
    components: Components,
    /// Held for as long as the mesh runs.
    lock: File,
    began: Instant,
    patience: Duration,
    service_manager: Option<String>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Reads the mesh's file, finds programs, and removes what an earlier run left.
pub fn prepare(options: &Options) -> Result<Prepared> {
    let directory = std::path::absolute(&options.directory)?;
    let file = MeshFile::read(&directory)?;
    let programs = Programs::find(options.envoy.as_deref())?;
    let state = State::locate(&directory, options.state.as_deref())?;
    let mut notes = Vec::new();
    if state.exists()? {
        if let Some(running) = clean::supervisor(&state)? {
            bail!(
                "{}: the mesh runs already (process {}); `canopus up --attach` shows it, `canopus down` ends it",
                directory.display(),
                running.pid
            );
        }
        let removed = clean::clean(&state)?;
        notes.push(format!(
            "an earlier run did not end well: removed {} processes and {} namespaces that it left",
            removed.processes, removed.namespaces
        ));
    }
    let mode = match network::obstacle() {
        _ if options.loopback => Mode::Loopback,
        None => Mode::Namespaces,
        Some(reason) => {
            notes.push(format!("{reason}: loopback mode"));
            Mode::Loopback
        }
    };
    if mode == Mode::Namespaces && !has_iptables() {
        bail!(
            "iptables is not on PATH, by which traffic is captured; install the package iptables, or use --loopback"
        );
    }
    if mode == Mode::Loopback {
        notes.push(
            "loopback mode: traffic is not captured; programs must listen on $PORT and call services at \
             $NAME_SERVICE_HOST:$NAME_SERVICE_PORT, which are ports of their proxies"
                .to_owned(),
        );
    }
    let mut reserved = Vec::new();
    let mut free = || free_port(&mut reserved);
    let plan = Plan::new(&file, &directory, mode, &mut free);
    for pod in plan.started_elsewhere() {
        let namespace = network::path(&pod.network_namespace);
        if mode == Mode::Loopback {
            bail!(
                "{} has no `command`, and in loopback mode nobody else can start its program; run the mesh as root where network \
                 namespaces are permitted, or add `command`",
                pod.name
            );
        }
        notes.push(format!(
            "{} is started by others, in the network namespace {}",
            pod.name,
            namespace.display()
        ));
    }
    state.create()?;
    let lock =
        state.try_lock()?.ok_or_else(|| anyhow!("another `canopus up` of this mesh has just begun"))?;
    let certificate_lifetime = file.certificate_lifetime;
    let owner = components::owner(&directory)?;
    let components = Components { plan, state, programs, certificate_lifetime, owner };
    let (began, patience, service_manager) =
        (options.began, options.patience, options.service_manager.clone());
    Ok(Prepared { file, directory, components, lock, began, patience, service_manager, notes })
}

fn has_iptables() -> bool {
    let variants = ["iptables-nft-save", "iptables-legacy-save", "iptables-save"];
    variants.iter().any(|program| Command::new(program).arg("--version").output().is_ok())
}

/// A port that nobody listens on. The listeners are kept so that none is given out twice.
fn free_port(reserved: &mut Vec<TcpListener>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0");
    let port = listener.as_ref().ok().and_then(|listener| Some(listener.local_addr().ok()?.port()));
    reserved.extend(listener);
    port.unwrap_or_default()
}

/// The processes of a mesh, by name, with their lives.
type Lives = Vec<Pin<Box<dyn Future<Output = ()>>>>;

/// Fails with a workload's own words if packet rules cannot be applied.
async fn capture(components: &Components, launcher: &Launcher, pod: &Pod) -> Result<()> {
    let Some(specification) = components.capture(pod) else { return Ok(()) };
    let status = launcher.start(&specification)?.wait().await?;
    if !status.success() {
        let words = last_lines(&components.state.log(&specification.name), 1).join(" ");
        bail!("{}: packet rules cannot be applied: {words}", pod.name);
    }
    Ok(())
}

/// Opens the socket for commands.
fn open_control(state: &State) -> Result<tokio::net::UnixListener> {
    let path = state.control();
    tokio::net::UnixListener::bind(&path).with_context(|| path.display().to_string())
}
