//! From a prepared mesh to its end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{interval, sleep};

use super::{Lives, Prepared, capture, lines, open_control};
use crate::clean;
use crate::components::{Components, TOKEN_RENEWAL};
use crate::control::{self, Command, Reply};
use crate::forward::{Forward, Opened};
use crate::journal::{Entry, Journal, ProcessId};
use crate::mesh::Mesh;
use crate::mesh_file::Restart;
use crate::network;
use crate::node::Node;
use crate::observe::Observer;
use crate::plan::{Mode, Pod};
use crate::process::{Launcher, bound_logs};
use crate::service_manager::ServiceManager;
use crate::snapshot::{StepState, StepStatus, TourStatus, UnitKind};
use crate::tour;
use crate::unit::{Order, Prepare, Readiness, Unit, UnitHandle};

/// How long the view may take to end with the mesh.
const VIEW_GRACE: Duration = Duration::from_secs(3);

/// How often logs are looked at for their length.
const LOGS_CHECKED_EVERY: Duration = Duration::from_secs(60);

/// What is done with a mesh once it runs.
pub enum Front {
    /// Runs until stopped; changes are printed line by line.
    Lines,
    /// The whole tour is taken and told line by line, and then the mesh ends.
    Tour,
    /// The live view is shown on the terminal, by the function given; the mesh ends with it.
    View(Box<dyn FnOnce() -> Result<()> + Send>),
}

/// Runs a mesh to its end. `tell` is given lines for the user. It must be called on the thread that the process lives as long as.
pub fn run(prepared: Prepared, front: Front, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let state = prepared.components.state.clone();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let result = LocalSet::new().block_on(&runtime, supervise(prepared, front, tell));
    // Whatever went wrong, nothing stays.
    let removed = clean::clean(&state);
    result.and(removed.map(drop))
}

