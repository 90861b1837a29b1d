//! What a controller is: a function from the world to the writes it still needs.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::{Object, ObjectKey};
use canopus_engine::{Engine, QueryError, Snapshot};
use jiff::Timestamp;
use serde_json::Value;

/// Says what of a cluster should be otherwise.
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs and metrics, such as `gateway-status`.
    fn name(&self) -> &'static str;

    /// The writes that make the cluster as it should be.
    ///
    /// The same world must give the same writes: the applier tells by equality whether it has just made one.
    fn plan(&self, world: &Snapshot, now: Timestamp) -> Result<Plan, QueryError>;

    /// Has the engine keep what the plan is made from up to date, for as long as the result lives. Planning then costs what
    /// has changed; without, it costs the whole world whenever anything changes.
    fn watch(&self, _engine: &Engine) -> Option<Box<dyn Any + Send>> {
        None
    }
}

/// The writes that a world still needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// At most one write per object.
    pub writes: Vec<Arc<Write>>,
    /// When to plan again though nothing changes, for controllers whose desire depends on the time.
    pub again_in: Option<Duration>,
}

impl From<Vec<Arc<Write>>> for Plan {
    fn from(writes: Vec<Arc<Write>>) -> Self {
        Self { writes, again_in: None }
    }
}

/// One write to one object.
#[derive(Clone, PartialEq)]
pub struct Write {
    /// The object.
    pub target: ObjectKey,
    /// What is done to it.
    pub change: Change,
}

/// What is done to an object.
#[derive(Clone, PartialEq)]
pub enum Change {
    /// These fields are applied on the server's side; the object is created if it is not there. Other fields stay.
    Apply {
        /// The object with these fields alone, with `apiVersion`, `kind` and `metadata.name`.
        fields: Value,
        /// Whether other managers' fields are taken over.
        ownership: Ownership,
    },
    /// The status is replaced, provided that the object is still the one the status was computed from.
    ///
    /// Statuses are replaced and not applied because lists in them are shared with other controllers: the new status
    /// contains their entries as they were seen.
    Status {
        /// The object that the status was computed from.
        seen: Arc<Object>,
        /// The whole status. Conditions without a time of transition get the time of the write.
        status: Value,
    },
}

/// What happens where another field manager owns a field that is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The field is taken over.
    Take,
    /// The field is left alone if somebody declares it: by server-side apply, or in a manifest given to `kubectl apply`.
    /// What was merely set, such as by istiod, is taken over.
    YieldToDeclared,
}

/// Fields may be secret, so only the target is shown.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.change {
            Change::Apply { .. } => "apply",
            Change::Status { .. } => "status of",
        };
        write!(f, "{verb} {}", self.target)
    }
}
