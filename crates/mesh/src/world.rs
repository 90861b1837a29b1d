//! The inputs every fact is derived from.

mod relevance;

use std::fmt;
use std::sync::{Arc, LazyLock};

use canopus_api::kube::ServiceType;
use canopus_api::{Kind, Object, ObjectKey, Typed, labels, mesh_config};
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Input};
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, MeshNetworks};
use canopus_runtime::flags::Flags;

pub use crate::discovery::is_namespace_discovered;
use crate::virtual_service::bound_gateways;
use crate::{gateway_api, namespaces};

/// Which object, of which cluster: what provenance ends in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The cluster the object was read from.
    pub cluster: Arc<str>,
    /// The object's name there.
    pub key: ObjectKey,
}

impl Origin {
    /// An object of a cluster.
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

/// Every object of the mesh, whichever source it came from.
pub struct Objects;

/// The ways objects are looked up together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectIndex {
    /// All objects of a kind, in all clusters.
    Kind(Kind),
    /// The objects of a kind in one namespace, in all clusters.
    Namespace(Kind, Box<str>),
    /// The objects of a kind in the namespaces of one part, of kinds that are looked for in all namespaces.
    NamespaceGroup(Kind, u8),
    /// The Services of one name in all clusters: kind, namespace, name.
    ServiceName(Kind, Box<str>, Box<str>),
    /// The Services that are other names of something.
    ExternalNames,
    /// The Services that lead to a network.
    NetworkGateways,
    /// The VirtualServices bound to a gateway, which is `namespace/name`.
    BoundToGateway(Box<str>),
    /// The ServiceEntries that define a host.
    ServiceEntryHost(Box<str>),
    /// The EndpointSlices of a Kubernetes service: cluster, namespace, service.
    EndpointSlices(Arc<str>, Box<str>, Box<str>),
    /// The pods and WorkloadEntries at an address.
    WorkloadAddress(Box<str>),
    /// The Secrets, ConfigMaps and nodes of one cluster, by kind and namespace.
    InCluster(Kind, Arc<str>, Box<str>),
    /// The Gateway API objects that refer to an object: its routes, its listener sets, its policies.
    ReferringTo(ObjectKey),
}

impl Input for Objects {
    const NAME: &'static str = "objects";
    type Key = Origin;
    type Value = Object;
    type Index = ObjectIndex;

    fn index(origin: &Origin, object: &Object) -> Vec<ObjectIndex> {
        let key = &origin.key;
        let mut shelves = vec![
            ObjectIndex::Kind(key.kind),
            ObjectIndex::Namespace(key.kind, key.namespace.clone()),
            ObjectIndex::InCluster(key.kind, origin.cluster.clone(), key.namespace.clone()),
        ];
        if namespaces::is_grouped(key.kind) {
            shelves.push(ObjectIndex::NamespaceGroup(key.kind, namespaces::namespace_group(&key.namespace)));
        }
        match object {
            Object::Service(service) => {
                shelves.push(ObjectIndex::ServiceName(key.kind, key.namespace.clone(), key.name.clone()));
                if service.spec.r#type == ServiceType::ExternalName {
                    shelves.push(ObjectIndex::ExternalNames);
                }
                if service.meta.label(labels::TOPOLOGY_NETWORK.name).is_some() {
                    shelves.push(ObjectIndex::NetworkGateways);
                }
            }
            Object::VirtualService(service) => {
                shelves.extend(
                    bound_gateways(service)
                        .into_iter()
                        .map(|gateway| ObjectIndex::BoundToGateway(gateway.into())),
                );
            }
            Object::ServiceEntry(entry) => {
                shelves.extend(
                    entry.spec.hosts.iter().map(|host| ObjectIndex::ServiceEntryHost(host.as_str().into())),
                );
            }
            Object::EndpointSlice(slice) => {
                if let Some(service) = slice.meta.label(labels::KUBERNETES_SERVICE_NAME.name) {
                    shelves.push(ObjectIndex::EndpointSlices(
                        origin.cluster.clone(),
                        key.namespace.clone(),
                        service.into(),
                    ));
                }
            }
            Object::Pod(pod) => {
                let mut addresses: Vec<_> = pod.status.pod_ips.iter().map(|ip| ip.ip.clone()).collect();
                if addresses.is_empty() && !pod.status.pod_ip.is_empty() {
                    addresses.push(pod.status.pod_ip.clone());
                }
                shelves.extend(addresses.into_iter().map(ObjectIndex::WorkloadAddress));
            }
            Object::WorkloadEntry(entry) if !entry.spec.address.is_empty() => {
                shelves.push(ObjectIndex::WorkloadAddress(entry.spec.address.as_str().into()));
            }
            other => shelves.extend(gateway_api::references(other).into_iter().map(ObjectIndex::ReferringTo)),
        }
        shelves
    }
}

