//! What a mesh looks like at a moment: what the live view shows and commands print.

use serde::{Deserialize, Serialize};

use crate::metrics::Traffic;
use crate::plan::Mode;

/// A mesh at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Name of the mesh.
    pub mesh: String,
    /// How pods are kept apart.
    pub mode: Mode,
    /// Since when it runs, in seconds.
    pub uptime: f64,
    /// State of each process.
    pub units: Vec<UnitStatus>,
    /// Problems that are not of one process, such as a port in use.
    pub problems: Vec<String>,
    /// Addresses at which gateways answer on this machine.
    pub published: Vec<String>,
    /// Traffic of the last seconds.
    pub traffic: Traffic,
    /// The latest pushes of the control plane, the newest first.
    pub pushes: Vec<Push>,
    /// Objects that proxies rejected and the control plane holds back.
    pub quarantined: Vec<HeldObject>,
    /// Whether the control plane answers.
    pub control_plane: bool,
    /// Lines that processes wrote last.
    pub log: Vec<LogLine>,
    /// The tour.
    pub tour: TourStatus,
}

/// A process of the mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitStatus {
    /// Name: that of a pod, `POD/proxy`, or `canopusd`.
    pub name: String,
    /// What it is.
    pub kind: UnitKind,
    /// How it is.
    pub state: UnitState,
    /// Process ID while the unit runs.
    pub pid: Option<i32>,
    /// How often it was started again.
    pub restarts: u32,
    /// Why it is not ready.
    pub message: String,
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnitKind {
    /// The control plane.
    ControlPlane,
    /// An agent with its Envoy.
    Proxy,
    /// A user's program.
    Program,
}

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnitState {
    /// The unit waits for others.
    Waiting,
    /// The process was started and is not ready.
    Starting,
    /// The process is ready.
    Ready,
    /// The process ended, and is started again after a pause.
    Crashed,
    /// The process ended and is not started again.
    Stopped,
}

/// A push of the control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Push {
    /// Number of the change.
    pub revision: u64,
    /// What changed.
    pub objects: Vec<String>,
    /// Why, if no object did.
    pub reasons: Vec<String>,
    /// Proxies that were sent something.
    pub recipients: usize,
    /// Proxies that refused it.
    pub rejected: usize,
    /// From the change to the last acknowledgement, in milliseconds.
    pub acknowledged: Option<f64>,
}

/// An object that is held back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldObject {
    /// `Kind/namespace/name`.
    pub object: String,
    /// The proxy's words.
    pub reason: String,
}

/// A line of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The process.
    pub process: String,
    /// What it wrote.
    pub text: String,
}

/// How the tour is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TourStatus {
    /// Steps of the tour, in order.
    pub steps: Vec<StepStatus>,
    /// What the current or last step told.
    pub lines: Vec<String>,
    /// What the current step did, as a user would type it.
    pub command: String,
    /// The objects that it has applied.
    pub applied: String,
}

/// How a step is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How it went.
    pub state: StepState,
}

/// How a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepState {
    /// The step was not taken yet.
    #[default]
    Open,
    /// The step is under way.
    Running,
    /// All checks of the step passed.
    Passed,
    /// A check of the step failed.
    Failed,
}

impl Snapshot {
    /// Whether all processes that should run do their work.
    pub fn is_ready(&self) -> bool {
        self.problems.is_empty() && self.units.iter().all(UnitStatus::is_settled)
    }
}

impl UnitStatus {
    /// Whether the process does its work, or has done it.
    pub fn is_settled(&self) -> bool {
        self.state == UnitState::Ready || (self.state == UnitState::Stopped && self.message.is_empty())
    }
}
