//! Services: everything that can be called by name, whatever registry defines it.

mod all;
mod allocation;
mod entry;
mod index;
mod kube;
mod plan;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use canopus_api::visibility::Visibility;
use canopus_api::{Kind, Object, labels as known};
use canopus_base::labels::Labels;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
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

/// The address of a service that has none.
pub const NO_ADDRESS: &str = "0.0.0.0";

/// What identifies a service: two namespaces may define the same host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The name it is called by.
    pub host: Arc<str>,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
}

impl ServiceKey {
    /// A service of a namespace.
    pub fn new(host: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>) -> Self {
        Self { host: host.into(), namespace: namespace.into() }
    }
}

/// Something that can be called by name.
///
/// A ServiceEntry makes one for each of its hosts and addresses; Kubernetes services of the same name in several clusters
/// are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The name it is called by.
    pub host: Arc<str>,
    /// Its short name: that of the Kubernetes service, or the host.
    pub name: Arc<str>,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
    /// Its ports, in the order of their definition.
    pub ports: Vec<Port>,
    /// How a proxy finds its endpoints.
    pub resolution: Resolution,
    /// Whether it lives outside the mesh.
    pub external: bool,
    /// Who defines it.
    pub registry: Registry,
    /// When it was defined.
    pub created: Option<Timestamp>,
    /// The labels of the object.
    pub labels: Labels,
    /// Who may see it; empty means as the mesh's default says.
    pub export_to: BTreeSet<Visibility>,
    /// Its virtual addresses in each cluster; in those that are not listed it has [`Self::address`].
    pub cluster_addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// Its address where no cluster has one: an IP, a CIDR, or [`NO_ADDRESS`].
    pub address: String,
    /// The IPv4 address that was allocated for it.
    pub allocated_v4: Option<String>,
    /// The IPv6 address that was allocated for it.
    pub allocated_v6: Option<String>,
    /// Identities its endpoints may have besides their own.
    pub service_accounts: Vec<String>,
    /// The labels of the workloads behind it; empty if it does not select any.
    pub selector: Labels,
    /// Which endpoints are preferred.
    pub traffic_distribution: TrafficDistribution,
    /// What only a Kubernetes service has.
    pub kube: Option<KubeService>,
    /// Ports to go to where the original destination is used, by service port.
    pub passthrough_target_ports: BTreeMap<u32, u32>,
    /// Whether a proxy that resolves its name races connections to all addresses.
    pub races_connections: bool,
    /// `ExternalName` services that stand for it.
    pub aliases: Vec<ServiceKey>,
    /// The objects it comes from, the one that decides first.
    pub origins: Vec<Origin>,
}

/// What only a Kubernetes service has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeService {
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    pub kind: Box<str>,
    /// The host an `ExternalName` service stands for.
    pub external_name: Option<Arc<str>>,
    /// Whether traffic stays on the node.
    pub node_local: bool,
    /// Whether endpoints count before they are ready.
    pub publish_not_ready: bool,
    /// Whether it has `clusterIP: None`.
    pub headless: bool,
    /// Addresses from outside, in each cluster.
    pub external_addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// Node ports by service port, in each cluster, of services that say which nodes to use.
    pub node_ports: BTreeMap<Arc<str>, BTreeMap<u32, u32>>,
}

/// Who defines a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registry {
    /// A ServiceEntry. (First: shards of endpoints are in this order.)
    External,
    /// A Kubernetes cluster.
    Kubernetes,
}

/// Which endpoints are preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// None in particular.
    #[default]
    Any,
    /// Those in the same zone.
    PreferSameZone,
    /// Those on the same node.
    PreferSameNode,
}

impl TrafficDistribution {
    /// The labels that preferred endpoints share with the client, the widest first.
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

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Its number, as callers use it.
    pub number: u32,
    /// Its name.
    pub name: Arc<str>,
    /// What is spoken on it.
    pub protocol: Protocol,
}

/// How a proxy finds the endpoints of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// The control plane lists them.
    Listed,
    /// The proxy resolves a name and uses all addresses.
    Dns,
    /// The proxy goes where the client wanted to go.
    Passthrough,
    /// The proxy resolves a name and uses one address at a time.
    DnsRoundRobin,
    /// It is another name of a service: `ExternalName`.
    Alias,
    /// The proxy resolves whatever name the request carries.
    DynamicDns,
}

