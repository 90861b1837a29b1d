//! Services: everything that can be called by host name, from Kubernetes Services and ServiceEntries.

mod all;
mod allocation;
mod entry;
mod index;
mod kube;
mod plan;
mod visibility;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use canopus_api::visibility::Visibility;
use canopus_api::{Kind, Object, labels as known};
use canopus_base::labels::Labels;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, EagerCtx, EagerQuery, Query};
use canopus_runtime::flags::{
    Flags, ISTIO_DUAL_STACK, PILOT_ENABLE_AMBIENT, PILOT_PERSISTENT_SESSION_HEADER_LABEL,
    PILOT_PERSISTENT_SESSION_LABEL,
};
use jiff::Timestamp;

use crate::proxy::Addressing;
use crate::world::{self, MeshSettings, ObjectIndex, Objects, Origin, settings};

pub use all::{AllServices, ServicesVisibleTo};
pub(crate) use all::{
    ServiceLocator, ServiceOrder, ServicesExportedTo, ServicesInChunk, ServicesInChunkGroup,
};
pub(crate) use index::{HostDefinitions, oldest_first, visible_in};
pub use index::{ServicesByHost, ServicesIn};

pub use plan::PlannedAddresses;
pub use visibility::{EntryVisibility, entry_visibility};

/// The address of a service without an address of its own.
pub const NO_ADDRESS: &str = "0.0.0.0";

/// Identifies a service. Two namespaces may define the same host, so both are part of the key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The host name.
    pub host: Arc<str>,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
}

impl ServiceKey {
    /// Creates the key of a service of a namespace.
    pub fn new(host: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>) -> Self {
        Self { host: host.into(), namespace: namespace.into() }
    }
}

/// A service.
///
/// A ServiceEntry defines one for each of its hosts and addresses. Kubernetes Services with the same name and namespace in
/// several clusters are one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The host name.
    pub host: Arc<str>,
    /// The name of the Kubernetes Service, or the host.
    pub name: Arc<str>,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
    /// The ports, in the order of their definition.
    pub ports: Vec<Port>,
    /// How a proxy finds its endpoints.
    pub resolution: Resolution,
    /// Whether it is outside of the mesh.
    pub external: bool,
    /// The registry that defines it.
    pub registry: Registry,
    /// The creation time of the object that defines it.
    pub created: Option<Timestamp>,
    /// The labels of the object.
    pub labels: Labels,
    /// The namespaces it is exported to; empty means the mesh-wide default.
    pub export_to: BTreeSet<Visibility>,
    /// The virtual addresses in each cluster. In clusters that are not listed the address is [`Self::address`].
    pub cluster_addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// The address where no cluster has one: an IP, a CIDR, or [`NO_ADDRESS`].
    pub address: String,
    /// The automatically allocated IPv4 address.
    pub allocated_v4: Option<String>,
    /// The automatically allocated IPv6 address.
    pub allocated_v6: Option<String>,
    /// Identities that endpoints may present in addition to their own.
    pub service_accounts: Vec<String>,
    /// The workload selector; empty if there is none.
    pub selector: Labels,
    /// Which endpoints clients prefer.
    pub traffic_distribution: TrafficDistribution,
    /// Properties that only a Kubernetes Service has.
    pub kube: Option<KubeService>,
    /// The target ports for passthrough resolution, by service port.
    pub passthrough_target_ports: BTreeMap<u32, u32>,
    /// Whether a proxy that resolves the name connects to all addresses at once and keeps the first connection.
    pub races_connections: bool,
    /// The `ExternalName` Services that are aliases of it.
    pub aliases: Vec<ServiceKey>,
    /// The objects that define it, the deciding one first.
    pub origins: Vec<Origin>,
}

