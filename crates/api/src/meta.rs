//! What every object says about itself.

use canopus_base::labels::Labels;
use canopus_base::tree::{Map, Node, Value};
use jiff::Timestamp;

use crate::decode::{Options, Problem, part};
use crate::macros::object;
use crate::value::time;

/// The annotation in which `kubectl apply` keeps a copy of the object it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

object! {
    /// An object's metadata: what of it is ever read.
    Meta {
        /// The name, unique in the namespace.
        name: Box<str>,
        /// The prefix of a name that the API server is to choose.
        generate_name: Option<Box<str>>,
        /// The namespace; empty for objects of the cluster.
        namespace: Box<str>,
        /// The labels.
        labels: Labels,
        /// The annotations.
        annotations: Labels,
        /// When the object was created.
        #[serde(with = "time")]
        creation_timestamp: Option<Timestamp>,
        /// When the object will be gone, once it was asked to go.
        #[serde(with = "time")]
        deletion_timestamp: Option<Timestamp>,
        /// Unique over all objects that ever were.
        uid: Box<str>,
        /// An opaque mark of this version of the object.
        resource_version: Box<str>,
        /// Counts the changes of the spec.
        generation: i64,
        /// The objects this one belongs to.
        owner_references: Box<[OwnerReference]>,
    }

    /// An object that another one belongs to.
    OwnerReference {
        /// Group and version of the owner.
        api_version: Box<str>,
        /// Kind of the owner.
        kind: Box<str>,
        /// Name of the owner.
        name: Box<str>,
        /// UID of the owner.
        uid: Box<str>,
        /// Whether it manages the object; at most one owner does.
        controller: bool,
        /// Whether it may not go before the object has.
        block_owner_deletion: bool,
    }
}

/// What of an object somebody reads besides its spec.
#[derive(Clone, Copy, Debug)]
pub struct Relevance {
    /// Whether an annotation is read.
    pub annotation: fn(&str) -> bool,
    /// Whether a label is read.
    pub label: fn(&str) -> bool,
    /// Whether the resource version is read.
    pub version: bool,
    /// Whether the status is read.
    pub status: bool,
}

impl Meta {
    /// Metadata with a name and a namespace (empty for objects of the cluster) and nothing else.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { name: name.into(), namespace: namespace.into(), ..Self::default() }
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key)
    }

    /// The owner that manages this object.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Whether nothing but the resource version differs. The API server counts it up for changes nobody here can see.
    pub fn same_but_for_version(&self, other: &Self) -> bool {
        let Self {
            name,
            generate_name,
            namespace,
            labels,
            annotations,
            creation_timestamp,
            deletion_timestamp,
            uid,
            resource_version: _,
            generation,
            owner_references,
        } = self;
        *name == other.name
            && *generate_name == other.generate_name
            && *namespace == other.namespace
            && *labels == other.labels
            && *annotations == other.annotations
            && *creation_timestamp == other.creation_timestamp
            && *deletion_timestamp == other.deletion_timestamp
            && *uid == other.uid
            && *generation == other.generation
            && *owner_references == other.owner_references
    }

    /// Whether nothing differs of what counts.
    pub fn same_where_it_counts(&self, other: &Self, counts: &Relevance) -> bool {
        let kept = |labels: &Labels, counts: fn(&str) -> bool| -> Labels {
            labels.iter().filter(|(key, _)| counts(key)).collect()
        };
        let reduced = |meta: &Self| Self {
            labels: kept(&meta.labels, counts.label),
            annotations: kept(&meta.annotations, counts.annotation),
            resource_version: if counts.version { meta.resource_version.clone() } else { Box::default() },
            ..meta.clone()
        };
        reduced(self) == reduced(other)
    }

    pub(crate) fn read(node: &Node, options: Options) -> Result<Self, Vec<Problem>> {
        let mut meta: Self = part::read_slim(node)?.value;
        if options.slim {
            meta.annotations.remove(LAST_APPLIED);
        }
        Ok(meta)
    }

    pub(crate) fn write(&self) -> Node {
        let node = part::write_serde(self);
        if node.is_null() { Value::Map(Map::new()).into() } else { node }
    }
}
