//! The inputs every fact is derived from.

use std::sync::Arc;

use canopus_api::{Kind, Object, ObjectKey, mesh_config};
use canopus_engine::{Ctx, Input};
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;

/// Every object of the mesh, whichever source it came from.
pub struct Objects;

/// The ways objects are looked up together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shelf {
    /// All objects of a kind.
    Kind(Kind),
    /// The objects that define a service host.
    Host(Arc<str>),
}

impl Input for Objects {
    const NAME: &'static str = "objects";
    type Key = ObjectKey;
    type Value = Object;
    type Index = Shelf;

    fn index(key: &ObjectKey, object: &Object) -> Vec<Shelf> {
        let mut shelves = vec![Shelf::Kind(key.kind)];
        if let Object::ServiceEntry(entry) = object {
            shelves.extend(entry.spec.hosts.iter().map(|host| Shelf::Host(Arc::from(host.as_str()))));
        }
        shelves
    }
}

/// What the mesh as a whole is told: one value.
pub struct Settings;

/// The value of [`Settings`].
#[derive(Clone, Debug, PartialEq)]
pub struct MeshSettings {
    /// Mesh configuration with defaults applied.
    pub mesh: MeshConfig,
    /// DNS suffix of services that live in a namespace.
    pub domain: Arc<str>,
    /// The name of the cluster this control plane belongs to.
    pub cluster: Arc<str>,
}

impl Default for MeshSettings {
    fn default() -> Self {
        Self {
            mesh: mesh_config::default_mesh_config(),
            domain: "cluster.local".into(),
            cluster: "Kubernetes".into(),
        }
    }
}

impl Input for Settings {
    const NAME: &'static str = "settings";
    type Key = ();
    type Value = MeshSettings;
    type Index = ();

    fn index(_: &(), _: &MeshSettings) -> Vec<()> {
        Vec::new()
    }
}

/// The settings in force; Istio's defaults until some are given.
pub fn settings(ctx: &Ctx<'_>) -> Arc<MeshSettings> {
    ctx.read::<Settings>(&()).unwrap_or_default()
}

/// The name of a host as written in namespace `namespace`: a name without dots is a service of that namespace.
pub fn qualified_host(host: &str, namespace: &str, domain: &str) -> String {
    if host.contains(['.', '*']) || host.is_empty() {
        host.to_owned()
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
        assert_eq!(qualified_host("a.example.com", "ns", "cluster.local"), "a.example.com");
        assert_eq!(qualified_host("*", "ns", "cluster.local"), "*");
    }
}