/// Properties that only a Kubernetes Service has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeService {
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    pub kind: Box<str>,
    /// The host that an `ExternalName` Service is an alias of.
    pub external_name: Option<Arc<str>>,
    /// Whether traffic stays on the node.
    pub node_local: bool,
    /// Whether endpoints are used before they are ready.
    pub publish_not_ready: bool,
    /// Whether it has `clusterIP: None`.
    pub headless: bool,
    /// The load balancer and external addresses, by cluster.
    pub external_addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// Node ports by service port, by cluster, for Services that select nodes.
    pub node_ports: BTreeMap<Arc<str>, BTreeMap<u32, u32>>,
}

/// The registry that defines a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registry {
    /// A ServiceEntry. Declared first, because endpoints of ServiceEntries come before those of Kubernetes.
    External,
    /// A Kubernetes cluster.
    Kubernetes,
}

/// Which endpoints clients prefer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// No preference.
    #[default]
    Any,
    /// Prefer endpoints in the client's zone.
    PreferSameZone,
    /// Prefer endpoints on the client's node.
    PreferSameNode,
}

impl TrafficDistribution {
    /// The labels that preferred endpoints share with the client, from the widest to the narrowest.
    pub fn preferred_labels(self) -> &'static [&'static str] {
        const NODE: [&str; 5] = [
            known::TOPOLOGY_NETWORK.name,
            known::KUBERNETES_REGION.name,
            known::KUBERNETES_ZONE.name,
            known::TOPOLOGY_SUBZONE.name,
            known::KUBERNETES_HOSTNAME.name,
        ];
        match self {
            Self::Any => &[],
            Self::PreferSameZone => &NODE[..3],
            Self::PreferSameNode => &NODE,
        }
    }
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The number that callers use.
    pub number: u32,
    /// Name of the port.
    pub name: Arc<str>,
    /// The protocol.
    pub protocol: Protocol,
}

/// How a proxy finds the endpoints of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// The control plane sends them: `STATIC`.
    Listed,
    /// The proxy resolves a name and uses all addresses: `DNS`.
    Dns,
    /// The proxy uses the original destination: `NONE`.
    Passthrough,
    /// The proxy resolves a name and uses one address at a time: `DNS_ROUND_ROBIN`.
    DnsRoundRobin,
    /// The service is an alias of another: `ExternalName`.
    Alias,
    /// The proxy resolves the host of each request: `DYNAMIC_DNS`.
    DynamicDns,
}

impl Service {
    /// Whether clients have persistent sessions, so that terminating endpoints drain.
    pub fn keeps_sessions(&self, flags: &Flags) -> bool {
        let labels =
            [flags.get(PILOT_PERSISTENT_SESSION_LABEL), flags.get(PILOT_PERSISTENT_SESSION_HEADER_LABEL)];
        labels.into_iter().any(|label| self.has_label(label))
    }

    /// Whether the service has this label with a non-empty value. The empty name matches no label.
    pub fn has_label(&self, name: &str) -> bool {
        !name.is_empty() && self.labels.get(name).is_some_and(|value| !value.is_empty())
    }

    /// Creates a placeholder that only names a destination in statistics, outside of the mesh.
    pub fn stand_in(host: impl Into<Arc<str>>, name: impl Into<Arc<str>>, namespace: Arc<str>) -> Self {
        Self {
            host: host.into(),
            name: name.into(),
            namespace,
            ports: Vec::new(),
            resolution: Resolution::Listed,
            external: true,
            registry: Registry::External,
            created: None,
            labels: Labels::default(),
            export_to: BTreeSet::new(),
            cluster_addresses: BTreeMap::new(),
            address: NO_ADDRESS.to_owned(),
            allocated_v4: None,
            allocated_v6: None,
            service_accounts: Vec::new(),
            selector: Labels::default(),
            traffic_distribution: TrafficDistribution::Any,
            kube: None,
            passthrough_target_ports: BTreeMap::new(),
            races_connections: false,
            aliases: Vec::new(),
            origins: Vec::new(),
        }
    }

    /// The key of the service.
    pub fn key(&self) -> ServiceKey {
        ServiceKey::new(self.host.clone(), self.namespace.clone())
    }

