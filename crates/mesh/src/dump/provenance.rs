//! Provenance: the objects that a query read, and the queries that depend on an object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use canopus_engine::{Engine, Query, ReadKind, Snapshot};
use serde::Serialize;

use crate::world::{Objects, Origin};

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Kind of the object.
    pub kind: &'static str,
    /// Namespace of the object; empty if its kind is cluster-scoped.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// Name of the object.
    pub name: Box<str>,
    /// The cluster it was read from.
    pub cluster: Box<str>,
    #[serde(skip)]
    origin: Origin,
}

impl From<&Origin> for ObjectRef {
    fn from(origin: &Origin) -> Self {
        Self {
            kind: origin.key.kind.info().kind,
            namespace: origin.key.namespace.clone(),
            name: origin.key.name.clone(),
            cluster: origin.cluster.as_ref().into(),
            origin: origin.clone(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.key.fmt(f)
    }
}

/// The queries of one type that depend on an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Affected {
    /// The name of the query.
    pub query: &'static str,
    /// The number of keys.
    pub count: usize,
    /// The watched ones: those that a proxy subscribes to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<String>,
}

/// The objects that a query read, directly or through other queries.
pub(super) fn objects<Q: Query>(world: &Snapshot, key: &Q::Key) -> BTreeSet<ObjectRef> {
    let reads = world.provenance::<Q>(key).into_iter();
    let found = reads.filter(|read| read.kind == ReadKind::Value);
    found.filter_map(|read| read.subject.input::<Objects>().map(ObjectRef::from)).collect()
}

/// The queries that would be verified if one of the objects changed.
pub(super) fn dependents(engine: &Engine, objects: &[ObjectRef]) -> Vec<Affected> {
    let mut families: BTreeMap<&'static str, BTreeMap<String, bool>> = BTreeMap::new();
    for object in objects {
        for dependent in engine.dependents::<Objects>(&object.origin) {
            let subject = &dependent.subject;
            let family = families.entry(subject.name()).or_default();
            *family.entry(subject.to_string()).or_default() |= dependent.root.is_some();
        }
    }
    let affected = families.into_iter().map(|(query, queries)| Affected {
        query,
        count: queries.len(),
        watched: queries.into_iter().filter_map(|(name, watched)| watched.then_some(name)).collect(),
    });
    affected.collect()
}
