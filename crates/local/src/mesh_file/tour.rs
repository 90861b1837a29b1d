//! Steps of a guided tour.

use std::collections::BTreeMap;
use std::path::PathBuf;

use canopus_base::duration::Duration;
use serde::Deserialize;

/// A step of the tour: a change of the mesh, and checks of what follows.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// What the step shows, in a sentence.
    pub title: String,
    /// File of objects that is applied for the time of the step, relative to the mesh file.
    #[serde(default)]
    pub apply: Option<PathBuf>,
    /// Process that is killed: a workload, or `canopusd`.
    #[serde(default)]
    pub kill: Option<String>,
    /// Request that is sent all the while; no answer may be a failure.
    #[serde(default)]
    pub under_load: Option<Request>,
    /// What must hold within a time.
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

/// A request through a gateway.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// URL, with a port that a gateway publishes.
    pub get: String,
    /// Header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// What must come to hold.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Expectation {
    /// Requests are answered with a status.
    #[serde(rename_all = "camelCase")]
    Status {
        /// The request.
        request: Request,
        /// The status of every answer.
        status: u16,
    },
    /// Answers share a header's values in proportions.
    Shares(Percentages),
    /// Answers take at least so long.
    Slow {
        /// The request.
        request: Request,
        /// The least time.
        least: Duration,
    },
    /// A workload refuses a connection that is not mutual TLS.
    RefusesPlaintext {
        /// The workload.
        workload: String,
    },
    /// An object is held in quarantine.
    Quarantined {
        /// `Kind/namespace/name`.
        object: String,
    },
    /// Every proxy has got another certificate.
    CertificatesRenewed {
        /// How long that may take.
        within: Duration,
    },
    /// The control plane answers again.
    ControlPlaneReady {
        /// How long that may take.
        within: Duration,
    },
}

/// How answers are distributed over the values of a header.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Percentages {
    /// The request.
    pub request: Request,
    /// The header.
    pub header: String,
    /// Per cent of the answers for each value; values that are not named have none.
    pub percent: BTreeMap<String, f64>,
    /// By how many per cent a share may differ.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
    /// How many requests are sent.
    #[serde(default = "requests")]
    pub requests: usize,
}

const fn tolerance() -> f64 {
    5.0
}

const fn requests() -> usize {
    400
}
