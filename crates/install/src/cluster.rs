//! Bringing a cluster to what was generated, and back.
//!
//! ```text
//!   Generated ──► Installer::plan ──► Plan (create, change, keep, prune) ──► Installer::carry_out ──► ready
//!                   (dry runs)          shown to the user                     apply, wait, prune
//! ```
//!
//! Objects are applied on the server's side under one field manager, component by component: what others need comes first, and
//! the next component is not begun before the last one is ready. Every step can be repeated, so an installation that stopped
//! half-way is resumed by the same command.
//!
//! [`Installer::reconcile`] does the same for an IstioOperator of the cluster, again and again.
//!
//! **Invariant.** Nothing is deleted that does not carry the owner's labels.

mod apply;
mod history;
mod object;
mod owner;
mod plan;
mod precheck;
mod ready;
mod reconcile;
mod remove;
mod tag;

use std::collections::BTreeMap;

use canopus_sources::kubernetes::{ApiError, Cluster, ResourceType};

pub use self::apply::Progress;
pub use self::history::Installation;
pub use self::object::ObjectId;
pub use self::owner::Owner;
pub use self::plan::{Action, Plan, Step};
pub use self::precheck::Finding;
pub use self::reconcile::{PAUSE, State};
pub use self::remove::Removal;
pub use self::tag::{Tag, TagShape};

/// Who owns what is applied. Parity: the installer of Istio calls itself so, and one can take over from the other.
const FIELD_MANAGER: &str = "istio-operator";

/// Why a cluster could not be brought to what was generated.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The API server cannot be asked.
    #[error("cannot ask the API server about {what}: {error}")]
    Ask {
        /// What was asked.
        what: String,
        /// What it said.
        error: ApiError,
    },
    /// The API server refuses an object for lack of rights.
    #[error(
        "{object}: not allowed to {verb} it: {error}; grant the right, or run this as an administrator of the cluster. What was applied before stays; the same command goes on from there"
    )]
    Forbidden {
        /// The object.
        object: ObjectId,
        /// What was tried.
        verb: &'static str,
        /// What the API server said.
        error: ApiError,
    },
    /// The API server refuses an object.
    #[error(
        "{object}: cannot {verb} it: {error}. What was applied before stays; the same command goes on from there"
    )]
    Refused {
        /// The object.
        object: ObjectId,
        /// What was tried.
        verb: &'static str,
        /// What the API server said.
        error: ApiError,
    },
    /// The API server does not know a kind.
    #[error(
        "{object}: the API server has no {api_version} {kind}; is Kubernetes too old, or a definition missing?",
        api_version = object.api_version, kind = object.kind
    )]
    UnknownKind {
        /// The object.
        object: ObjectId,
    },
    /// Some objects do not become ready in time.
    #[error("not ready after {seconds} s:\n{}", .pending.join("\n"))]
    NotReady {
        /// How long it was waited for.
        seconds: u64,
        /// What is not ready, each with its reason.
        pending: Vec<String>,
    },
    /// A request makes no sense in this cluster.
    #[error("{0}")]
    Conflict(String),
}

/// Brings a cluster to what was generated.
pub struct Installer {
    cluster: Cluster,
    /// Types by version, as far as they were asked for.
    types: BTreeMap<String, Vec<ResourceType>>,
}

impl Installer {
    /// Works on a cluster.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, types: BTreeMap::new() }
    }

    /// The type of an object, if the cluster has it.
    async fn resource_type(&mut self, object: &ObjectId) -> Result<Option<ResourceType>, ClusterError> {
        if !self.types.contains_key(&object.api_version) {
            let found = self.cluster.resource_types(&object.api_version).await;
            let found = found.map_err(|error| asking(&object.api_version, error))?;
            self.types.insert(object.api_version.clone(), found);
        }
        let types = self.types.get(&object.api_version).map(Vec::as_slice).unwrap_or_default();
        Ok(types.iter().find(|found| found.kind == object.kind).cloned())
    }

    /// The path of an object, if the cluster has its type.
    async fn path(&mut self, object: &ObjectId) -> Result<Option<String>, ClusterError> {
        let found = self.resource_type(object).await?;
        Ok(found.map(|found| found.path(&object.namespace, &object.name)))
    }

    /// An object of the cluster.
    async fn read(&mut self, object: &ObjectId) -> Result<Option<serde_json::Value>, ClusterError> {
        let Some(path) = self.path(object).await? else { return Ok(None) };
        self.cluster.read_at(&path).await.map_err(|error| asking(object, error))
    }
}

fn asking(what: impl ToString, error: ApiError) -> ClusterError {
    ClusterError::Ask { what: what.to_string(), error }
}

/// Why the API server did not do something with an object.
fn refusal(object: &ObjectId, verb: &'static str, error: ApiError) -> ClusterError {
    let object = object.clone();
    if error.is_forbidden() {
        ClusterError::Forbidden { object, verb, error }
    } else {
        ClusterError::Refused { object, verb, error }
    }
}
