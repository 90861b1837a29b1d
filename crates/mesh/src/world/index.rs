//! The indexes that objects are looked up by.

use std::sync::Arc;

use canopus_api::kube::ServiceType;
use canopus_api::{Kind, Object, ObjectKey, labels};
use canopus_engine::Input;

use super::{Origin, namespaces};
use crate::reference;

/// The engine input with every object of every cluster, whichever source it came from.
pub struct Objects;

/// A set of objects that are looked up together. The engine keeps the members of each, and a query that reads the members
/// is run again when they change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectIndex {
    /// All objects of a kind, in all clusters.
    Kind(Kind),
    /// The objects of a kind in one namespace, in all clusters.
    Namespace(Kind, Box<str>),
    /// The objects of a kind in one group of namespaces; only kinds that [`namespaces::is_grouped`] names have it.
    NamespaceGroup(Kind, u8),
    /// The Services with one name in all clusters: kind, namespace, name.
    ServiceName(Kind, Box<str>, Box<str>),
    /// The Services of type `ExternalName`.
    ExternalNames,
    /// The Services labelled as gateways of a network.
    NetworkGateways,
    /// The VirtualServices bound to a gateway, given as `namespace/name`.
    BoundToGateway(Box<str>),
    /// The ServiceEntries that define a host.
    ServiceEntryHost(Box<str>),
    /// The EndpointSlices of a Kubernetes service: cluster, namespace, service.
    EndpointSlices(Arc<str>, Box<str>, Box<str>),
    /// The pods and WorkloadEntries at an address.
    WorkloadAddress(Box<str>),
    /// The objects of a kind in one namespace of one cluster.
    InCluster(Kind, Arc<str>, Box<str>),
    /// The Gateway API objects that refer to an object: routes, listener sets and policies.
    ReferringTo(ObjectKey),
}

impl Input for Objects {
    const NAME: &'static str = "objects";
    type Key = Origin;
    type Value = Object;
    type Index = ObjectIndex;

    fn index(origin: &Origin, object: &Object) -> Vec<ObjectIndex> {
        let key = &origin.key;
        let mut indexes = vec![
            ObjectIndex::Kind(key.kind),
            ObjectIndex::Namespace(key.kind, key.namespace.clone()),
            ObjectIndex::InCluster(key.kind, origin.cluster.clone(), key.namespace.clone()),
        ];
        if namespaces::is_grouped(key.kind) {
            indexes.push(ObjectIndex::NamespaceGroup(key.kind, namespaces::namespace_group(&key.namespace)));
        }
        match object {
            Object::Service(service) => {
                indexes.push(ObjectIndex::ServiceName(key.kind, key.namespace.clone(), key.name.clone()));
                if service.spec.r#type == ServiceType::ExternalName {
                    indexes.push(ObjectIndex::ExternalNames);
                }
                if service.meta.label(labels::TOPOLOGY_NETWORK.name).is_some() {
                    indexes.push(ObjectIndex::NetworkGateways);
                }
            }
            Object::VirtualService(service) => {
                indexes.extend(
                    reference::bound_gateways(service)
                        .into_iter()
                        .map(|gateway| ObjectIndex::BoundToGateway(gateway.into())),
                );
            }
            Object::ServiceEntry(entry) => {
                indexes.extend(
                    entry.spec.hosts.iter().map(|host| ObjectIndex::ServiceEntryHost(host.as_str().into())),
                );
            }
            Object::EndpointSlice(slice) => {
                if let Some(service) = slice.meta.label(labels::KUBERNETES_SERVICE_NAME.name) {
                    indexes.push(ObjectIndex::EndpointSlices(
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
                indexes.extend(addresses.into_iter().map(ObjectIndex::WorkloadAddress));
            }
            Object::WorkloadEntry(entry) if !entry.spec.address.is_empty() => {
                indexes.push(ObjectIndex::WorkloadAddress(entry.spec.address.as_str().into()));
            }
            other => indexes
                .extend(reference::gateway_api::references(other).into_iter().map(ObjectIndex::ReferringTo)),
        }
        indexes
    }
}