/// The objects of one type on a shelf, with where they come from, in the order of their keys.
pub fn indexed_objects<T: Typed>(ctx: &Ctx<'_>, shelf: &ObjectIndex) -> Vec<(Origin, Arc<T>)> {
    let origins = ctx.members::<Objects>(shelf);
    origins.iter().filter_map(|origin| Some((origin.clone(), object::<T>(ctx, origin)?))).collect()
}

/// All objects of one type, in the order of their keys.
pub fn all_objects<T: Typed>(ctx: &Ctx<'_>) -> Vec<(Origin, Arc<T>)> {
    indexed_objects(ctx, &ObjectIndex::Kind(T::KIND))
}

/// One object, if it is there, of this type, and in a namespace the mesh looks at.
pub fn object<T: Typed>(ctx: &Ctx<'_>, origin: &Origin) -> Option<Arc<T>> {
    any_object(ctx, origin)?.get::<T>().cloned()
}

/// One object of any type, if it is there and in a namespace the mesh looks at.
pub(crate) fn any_object(ctx: &Ctx<'_>, origin: &Origin) -> Option<Arc<Object>> {
    ctx.get::<relevance::ObjectAt>(origin).as_ref().clone()
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

/// What the mesh as a whole is told: one value.
pub struct Settings;

/// The value of [`Settings`].
#[derive(Clone, PartialEq)]
pub struct MeshSettings {
    /// Mesh configuration with defaults applied.
    pub mesh: MeshConfig,
    /// The networks of the mesh and their gateways.
    pub networks: MeshNetworks,
    /// DNS suffix of services that live in a namespace.
    pub domain: Arc<str>,
    /// The name of the cluster this control plane belongs to, whose Istio objects count.
    pub cluster: Arc<str>,
    /// The namespace the control plane runs in.
    pub system_namespace: Arc<str>,
    /// The revision this control plane is.
    pub revision: Arc<str>,
    /// The settings of the process.
    pub flags: Arc<Flags>,
}

impl MeshSettings {
    /// The namespace whose policies apply to the whole mesh.
    pub fn root_namespace(&self) -> &str {
        &self.mesh.root_namespace
    }

    /// The trust domain of the mesh's identities.
    pub fn trust_domain(&self) -> &str {
        &self.mesh.trust_domain
    }
}

impl Default for MeshSettings {
    fn default() -> Self {
        Self {
            mesh: mesh_config::default_mesh_config(),
            networks: mesh_config::default_networks(),
            domain: "cluster.local".into(),
            cluster: "Kubernetes".into(),
            system_namespace: "istio-system".into(),
            revision: "default".into(),
            flags: Arc::new(Flags::defaults()),
        }
    }
}

impl Input for Settings {
    const NAME: &'static str = "settings";
    type Key = ();
    type Value = MeshSettings;
    type Index = ();
}

/// The settings in force; Istio's defaults until some are given.
pub fn settings(ctx: &Ctx<'_>) -> Arc<MeshSettings> {
    static DEFAULTS: LazyLock<Arc<MeshSettings>> = LazyLock::new(Arc::default);
    ctx.read::<Settings>(&()).unwrap_or_else(|| DEFAULTS.clone())
}

/// The name of a host as written in namespace `namespace`: a name without dots is a service of that namespace. Addresses
/// and `*` stand for themselves.
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
