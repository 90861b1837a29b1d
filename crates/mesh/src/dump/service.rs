//! Services and their endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_base::labels::Labels;
use canopus_engine::{QueryError, Snapshot};
use serde::Serialize;

use super::provenance::{Affected, ObjectRef, objects};
use crate::endpoint::{Endpoint, Endpoints, Health};
use crate::service::{NO_ADDRESS, Registry, Resolution, Service, ServicesOf};

/// A service and its endpoints, with the objects behind both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceFacts {
    /// The name it is called by.
    pub host: Arc<str>,
    /// Short name of the service, without namespace and domain.
    pub name: Arc<str>,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
    /// The registry, as Istio names it.
    pub registry: &'static str,
    /// The resolution, as ServiceEntry names it.
    pub resolution: &'static str,
    /// Whether it is outside of the mesh.
    pub external: bool,
    /// The virtual addresses by cluster. The entry without a cluster applies to clusters that are not listed.
    pub addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// The allocated addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocated: Vec<String>,
    /// Ports of the service.
    pub ports: Vec<PortFacts>,
    /// The namespaces it is exported to; empty means the mesh-wide default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub export_to: Vec<String>,
    /// The objects that define it, the deciding one first.
    pub defined_by: Vec<ObjectRef>,
    /// Every object that the definition was computed from.
    pub objects: BTreeSet<ObjectRef>,
    /// The endpoints.
    pub endpoints: Vec<EndpointFacts>,
    /// Every object that the endpoints were computed from.
    pub endpoint_objects: BTreeSet<ObjectRef>,
    /// The queries that depend on the defining objects, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependents: Option<Vec<Affected>>,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortFacts {
    /// Number of the port.
    pub number: u32,
    /// Name of the port.
    pub name: Arc<str>,
    /// The protocol.
    pub protocol: &'static str,
}

/// An instance on one port.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointFacts {
    /// IP addresses, a host name, or the path of a Unix socket.
    pub addresses: Vec<Arc<str>>,
    /// Port number; 0 for a socket.
    pub port: u32,
    /// The name of the service's port.
    pub port_name: Arc<str>,
    /// The health of the instance.
    pub health: &'static str,
    /// The load balancing weight; 0 if unset.
    pub weight: u32,
    /// The workload's name.
    pub workload: Arc<str>,
    /// The workload's namespace.
    pub namespace: Arc<str>,
    /// Cluster of the endpoint.
    pub cluster: Arc<str>,
    /// Network of the endpoint.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub network: Arc<str>,
    /// `region/zone/subzone`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub locality: Arc<str>,
    /// The Kubernetes node.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub node: Arc<str>,
    /// SPIFFE identity of the endpoint.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub identity: Arc<str>,
    /// The TLS mode: `istio` or `disabled`.
    pub tls_mode: Arc<str>,
    /// Labels of the endpoint.
    pub labels: Labels,
    /// The object that describes the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectRef>,
}

/// The facts about a service.
pub(super) fn facts(world: &Snapshot, service: &Service) -> Result<ServiceFacts, QueryError> {
    let key = service.key();
    let endpoints = world.get::<Endpoints>(&key)?;
    let mut addresses = service.cluster_addresses.clone();
    if addresses.is_empty() && service.address != NO_ADDRESS {
        addresses.insert("".into(), vec![service.address.clone()]);
    }
    let allocated = [&service.allocated_v4, &service.allocated_v6];
    Ok(ServiceFacts {
        host: service.host.clone(),
        name: service.name.clone(),
        namespace: service.namespace.clone(),
        registry: registry(service.registry),
        resolution: resolution(service.resolution),
        external: service.external,
        addresses,
        allocated: allocated.into_iter().flatten().cloned().collect(),
        ports: service.ports.iter().map(PortFacts::from).collect(),
        export_to: service.export_to.iter().map(ToString::to_string).collect(),
        defined_by: service.origins.iter().map(ObjectRef::from).collect(),
        objects: service.origins.iter().flat_map(|origin| objects::<ServicesOf>(world, origin)).collect(),
        endpoints: endpoints.iter().map(|endpoint| EndpointFacts::from(&**endpoint)).collect(),
        endpoint_objects: objects::<Endpoints>(world, &key),
        dependents: None,
    })
}

impl From<&crate::service::Port> for PortFacts {
    fn from(port: &crate::service::Port) -> Self {
        Self { number: port.number, name: port.name.clone(), protocol: port.protocol.as_str() }
    }
}

impl From<&Endpoint> for EndpointFacts {
    fn from(endpoint: &Endpoint) -> Self {
        let workload = &endpoint.workload;
        Self {
            addresses: endpoint.addresses.clone(),
            port: endpoint.port,
            port_name: endpoint.port_name.clone(),
            health: health(endpoint.health),
            weight: endpoint.weight,
            workload: workload.name.clone(),
            namespace: workload.namespace.clone(),
            cluster: workload.cluster.clone(),
            network: workload.network.clone(),
            locality: workload.locality.clone(),
            node: workload.node.clone(),
            identity: workload.service_account.clone(),
            tls_mode: workload.tls_mode.clone(),
            labels: workload.labels.clone(),
            object: workload.origin.as_ref().map(ObjectRef::from),
        }
    }
}

fn registry(registry: Registry) -> &'static str {
    match registry {
        Registry::External => "External",
        Registry::Kubernetes => "Kubernetes",
    }
}

fn resolution(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Listed => "STATIC",
        Resolution::Dns => "DNS",
        Resolution::Passthrough => "NONE",
        Resolution::DnsRoundRobin => "DNS_ROUND_ROBIN",
        Resolution::Alias => "ALIAS",
        Resolution::DynamicDns => "DYNAMIC_DNS",
    }
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Unknown => "UNKNOWN",
        Health::Healthy => "HEALTHY",
        Health::Unhealthy => "UNHEALTHY",
        Health::Draining => "DRAINING",
        Health::Terminating => "TERMINATING",
    }
}