impl Service {
    /// Whether clients of the service are kept with one endpoint, so that endpoints drain.
    pub fn keeps_sessions(&self, flags: &Flags) -> bool {
        let labels =
            [flags.get(PILOT_PERSISTENT_SESSION_LABEL), flags.get(PILOT_PERSISTENT_SESSION_HEADER_LABEL)];
        labels.into_iter().any(|label| self.has_label(label))
    }

    /// Whether the service has a label of this name with a value; the empty name is nobody's.
    pub fn has_label(&self, name: &str) -> bool {
        !name.is_empty() && self.labels.get(name).is_some_and(|value| !value.is_empty())
    }

    /// What stands for a service where there is none: a name for statistics, outside the mesh.
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

    /// What identifies it.
    pub fn key(&self) -> ServiceKey {
        ServiceKey::new(self.host.clone(), self.namespace.clone())
    }

    /// Whether it has no address of its own in Kubernetes.
    pub fn is_headless(&self) -> bool {
        self.kube.as_ref().is_some_and(|kube| kube.headless)
    }

    /// The port of this number.
    pub fn port(&self, number: u32) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// The port of this name.
    pub fn port_named(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| &*port.name == name)
    }

    /// Whether it is defined in Kubernetes.
    pub fn is_kubernetes(&self) -> bool {
        self.registry == Registry::Kubernetes
    }
}

impl Resolution {
    /// Whether proxies resolve names for it.
    pub fn is_dns(self) -> bool {
        matches!(self, Self::Dns | Self::DnsRoundRobin)
    }
}

/// The services one object defines.
pub struct ServicesOf;

impl Query for ServicesOf {
    const NAME: &'static str = "services_of";
    type Key = Origin;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        match world::any_object(ctx, origin).as_deref() {
            Some(Object::Service(service)) => vec![Arc::new(kube::convert(ctx, origin, service))],
            Some(Object::ServiceEntry(entry)) => {
                entry::convert(ctx, origin, entry).into_iter().map(Arc::new).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The Kubernetes service of a namespace and name, merged over all clusters that have it.
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

/// The service that identifies itself by this key.
pub fn service(ctx: &Ctx<'_>, key: &ServiceKey) -> Option<Arc<Service>> {
    ctx.get::<ServicesByHost>(&key.host).get(&key.namespace).cloned()
}

/// Who may see a service, the mesh's default applied. `Private` has become the service's namespace.
pub fn visibility(ctx: &Ctx<'_>, service: &Service) -> BTreeSet<Visibility> {
    effective_visibility(&settings(ctx), service)
}

fn effective_visibility(settings: &MeshSettings, service: &Service) -> BTreeSet<Visibility> {
    let mut said = service.export_to.clone();
    if said.is_empty() {
        let default = &settings.mesh.default_service_export_to;
        said = default.iter().map(|entry| Visibility::parse(entry)).collect();
        if said.is_empty() {
            said.insert(Visibility::Public);
        }
    }
    if said.remove(&Visibility::Private) {
        said.insert(Visibility::Namespace(service.namespace.as_ref().into()));
    }
    said
}

/// How proxies of one namespace come to see a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposure {
    /// As everybody does.
    Public,
    /// Their namespace is named.
    Exported,
    /// They do not.
    Hidden,
}

fn exposure(settings: &MeshSettings, service: &Service, namespace: &str) -> Exposure {
    // Nearly every service says nothing, and nearly every mesh means everybody by that.
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

/// Whether everybody may see a service.
pub(crate) fn is_public(ctx: &Ctx<'_>, service: &Service) -> bool {
    // Which namespace is asked about makes no difference to what everybody sees.
    exposure(&settings(ctx), service, "") == Exposure::Public
}

/// The address a proxy knows a service by: that of its cluster, else one allocated for proxies that ask their agent for
/// names, else the service's own.
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

/// All addresses a proxy knows a service by; those of IP families it does not have are left out.
pub fn addresses_for(ctx: &Ctx<'_>, service: &Service, addressing: &Addressing) -> Vec<String> {
    known_addresses(&settings(ctx), service, addressing).into_owned()
}

/// The same, of a service whose addresses need not outlive it.
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
        // The address of a Kubernetes service that this cluster does not have is that of another cluster.
        let foreign = !service.cluster_addresses.is_empty();
        if !foreign || addressing.supports(&service.address) {
            return Cow::Borrowed(slice::from_ref(&service.address));
        }
    }
    addresses
}

/// The addresses of a family the proxy has; if it has both, those of the first address's family.
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
