//! A unit: one process of the mesh, started when others are ready, watched, started again.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::http;
use crate::mesh_file::Restart;
use crate::node::Node;
use crate::process::{Launcher, Running, Specification, last_lines};
use crate::snapshot::{UnitKind, UnitState, UnitStatus};
use crate::sockets;

/// Pause before a process is first started again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A process that ran this long starts over with the first pause.
const GOOD_RUN: Duration = Duration::from_secs(30);

/// How often a process is asked whether it is ready.
const PROBE: Duration = Duration::from_millis(50);

/// A process that nothing can be asked of has to live this long. A program that is not there has ended by then.
const PROOF: Duration = Duration::from_millis(100);

/// How long a process may take to end when it is restarted.
const GRACE: Duration = Duration::from_secs(5);

/// When a process counts as ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Readiness {
    /// When it has run for a moment.
    Running,
    /// When it listens on a port.
    Listening(u16),
    /// When a path answers with success in the mesh's network.
    Http(SocketAddr, &'static str),
}

/// What a process can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Die, as in a crash.
    Kill,
    /// End and start again.
    Restart,
}

/// Work for a process that is not the process's own.
pub(crate) type Prepare = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<()>>>>>;

/// A process of the mesh.
pub(crate) struct Unit {
    pub(crate) kind: UnitKind,
    pub(crate) specification: Specification,
    pub(crate) restart: Restart,
    pub(crate) readiness: Readiness,
    /// Processes that have to be ready once before this one is started.
    pub(crate) after: Vec<watch::Receiver<UnitStatus>>,
    /// Done while others are waited for; what fails is tried again by `prepare`.
    pub(crate) early: Option<Prepare>,
    /// Done before each start.
    pub(crate) prepare: Option<Prepare>,
}

/// How others see a process.
#[derive(Clone, Debug)]
pub(crate) struct UnitHandle {
    pub(crate) status: watch::Receiver<UnitStatus>,
    pub(crate) orders: mpsc::Sender<Order>,
}

impl UnitStatus {
    /// Why a process cannot be told this now; nothing if it can.
    pub(crate) fn refusal(&self, order: Order) -> Option<String> {
        let name = &self.name;
        match (order, self.state) {
            (_, UnitState::Waiting) => {
                Some(format!("{name} has not been started yet: it waits for others to be ready"))
            }
            (Order::Kill, _) if self.pid.is_none() => {
                Some(format!("{name} does not run; `canopus restart {name}` starts it"))
            }
            _ => None,
        }
    }
}

impl Unit {
    /// The life of the process, and a handle for it.
    pub(crate) fn into_life(
        self,
        launcher: Rc<Launcher>,
        node: Rc<Node>,
    ) -> (UnitHandle, impl Future<Output = ()>) {
        let initial = UnitStatus {
            name: self.specification.name.clone(),
            kind: self.kind,
            state: UnitState::Waiting,
            pid: None,
            restarts: 0,
            message: String::new(),
        };
        let (status, seen) = watch::channel(initial);
        let (orders, received) = mpsc::channel(8);
        let life = Life { unit: self, launcher, node, status, orders: received };
        (UnitHandle { status: seen, orders }, life.run())
    }
}

struct Life {
    unit: Unit,
    launcher: Rc<Launcher>,
    node: Rc<Node>,
    status: watch::Sender<UnitStatus>,
    orders: mpsc::Receiver<Order>,
}

/// How a process ended.
enum Ended {
    /// By itself or killed, with an explanation; nothing if all is well.
    Itself(Option<String>),
    /// Because it was told to start again.
    Told,
}