    /// Whether it is a headless Kubernetes Service.
    pub fn is_headless(&self) -> bool {
        self.kube.as_ref().is_some_and(|kube| kube.headless)
    }

    /// Finds a port by number.
    pub fn port(&self, number: u32) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// Finds a port by name.
    pub fn port_named(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| &*port.name == name)
    }

    /// Whether a Kubernetes Service defines it.
    pub fn is_kubernetes(&self) -> bool {
        self.registry == Registry::Kubernetes
    }
}

impl Resolution {
    /// Whether proxies resolve a name to find endpoints.
    pub fn is_dns(self) -> bool {
        matches!(self, Self::Dns | Self::DnsRoundRobin)
    }
}

/// The services that one object defines.
pub struct ServicesOf;

impl EagerQuery for ServicesOf {
    const NAME: &'static str = "services_of";
    type Key = Origin;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &EagerCtx<'_>, origin: &Origin) -> Self::Value {
        match world::any_object(ctx, origin).as_deref() {
            Some(Object::Service(service)) => vec![Arc::new(kube::convert(ctx, origin, service))],
            Some(Object::ServiceEntry(entry)) => {
                entry::convert(ctx, origin, entry).into_iter().map(Arc::new).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The Kubernetes service with a namespace and name, merged over all clusters that have it.
pub struct KubernetesService;

impl Query for KubernetesService {
    const NAME: &'static str = "kubernetes_service";
    /// Namespace and name.
    type Key = (Arc<str>, Arc<str>);
    type Value = Option<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, (namespace, name): &Self::Key) -> Self::Value {
        let index = ObjectIndex::ServiceName(Kind::Service, namespace.as_ref().into(), name.as_ref().into());
        let here = settings(ctx).cluster.clone();
        let mut origins = ctx.members::<Objects>(&index).to_vec();
        origins.sort_by_key(|origin| (origin.cluster != here, origin.cluster.clone()));
        let services = origins.iter().flat_map(|origin| ctx.get::<ServicesOf>(origin).to_vec());
        kube::merge(services)
    }
}

/// Finds a service by key.
pub fn service(ctx: &Ctx<'_>, key: &ServiceKey) -> Option<Arc<Service>> {
    ctx.get::<ServicesByHost>(&key.host).get(&key.namespace).cloned()
}

/// The namespaces that a service is exported to, with the mesh-wide default applied and `.` replaced by the namespace.
pub fn visibility(ctx: &Ctx<'_>, service: &Service) -> BTreeSet<Visibility> {
    effective_visibility(&settings(ctx), service)
}

fn effective_visibility(settings: &MeshSettings, service: &Service) -> BTreeSet<Visibility> {
    let mut visibility = service.export_to.clone();
    if visibility.is_empty() {
        let default = &settings.mesh.default_service_export_to;
        visibility = default.iter().map(|entry| Visibility::parse(entry)).collect();
        if visibility.is_empty() {
            visibility.insert(Visibility::Public);
        }
    }
    if visibility.remove(&Visibility::Private) {
        visibility.insert(Visibility::Namespace(service.namespace.as_ref().into()));
    }
    visibility
}

/// Why proxies of a namespace may see a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposure {
    /// The service is exported to all namespaces.
    Public,
    /// The service is exported to the namespace by name.
    Exported,
    /// The service is not exported to the namespace.
    Hidden,
}

fn exposure(settings: &MeshSettings, service: &Service, namespace: &str) -> Exposure {
    // Nearly every service leaves `exportTo` empty, and nearly every mesh exports to all by default.
    let default = &settings.mesh.default_service_export_to;
    let is_public = |entry: &String| Visibility::parse(entry) == Visibility::Public;
    if service.export_to.is_empty() && (default.is_empty() || default.iter().any(is_public)) {
        return Exposure::Public;
    }
    let visibility = effective_visibility(settings, service);
    if visibility.contains(&Visibility::Public) {
        Exposure::Public
    } else if !visibility.contains(&Visibility::None)
        && visibility.contains(&Visibility::Namespace(namespace.into()))
    {
        Exposure::Exported
    } else {
        Exposure::Hidden
    }
}

/// Whether proxies of `namespace` may see a service.
pub fn is_visible(ctx: &Ctx<'_>, service: &Service, namespace: &str) -> bool {
    exposure(&settings(ctx), service, namespace) != Exposure::Hidden
}

/// Whether a service is exported to all namespaces.
pub(crate) fn is_public(ctx: &Ctx<'_>, service: &Service) -> bool {
    // The namespace makes no difference for public services.
    exposure(&settings(ctx), service, "") == Exposure::Public
}

/// The address that a proxy uses for a service: that in its cluster, else an allocated one if its agent answers DNS, else
/// the service's own.
pub fn known_address<'a>(service: &'a Service, addressing: &Addressing) -> &'a str {
    let is_supported = |address: &&String| addressing.supports(address);
    if let Some(address) = cluster_addresses(service, addressing).iter().find(is_supported) {
        return address;
    }
    if addressing.uses_allocated && service.address == NO_ADDRESS {
        let mut allocated = [&service.allocated_v4, &service.allocated_v6].into_iter().flatten();
        if let Some(address) = allocated.find(is_supported) {
            return address;
        }
    }
    &service.address
}

