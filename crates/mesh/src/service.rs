//! Services and their endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::{Kind, Object, ObjectKey};
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::service_entry::{Location, Resolution as EntryResolution};
use canopus_proto::istio::networking::v1alpha3::{ServiceEntry, ServicePort, WorkloadEntry};

use crate::world::{Objects, Shelf, settings};

/// Something that can be called by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The name it is called by.
    pub host: Arc<str>,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
    /// Its ports, in the order of their definition.
    pub ports: Vec<Port>,
    /// How a proxy finds its endpoints.
    pub resolution: Resolution,
    /// Whether it lives outside the mesh.
    pub external: bool,
    /// The object it comes from.
    pub origin: ObjectKey,
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its number, as callers use it.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// What is spoken on it.
    pub protocol: Protocol,
}

/// How a proxy finds the endpoints of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The control plane lists them.
    Listed,
    /// The proxy resolves a name and uses all addresses.
    Dns,
    /// The proxy resolves a name and uses one address at a time.
    DnsRoundRobin,
    /// The proxy goes where the client wanted to go.
    Passthrough,
    /// The proxy resolves whatever name the request carries.
    DynamicDns,
}

/// Where one instance of a service listens.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// IP address, host name or `unix://` path.
    pub address: String,
    /// Port number.
    pub port: u32,
    /// Share of the load, at least 1.
    pub weight: u32,
    /// `region/zone/subzone`, as far as known.
    pub locality: String,
    /// The workload's name, for telemetry.
    pub workload: String,
    /// The workload's namespace.
    pub namespace: Arc<str>,
    /// The cluster it runs in.
    pub cluster: Arc<str>,
    /// Labels by which subsets choose.
    pub labels: BTreeMap<String, String>,
}

/// The services one object defines.
pub struct ServicesOf;

impl Query for ServicesOf {
    const NAME: &'static str = "services_of";
    type Key = ObjectKey;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, key: &ObjectKey) -> Self::Value {
        match ctx.read::<Objects>(key).as_deref() {
            Some(Object::ServiceEntry(entry)) => {
                entry.spec.hosts.iter().map(|host| Arc::new(from_entry(key, host, &entry.spec))).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Every service of the mesh, ordered by host and namespace.
pub struct AllServices;

impl Query for AllServices {
    const NAME: &'static str = "all_services";
    type Key = ();
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let entries = ctx.members::<Objects>(&Shelf::Kind(Kind::ServiceEntry));
        let mut services: Vec<_> =
            entries.iter().flat_map(|key| ctx.get::<ServicesOf>(key).to_vec()).collect();
        services.sort_by(|a, b| (&a.host, &a.namespace).cmp(&(&b.host, &b.namespace)));
        services
    }
}

/// The service a host names: the oldest definition, then the first by name.
pub struct ServiceByHost;

impl Query for ServiceByHost {
    const NAME: &'static str = "service_by_host";
    type Key = Arc<str>;
    type Value = Option<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, host: &Arc<str>) -> Self::Value {
        let definitions = ctx.members::<Objects>(&Shelf::Host(host.clone()));
        let oldest = definitions.iter().min_by_key(|key| {
            let created = ctx.read::<Objects>(key).and_then(|object| object.meta().creation_timestamp);
            (created, (*key).clone())
        })?;
        ctx.get::<ServicesOf>(oldest).iter().find(|service| service.host == *host).cloned()
    }
}

/// The endpoints of one port of a service.
pub struct Endpoints;

impl Query for Endpoints {
    const NAME: &'static str = "endpoints";
    type Key = (Arc<str>, u32);
    type Value = Vec<Endpoint>;

    fn run(ctx: &Ctx<'_>, (host, port): &Self::Key) -> Self::Value {
        let Some(service) = ctx.get::<ServiceByHost>(host).as_ref().clone() else { return Vec::new() };
        let Some(object) = ctx.read::<Objects>(&service.origin) else { return Vec::new() };
        let Object::ServiceEntry(entry) = object.as_ref() else { return Vec::new() };
        let Some(port) = entry.spec.ports.iter().find(|p| p.number == *port) else { return Vec::new() };
        let cluster = settings(ctx).cluster.clone();
        let build = |(index, workload): (usize, &WorkloadEntry)| Endpoint {
            address: workload.address.clone(),
            port: endpoint_port(workload, port),
            weight: workload.weight.max(1),
            locality: workload.locality.clone(),
            workload: format!("{}-{index}", service.origin.name),
            namespace: service.namespace.clone(),
            cluster: cluster.clone(),
            labels: workload.labels.clone(),
        };
        entry.spec.endpoints.iter().enumerate().map(build).collect()
    }
}

fn from_entry(key: &ObjectKey, host: &str, spec: &ServiceEntry) -> Service {
    Service {
        host: host.into(),
        namespace: key.namespace.as_ref().into(),
        ports: spec.ports.iter().map(port).collect(),
        resolution: match spec.resolution() {
            EntryResolution::None => Resolution::Passthrough,
            EntryResolution::Static => Resolution::Listed,
            EntryResolution::Dns => Resolution::Dns,
            EntryResolution::DnsRoundRobin => Resolution::DnsRoundRobin,
            EntryResolution::DynamicDns => Resolution::DynamicDns,
        },
        external: spec.location() == Location::MeshExternal,
        origin: key.clone(),
    }
}

fn port(port: &ServicePort) -> Port {
    Port { number: port.number, name: port.name.clone(), protocol: Protocol::parse(&port.protocol) }
}

/// The endpoint's own port for that name, else the target port, else the service's number.
fn endpoint_port(workload: &WorkloadEntry, port: &ServicePort) -> u32 {
    match workload.ports.get(&port.name) {
        Some(&own) => own,
        None if port.target_port > 0 => port.target_port,
        None => port.number,
    }
}
