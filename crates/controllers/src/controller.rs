//! What a controller is: a function from the world to the writes it still needs.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::{Meta, Object, ObjectKey};
use canopus_base::labels::Labels;
use canopus_engine::{Engine, Input, Query, QueryError, Snapshot};
use jiff::Timestamp;
use serde_json::Value;

/// Says what of a cluster should be otherwise.
pub trait Controller: Send + Sync + 'static {
    /// Name of the controller in logs and metrics, such as `gateway-status`.
    fn name(&self) -> &'static str;

    /// The writes that make the cluster as it should be.
    ///
    /// The same world must give the same writes: the applier tells by equality whether it has just made one.
    fn plan(&self, world: &Snapshot, now: Timestamp) -> Result<Plan, QueryError>;

    /// What the plan follows from, if that is quick to tell: no other plan is made before it changes, except where
    /// [`Plan::again_in`] asks for one. Results in it have to be among those that [`watch`](Self::watch) keeps up to date.
    fn basis(&self, _world: &Snapshot) -> Option<Basis> {
        None
    }

    /// Plans are at least this far apart.
    fn pace(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// Keeps what the plan is made from up to date in the engine, for as long as the result lives. Planning then costs what
    /// has changed; without, it costs the whole world whenever anything changes.
    fn watch(&self, _engine: &Engine) -> Option<Box<dyn Any + Send>> {
        None
    }
}

/// Results and inputs of the engine, by identity. The engine keeps a value that stays equal, so that comparing takes no look at
/// what is in it.
#[derive(Clone, Default)]
pub struct Basis(Vec<Option<Arc<dyn Any + Send + Sync>>>);

impl Basis {
    /// One result; `None` if there is none.
    pub fn result<Q: Query>(world: &Snapshot, key: &Q::Key) -> Option<Self> {
        let value: Arc<dyn Any + Send + Sync> = world.get::<Q>(key).ok()?;
        Some(Self(vec![Some(value)]))
    }

    /// The same and an input, which may be absent.
    #[must_use]
    pub fn and_input<I: Input>(mut self, world: &Snapshot, key: &I::Key) -> Self {
        self.0.push(world.read::<I>(key).map(|value| value as Arc<dyn Any + Send + Sync>));
        self
    }
}

impl PartialEq for Basis {
    fn eq(&self, other: &Self) -> bool {
        let address = |value: &Option<Arc<dyn Any + Send + Sync>>| {
            value.as_ref().map(|value| Arc::as_ptr(value).cast::<()>())
        };
        self.0.iter().map(address).eq(other.0.iter().map(address))
    }
}

/// The writes that a world still needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// At most one write per object.
    pub writes: Vec<Arc<Write>>,
    /// When to plan again though nothing changes, for controllers whose desire depends on the time.
    pub again_in: Option<Duration>,
    /// What keeps the writes for an object from being known, for the log.
    pub faults: BTreeMap<ObjectKey, String>,
}

impl From<Vec<Arc<Write>>> for Plan {
    fn from(writes: Vec<Arc<Write>>) -> Self {
        Self { writes, ..Self::default() }
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
    /// These fields of an object that is there are applied on the server's side in the name of a manager. What it applied before and
    /// does not any more is removed. Conditions without a time of transition get the time of the write.
    ApplyPart {
        /// The object with these fields alone, with `apiVersion` and `kind`.
        fields: Value,
        /// Field manager that owns the fields.
        manager: Arc<str>,
        /// The subresource they belong to, such as `status`; empty for the object itself.
        subresource: &'static str,
    },
    /// An object that exists for another one is made to have these fields, unless it is there and not marked as such.
    ///
    /// Only the server knows whether an object has all fields that were applied, so a plan lists this write as long as the
    /// object is desired. The applier makes it when the fields are others than before, and whenever the object is not
    /// as the server gave it back then.
    Manage {
        /// The whole object, as far as it is of concern.
        fields: Value,
        /// Field manager that owns the fields.
        manager: Arc<str>,
        /// The label that marks the object. One without it is somebody else's.
        mark: &'static str,
        /// The object as the watch shows it.
        seen: Option<Observed>,
    },
    /// The object is created, if it is not there.
    Create {
        /// The whole object.
        object: Value,
    },
    /// Operations are done to the object.
    Patch {
        /// A JSON patch. It tests that what it changes is still what it was computed from.
        operations: Value,
    },
    /// The object is deleted, provided that it is still at this resource version.
    Delete {
        /// The resource version that was seen.
        version: Box<str>,
    },
}

/// What tells one state of an object from another, without its status.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    uid: Box<str>,
    /// The generation; the resource version where a kind has none.
    state: Box<str>,
    labels: Labels,
    annotations: Labels,
}

impl Observed {
    /// The state of an object with this metadata.
    pub fn new(meta: &Meta) -> Self {
        let state = match meta.generation {
            0 => meta.resource_version.clone(),
            generation => generation.to_string().into(),
        };
        Self {
            uid: meta.uid.clone(),
            state,
            labels: meta.labels.clone(),
            annotations: meta.annotations.clone(),
        }
    }
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

impl Write {
    /// Whether this is the same write as another, but for what was seen when it was planned.
    pub(crate) fn has_same_desire(&self, other: &Self) -> bool {
        match (&self.change, &other.change) {
            (
                Change::Manage { fields, manager, .. },
                Change::Manage { fields: other_fields, manager: other_manager, .. },
            ) => self.target == other.target && manager == other_manager && fields == other_fields,
            _ => self == other,
        }
    }

    /// The label that marks a managed object.
    pub(crate) fn mark(&self) -> Option<&'static str> {
        match self.change {
            Change::Manage { mark, .. } => Some(mark),
            _ => None,
        }
    }

    /// The state that a managed object was seen in.
    pub(crate) fn seen(&self) -> Option<&Observed> {
        match &self.change {
            Change::Manage { seen, .. } => seen.as_ref(),
            _ => None,
        }
    }
}

/// Fields may be secret, so only the target is shown.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.change {
            Change::Apply { .. } => "apply",
            Change::Status { .. } => "status of",
            Change::ApplyPart { .. } => "apply part of",
            Change::Manage { .. } => "manage",
            Change::Create { .. } => "create",
            Change::Patch { .. } => "patch",
            Change::Delete { .. } => "delete",
        };
        write!(f, "{verb} {}", self.target)
    }
}