async fn supervise(prepared: Prepared, front: Front, tell: &mut dyn FnMut(&str)) -> Result<()> {
    // Before anything is made that would have to be removed.
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let Prepared { file, directory, components, lock: _lock, patience, began, service_manager, .. } =
        prepared;
    let journal = Arc::new(Journal::open(&components.state.journal())?);
    journal.record(&Entry::Supervisor(ProcessId::lookup(i32::try_from(std::process::id())?)?))?;
    components.write_files(&file, &directory)?;
    let plan = components.plan.clone();
    let node = match plan.mode {
        Mode::Namespaces => {
            network::create(&plan, &journal)?;
            Node::start(Some(&network::path(&plan.node_namespace)))?
        }
        Mode::Loopback => Node::start(None)?,
    };
    let node = Rc::new(node);
    let launcher = Rc::new(Launcher {
        executable: components.programs.launcher.clone(),
        journal,
        state: components.state.clone(),
    });
    let control = open_control(&components.state)?;
    let mut work = JoinSet::new();
    let forwards = forward(&components, &node, &mut work);
    let (units, lives) = units(&components, &launcher, &node);
    lives.into_iter().for_each(|life| _ = work.spawn_local(life));
    let observer = Observer::new(&plan, Rc::clone(&node));
    let steps = file.tour.iter().map(|step| StepStatus {
        name: step.name.clone(),
        title: step.title.clone(),
        state: StepState::Open,
    });
    let mesh = Rc::new(Mesh {
        tour: RefCell::new(TourStatus { steps: steps.collect(), ..TourStatus::default() }),
        components,
        directory,
        file,
        node,
        observer,
        units,
        stop: Notify::new(),
        started: began,
        forwards,
        observed: RefCell::default(),
        log: RefCell::default(),
        service_manager: service_manager.map(ServiceManager),
        asked: Cell::new(Instant::now()),
    });
    work.spawn_local(serve(Rc::clone(&mesh), control));
    let observed = Rc::clone(&mesh);
    work.spawn_local(async move { observed.observe().await });
    let followed = Rc::clone(&mesh);
    work.spawn_local(async move { followed.follow_logs().await });
    work.spawn_local(maintain(Rc::clone(&mesh)));
    let ended = signals.each_mut().map(|signal| async move {
        match signal {
            Ok(signal) => _ = signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    });
    let [terminated, interrupted, hung_up] = ended;
    let (showing, viewer) = Showing::begin(front)?;
    let result = tokio::select! {
        result = showing.run(&mesh, patience, tell) => result,
        () = mesh.stop.notified() => Ok(()),
        () = terminated => Ok(()),
        () = interrupted => Ok(()),
        () = hung_up => Ok(()),
        Some(Err(panic)) = work.join_next() => Err(panic).context("a part of the supervisor failed"),
    };
    drop(work);
    if let Some(viewer) = viewer {
        give_terminal_back(viewer).await;
    }
    result
}

/// Waits until the view has ended, which it does when nobody answers it any more. The socket that it asks is closed as this waits:
/// a thread that blocked here would keep the view waiting for an answer for ever.
async fn give_terminal_back(viewer: JoinHandle<()>) {
    let asked = Instant::now();
    while !viewer.is_finished() && asked.elapsed() < VIEW_GRACE {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Opens ports of this machine that lead to gateways, and of the bridge that lead to services outside.
fn forward(components: &Components, node: &Node, work: &mut JoinSet<()>) -> Vec<watch::Receiver<Opened>> {
    let plan = &components.plan;
    let mut opened = Vec::new();
    for published in &plan.published {
        let (sender, receiver) = watch::channel(Opened::Pending);
        work.spawn_local(
            Forward::published(published.host, published.target).run(node.handle().clone(), sender),
        );
        opened.push(receiver);
    }
    for external in &plan.externals {
        let (Some(target), Some(port)) = (external.forward.clone(), external.ports.first()) else { continue };
        let (sender, receiver) = watch::channel(Opened::Pending);
        let forward = Forward { listen: SocketAddr::from((external.endpoint, port.target)), target };
        node.handle().spawn(forward.run(Handle::current(), sender));
        opened.push(receiver);
    }
    opened
}

/// Control plane, proxies and programs, each after what it needs.
fn units(
    components: &Components,
    launcher: &Rc<Launcher>,
    node: &Rc<Node>,
) -> (BTreeMap<String, UnitHandle>, Lives) {
    let mut handles = BTreeMap::new();
    let mut lives: Lives = Vec::new();
    let mut add = |unit: Unit| {
        let name = unit.specification.name.clone();
        let (handle, life) = unit.into_life(Rc::clone(launcher), Rc::clone(node));
        lives.push(Box::pin(life));
        let status = handle.status.clone();
        handles.insert(name, handle);
        status
    };
    let control_plane = add(Unit {
        kind: UnitKind::ControlPlane,
        specification: components.control_plane(),
        restart: Restart::Always,
        readiness: Readiness::Http(components.plan.debug, "/ready"),
        after: Vec::new(),
        early: None,
        prepare: None,
    });
    let mut proxies = Vec::new();
    for pod in &components.plan.pods {
        let Some(proxy) = &pod.proxy else { continue };
        let (early, prepare) = prepare_proxy(components, launcher, pod);
        let ready = add(Unit {
            kind: UnitKind::Proxy,
            specification: components.agent(pod, proxy),
            restart: Restart::Always,
            readiness: Readiness::Http(SocketAddr::from((pod.address, proxy.health)), "/healthz/ready"),
            after: vec![control_plane.clone()],
            early: Some(early),
            prepare: Some(prepare),
        });
        proxies.push((pod.name.clone(), ready));
    }
    for pod in &components.plan.pods {
        let (Some(specification), Some(program)) = (components.program(pod), &pod.program) else { continue };
        // A program without a proxy may call any gateway at once, so it waits for all proxies.
        let waits_for = |name: &str| pod.proxy.is_none() && pod.ports.is_empty() || name == pod.name;
        let after =
            proxies.iter().filter(|(name, _)| waits_for(name)).map(|(_, ready)| ready.clone()).collect();
        add(Unit {
            kind: UnitKind::Program,
            specification,
            restart: program.restart,
            readiness: pod.ports.first().map_or(Readiness::Running, |port| Readiness::Listening(port.target)),
            after,
            early: None,
            prepare: None,
        });
    }
    (handles, lives)
}

/// What is needed to prepare a proxy, and whether its pod's traffic is captured.
struct ProxyPreparation {
    components: Components,
    launcher: Rc<Launcher>,
    pod: Pod,
    captured: Cell<bool>,
}

impl ProxyPreparation {
    async fn capture(&self) -> Result<()> {
        if !self.captured.replace(true)
            && let Err(error) = capture(&self.components, &self.launcher, &self.pod).await
        {
            self.captured.set(false);
            return Err(error);
        }
        Ok(())
    }

    async fn complete(&self) -> Result<()> {
        self.capture().await?;
        self.components.write_credentials(&self.pod).await
    }
}

/// Packet rules, which need nobody else, and then credentials, which the control plane's authority issues.
fn prepare_proxy(components: &Components, launcher: &Rc<Launcher>, pod: &Pod) -> (Prepare, Prepare) {
    let preparation = Rc::new(ProxyPreparation {
        components: components.clone(),
        launcher: Rc::clone(launcher),
        pod: pod.clone(),
        captured: Cell::new(false),
    });
    let shared = Rc::clone(&preparation);
    let early: Prepare = Box::new(move || {
        let shared = Rc::clone(&shared);
        Box::pin(async move { shared.capture().await })
    });
    let prepare: Prepare = Box::new(move || {
        let preparation = Rc::clone(&preparation);
        Box::pin(async move { preparation.complete().await })
    });
    (early, prepare)
}

/// Answers commands.
async fn serve(mesh: Rc<Mesh>, listener: UnixListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut stream, _)) = accepted else { continue };
                let mesh = Rc::clone(&mesh);
                connections.spawn_local(async move {
                    let reply = match control::read(&mut stream).await {
                        Ok(command) => carry_out(&mesh, command).await,
                        Err(error) => Reply::Failed(format!("{error:#}")),
                    };
                    // The client may have closed the connection.
                    let _ = control::answer(&mut stream, &reply).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry_out(mesh: &Rc<Mesh>, command: Command) -> Reply {
    let done = match command {
        Command::Snapshot => return Reply::Snapshot(Box::new(mesh.snapshot())),
        Command::Kill { name } => mesh.order(&name, Order::Kill).await,
        Command::Restart { name } => mesh.order(&name, Order::Restart).await,
        Command::Tour { step } => tour::take_named(mesh, &step).await,
        Command::EndTour => tour::take_back(mesh).await.map(|()| "taken back".to_owned()),
        Command::Stop => {
            mesh.stop.notify_one();
            Ok("stopping".to_owned())
        }
    };
    done.map_or_else(|error| Reply::Failed(format!("{error:#}")), Reply::Done)
}

/// Renews tokens, and keeps logs short.
async fn maintain(mesh: Rc<Mesh>) {
    let mut logs = interval(LOGS_CHECKED_EVERY);
    let mut tokens = interval(TOKEN_RENEWAL);
    tokens.reset();
    loop {
        tokio::select! {
            // A log that cannot be cut is no reason to end.
            _ = logs.tick() => {
                let _ = bound_logs(&mesh.components.state);
            }
            _ = tokens.tick() => {
                for pod in mesh.components.plan.pods.iter().filter(|pod| pod.proxy.is_some()) {
                    // The next try is long before the token expires.
                    let _ = mesh.components.write_credentials(pod).await;
                }
            }
        }
    }
}

/// What is shown while the mesh runs.
enum Showing {
    Lines,
    Tour,
    View(oneshot::Receiver<Result<()>>),
}

impl Showing {
    /// Begins to show. The view is a blocking program, so it has a thread of its own.
    fn begin(front: Front) -> Result<(Self, Option<JoinHandle<()>>)> {
        let view = match front {
            Front::Lines => return Ok((Self::Lines, None)),
            Front::Tour => return Ok((Self::Tour, None)),
            Front::View(view) => view,
        };
        let (done, ended) = oneshot::channel();
        let body = move || {
            // The mesh may have ended first.
            let _ = done.send(view());
        };
        let thread = std::thread::Builder::new().name("view".to_owned()).spawn(body)?;
        Ok((Self::View(ended), Some(thread)))
    }

    async fn run(self, mesh: &Rc<Mesh>, patience: Duration, tell: &mut dyn FnMut(&str)) -> Result<()> {
        match self {
            Self::Lines => lines::tell_changes(mesh, patience, tell).await,
            Self::Tour => {
                lines::wait_all_ready(mesh, patience, tell).await?;
                tour::take_all(mesh, tell).await
            }
            Self::View(ended) => ended.await.context("the view failed")?,
        }
    }
}
