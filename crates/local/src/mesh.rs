//! A mesh that runs: its processes, what is known of them, and what they can be told.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tokio::sync::{Notify, watch};

use crate::components::Components;
use crate::forward::Opened;
use crate::log_tail::LogTail;
use crate::mesh_file::MeshFile;
use crate::metrics::{Counters, Traffic};
use crate::node::Node;
use crate::observe::{ControlPlane, Observer};
use crate::service_manager::ServiceManager;
use crate::snapshot::{Snapshot, TourStatus, UnitStatus};
use crate::unit::{Order, UnitHandle};

/// Metrics are read this often while somebody looks.
const OBSERVED_EVERY: Duration = Duration::from_secs(1);

/// A viewer counts as present if it asked within this time.
const WATCHED: Duration = Duration::from_secs(10);

/// Logs are read this often, so that lines of several processes are in the order in which they were written.
const LOGS_READ_EVERY: Duration = Duration::from_millis(200);

/// A mesh that runs.
pub(crate) struct Mesh {
    pub(crate) components: Components,
    pub(crate) directory: PathBuf,
    pub(crate) file: MeshFile,
    pub(crate) node: Rc<Node>,
    pub(crate) observer: Observer,
    pub(crate) units: BTreeMap<String, UnitHandle>,
    pub(crate) tour: RefCell<TourStatus>,
    pub(crate) stop: Notify,
    pub(crate) started: Instant,
    pub(crate) forwards: Vec<watch::Receiver<Opened>>,
    pub(crate) observed: RefCell<(Traffic, ControlPlane)>,
    pub(crate) log: RefCell<LogTail>,
    pub(crate) service_manager: Option<ServiceManager>,
    /// When somebody last wanted to know how the mesh is.
    pub(crate) asked: Cell<Instant>,
}

impl Mesh {
    /// Tells one or all processes of a workload something.
    pub(crate) async fn order(&self, name: &str, order: Order) -> Result<String> {
        let is_meant = |unit: &str| {
            let replica = unit.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            unit == name || replica.is_some_and(|number| self.is_replica(name, unit) && !number.contains('/'))
        };
        let mut meant: Vec<&String> = self.units.keys().filter(|unit| is_meant(unit)).collect();
        // A gateway has no program: its proxy is meant.
        if meant.is_empty() {
            meant = self.units.keys().filter(|unit| **unit == format!("{name}/proxy")).collect();
        }
        if meant.is_empty() {
            let known: Vec<&str> = self.units.keys().map(String::as_str).collect();
            bail!("{name:?} is not a process of the mesh; there are: {}", known.join(", "));
        }
        let refusals: Vec<String> =
            meant.iter().filter_map(|unit| self.units[*unit].status.borrow().refusal(order)).collect();
        meant.retain(|unit| self.units[*unit].status.borrow().refusal(order).is_none());
        if meant.is_empty() {
            bail!("{}", refusals.join("; "));
        }
        for unit in &meant {
            self.units[*unit].orders.send(order).await.map_err(|_| anyhow!("{unit} has ended"))?;
        }
        let did = match order {
            Order::Kill => "killed",
            Order::Restart => "restarting",
        };
        let names: Vec<&str> = meant.iter().map(|name| name.as_str()).collect();
        Ok(format!("{did}: {}", names.join(", ")))
    }

    fn is_replica(&self, workload: &str, unit: &str) -> bool {
        self.components.plan.pods.iter().any(|pod| pod.workload == workload && pod.name == unit)
    }

    /// Says to who started the mesh that it is ready, or what it lacks.
    pub(crate) fn tell_service_manager(&self, status: &str) {
        if let Some(manager) = &self.service_manager {
            manager.tell_ready(status);
        }
    }

    /// How processes are.
    pub(crate) fn statuses(&self) -> Vec<UnitStatus> {
        self.units.values().map(|unit| unit.status.borrow().clone()).collect()
    }

    /// Ports that cannot be opened.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problems = self.forwards.iter().filter_map(|forward| match &*forward.borrow() {
            Opened::No(problem) => Some(problem.clone()),
            Opened::Yes | Opened::Pending => None,
        });
        problems.collect()
    }

    /// How the mesh is. Metrics are as old as the last observation; asking has them observed for a while.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.asked.set(Instant::now());
        let (traffic, control_plane) = self.observed.borrow().clone();
        Snapshot {
            mesh: self.components.plan.mesh.clone(),
            mode: self.components.plan.mode,
            uptime: self.started.elapsed().as_secs_f64(),
            units: self.statuses(),
            problems: self.problems(),
            published: self.published(),
            traffic: self.observer.with_idle(traffic),
            pushes: control_plane.pushes,
            quarantined: control_plane.quarantined,
            control_plane: control_plane.answers,
            log: self.log.borrow().lines(),
            tour: self.tour.borrow().clone(),
        }
    }

    /// Addresses at which gateways answer on this machine.
    pub(crate) fn published(&self) -> Vec<String> {
        let ports = self.file.gateways.iter().flat_map(|gateway| &gateway.ports);
        ports.map(|port| format!("http://localhost:{}", port.host)).collect()
    }

    /// Reads what processes write, as they write it.
    pub(crate) async fn follow_logs(&self) {
        let mut ticks = tokio::time::interval(LOGS_READ_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.log.borrow_mut().advance(&self.components.state, self.units.keys());
        }
    }

    /// Looks at metrics and the control plane for as long as somebody wants to know.
    pub(crate) async fn observe(&self) {
        let mut counters = Counters::default();
        let mut ticks = tokio::time::interval(OBSERVED_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.asked.get().elapsed() > WATCHED {
                continue;
            }
            let traffic = self.observer.traffic(&mut counters).await.unwrap_or_default();
            let control_plane = self.observer.control_plane().await;
            *self.observed.borrow_mut() = (traffic, control_plane);
        }
    }

    /// The directory of a path in the mesh file.
    pub(crate) fn path(&self, relative: &Path) -> PathBuf {
        self.directory.join(relative)
    }
}