impl Life {
    async fn run(mut self) {
        if let Some(early) = &self.unit.early {
            let _ = early().await;
        }
        for other in std::mem::take(&mut self.unit.after) {
            wait_ready(other).await;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let started = Instant::now();
            let ended =
                self.live_once().await.unwrap_or_else(|error| Ended::Itself(Some(format!("{error:#}"))));
            if started.elapsed() > GOOD_RUN {
                pause = FIRST_PAUSE;
            }
            let message = match ended {
                Ended::Told => {
                    self.status.send_modify(|status| status.restarts += 1);
                    continue;
                }
                Ended::Itself(message) => message,
            };
            let again = match self.unit.restart {
                Restart::Always => true,
                Restart::OnFailure => message.is_some(),
                Restart::Never => false,
            };
            let state = if again { UnitState::Crashed } else { UnitState::Stopped };
            self.show(state, None, &message.unwrap_or_default());
            if again {
                tokio::select! {
                    () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                    true = self.told_to_start() => {}
                }
            } else if !self.told_to_start().await {
                return;
            }
            self.status.send_modify(|status| status.restarts += 1);
        }
    }

    /// Waits until a process that does not run is told to start; nothing else can be done to it. False if nobody can tell it.
    async fn told_to_start(&mut self) -> bool {
        while let Some(order) = self.orders.recv().await {
            if order == Order::Restart {
                return true;
            }
        }
        false
    }

    async fn live_once(&mut self) -> Result<Ended> {
        self.show(UnitState::Starting, None, "");
        if let Some(prepare) = &self.unit.prepare {
            prepare().await?;
        }
        // Whatever it was told before concerned the process before, and a start was asked for at most.
        while self.orders.try_recv().is_ok() {}
        let mut running = self.launcher.start(&self.unit.specification)?;
        self.show(UnitState::Starting, Some(running.id.pid), "");
        let ready = is_ready(self.unit.readiness, running.id.pid, Rc::clone(&self.node));
        tokio::pin!(ready);
        let mut is_ready = false;
        loop {
            tokio::select! {
                status = running.wait() => return Ok(Ended::Itself(self.explain(status?))),
                () = &mut ready, if !is_ready => {
                    is_ready = true;
                    self.show(UnitState::Ready, Some(running.id.pid), "");
                }
                Some(order) = self.orders.recv() => match order {
                    Order::Kill => running.signal(Signal::SIGKILL),
                    Order::Restart => {
                        end(&mut running).await;
                        return Ok(Ended::Told);
                    }
                }
            }
        }
    }

    /// What the end of a process means, with the last line it wrote.
    fn explain(&self, status: std::process::ExitStatus) -> Option<String> {
        if status.success() {
            return None;
        }
        let log = self.launcher.state.log(&self.unit.specification.name);
        let last =
            last_lines(&log, 20).into_iter().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Some(match (status.code(), last.trim()) {
            // The launcher's own words say everything.
            (Some(127), words) if !words.is_empty() => words.to_owned(),
            (_, "") => format!("ended with {status} and wrote nothing"),
            (_, words) => format!("ended with {status}; its last words: {words}"),
        })
    }

    fn show(&self, state: UnitState, pid: Option<i32>, message: &str) {
        self.status.send_modify(|status| {
            status.state = state;
            status.pid = pid;
            message.clone_into(&mut status.message);
        });
    }
}

/// Asks a process to end, and kills it if it takes too long.
async fn end(running: &mut Running) {
    running.signal(Signal::SIGTERM);
    if timeout(GRACE, running.wait()).await.is_err() {
        running.signal(Signal::SIGKILL);
        // Waiting can fail only if the process was waited for already.
        let _ = running.wait().await;
    }
}

/// Waits until a process is ready or has done its work.
pub(crate) async fn wait_ready(mut status: watch::Receiver<UnitStatus>) {
    // The process is gone if nobody tells of it any more.
    let _ = status.wait_for(UnitStatus::is_settled).await;
}

async fn is_ready(readiness: Readiness, pid: i32, node: Rc<Node>) {
    loop {
        let ready = match readiness {
            Readiness::Running => return sleep(PROOF).await,
            Readiness::Listening(port) => sockets::is_listening(pid, port),
            Readiness::Http(address, path) => {
                let asked = node.run(async move { http::get(address, path).await?.text() }).await;
                asked.is_ok_and(|answer| answer.is_ok())
            }
        };
        if ready {
            return;
        }
        sleep(PROBE).await;
    }
}
