//! The input layer: the objects and settings that every other module derives its facts from.
//!
//! [`Objects`] holds every decoded object of every cluster, [`Settings`] the mesh-wide configuration. Both are engine inputs:
//! a query that reads one is run again when it changes. Queries look objects up by [`Origin`] ([`object`]) or through an
//! [`ObjectIndex`] ([`indexed_objects`]), never by scanning.
//!
//! Two filters sit between the raw input and its readers. Discovery selectors hide whole namespaces, and `relevance` hides
//! changes that no query could observe, such as managed fields. [`object`] applies both, so read objects through it.
//!
//! This module knows no kind's logic. What an object refers to by name comes from [`reference`](crate::reference); what an
//! object *means* is decided above.

mod discovery;
mod index;
mod namespaces;
mod relevance;
mod settings;

use std::fmt;
use std::sync::Arc;

use canopus_api::kube::Namespace;
use canopus_api::{Kind, Object, ObjectKey, Typed};
use canopus_base::net::parse_ip;
use canopus_engine::EagerCtx;

pub use discovery::is_namespace_discovered;
pub(crate) use discovery::label_selector;
pub use index::{ObjectIndex, Objects};
pub(crate) use namespaces::NamespacesWith;
pub use settings::{MeshSettings, Settings, settings};

/// Identifies an object: its key and the cluster it was read from. Provenance is reported as a list of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The cluster the object was read from.
    pub cluster: Arc<str>,
    /// The object's name there.
    pub key: ObjectKey,
}

impl Origin {
    /// Creates the origin of an object in a cluster.
    pub fn new(cluster: impl Into<Arc<str>>, key: ObjectKey) -> Self {
        Self { cluster: cluster.into(), key }
    }

    /// The namespace of the object.
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        &self.key.name
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.key, self.cluster)
    }
}

/// Returns the objects of one type that an index lists, sorted by origin.
pub fn indexed_objects<T: Typed>(ctx: &EagerCtx<'_>, index: &ObjectIndex) -> Vec<(Origin, Arc<T>)> {
    let origins = ctx.members::<Objects>(index);
    origins.iter().filter_map(|origin| Some((origin.clone(), object::<T>(ctx, origin)?))).collect()
}

/// Returns all objects of one type, sorted by origin.
pub fn all_objects<T: Typed>(ctx: &EagerCtx<'_>) -> Vec<(Origin, Arc<T>)> {
    indexed_objects(ctx, &ObjectIndex::Kind(T::KIND))
}

/// Reads one object. Returns `None` if it does not exist, is of another type, or is in a namespace that discovery selectors
/// exclude.
pub fn object<T: Typed>(ctx: &EagerCtx<'_>, origin: &Origin) -> Option<Arc<T>> {
    any_object(ctx, origin)?.get::<T>().cloned()
}

/// Reads one object of any type; see [`object`].
pub(crate) fn any_object(ctx: &EagerCtx<'_>, origin: &Origin) -> Option<Arc<Object>> {
    ctx.get::<relevance::ObjectAt>(origin).as_ref().clone()
}

/// Reads a namespace object of a cluster, for its labels and annotations.
pub fn namespace(ctx: &EagerCtx<'_>, cluster: &Arc<str>, name: &str) -> Option<Arc<Namespace>> {
    object(ctx, &Origin::new(cluster.clone(), ObjectKey::new(Kind::Namespace, "", name)))
}

/// Sorts objects as Istio does wherever the older one wins: by age, then name, then namespace.
pub fn oldest_first<T: Typed>(objects: &mut [(Origin, Arc<T>)]) {
    objects.sort_by(|(a, x), (b, y)| {
        let age = |object: &Arc<T>| object.meta().creation_timestamp;
        age(x)
            .cmp(&age(y))
            .then_with(|| a.name().cmp(b.name()))
            .then_with(|| a.namespace().cmp(b.namespace()))
    });
}

/// Expands a host written in `namespace` to its full name. A name without dots is a service of that namespace; addresses
/// and `*` are returned as they are.
pub fn qualified_host(host: &str, namespace: &str, domain: &str) -> String {
    if host.is_empty() || host == "*" || host.contains('.') || parse_ip(host).is_ok() {
        host.to_owned()
    } else if domain.is_empty() {
        format!("{host}.{namespace}")
    } else {
        format!("{host}.{namespace}.svc.{domain}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_hosts_belong_to_the_namespace_they_are_written_in() {
        assert_eq!(qualified_host("a", "ns", "cluster.local"), "a.ns.svc.cluster.local");
        assert_eq!(qualified_host("a", "ns", ""), "a.ns");
        assert_eq!(qualified_host("a.example.com", "ns", "cluster.local"), "a.example.com");
        for itself in ["*", "", "10.0.0.1", "fd00::1"] {
            assert_eq!(qualified_host(itself, "ns", "cluster.local"), itself);
        }
    }
}