/// All addresses that a proxy uses for a service, without those of IP families it does not have.
pub fn addresses_for(ctx: &Ctx<'_>, service: &Service, addressing: &Addressing) -> Vec<String> {
    known_addresses(&settings(ctx), service, addressing).into_owned()
}

/// [`addresses_for`] without copying where the addresses can be borrowed from the service.
pub fn known_addresses<'a>(
    settings: &MeshSettings,
    service: &'a Service,
    addressing: &Addressing,
) -> Cow<'a, [String]> {
    let flags = &settings.flags;
    let mut addresses = Cow::Borrowed(cluster_addresses(service, addressing));
    if addresses.is_empty() && addressing.uses_allocated {
        addresses = allocated(service);
    }
    let keeps_both = flags.get(ISTIO_DUAL_STACK) || flags.get(PILOT_ENABLE_AMBIENT);
    if !(keeps_both && addressing.ipv4 && addressing.ipv6) {
        addresses = keep_one_family(addresses, addressing);
    }
    if addresses.is_empty() && !service.address.is_empty() {
        // A Kubernetes service that is not in this cluster has the address of another cluster.
        let foreign = !service.cluster_addresses.is_empty();
        if !foreign || addressing.supports(&service.address) {
            return Cow::Borrowed(slice::from_ref(&service.address));
        }
    }
    addresses
}

/// Keeps the addresses of one IP family that the proxy has: that of the first supported address.
fn keep_one_family<'a>(addresses: Cow<'a, [String]>, addressing: &Addressing) -> Cow<'a, [String]> {
    let is_v4 = |address: &String| !address.contains(':');
    let Some(first) = addresses.iter().find(|address| addressing.supports(address)).map(is_v4) else {
        return Cow::Borrowed(&[]);
    };
    if addresses.iter().all(|address| is_v4(address) == first) {
        return addresses;
    }
    addresses.iter().filter(|address| is_v4(address) == first).cloned().collect()
}

fn cluster_addresses<'a>(service: &'a Service, addressing: &Addressing) -> &'a [String] {
    service.cluster_addresses.get(&*addressing.cluster).map_or(&[], Vec::as_slice)
}

fn allocated(service: &Service) -> Cow<'_, [String]> {
    match (&service.allocated_v4, &service.allocated_v6) {
        (Some(v4), Some(v6)) => Cow::Owned(vec![v4.clone(), v6.clone()]),
        (only, None) | (None, only) => Cow::Borrowed(only.as_slice()),
    }
}
