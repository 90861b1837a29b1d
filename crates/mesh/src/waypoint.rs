//! Waypoints: the L7 gateways of an ambient mesh, and the services and workloads attached to them.

mod conditions;
mod front;
#[cfg(test)]
mod tests;
mod unbound;
mod workloads;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::gateway_api::{
    AddressType, FromNamespaces, Gateway, GatewayClass, Listener, RouteNamespaces,
};
use canopus_api::istio::ServiceEntry;
use canopus_api::kube::{Namespace, Service as KubeObject};
use canopus_api::{Kind, Meta, ObjectKey, annotations, labels as known};
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::mesh::v1alpha1::LabelSelector;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::service_scope_configs::Scope;
use canopus_runtime::flags::{AMBIENT_ENABLE_MULTI_NETWORK, PILOT_ENABLE_AMBIENT};

use crate::network::{self, HBONE_PORT};
use crate::proxy::{EAST_WEST_CONTROLLER, MESH_CONTROLLER};
use crate::service::{
    AllServices, EntryVisibility, Resolution, Service, ServiceKey, ServicesByHost, entry_visibility,
    oldest_first,
};
use crate::target::PortTarget;
use crate::world::{Origin, label_selector, namespace, object, settings};
use unbound::Unbound;

pub use conditions::{AmbientConditions, Observation, WriterConditions};
pub use front::{Front, addresses, in_front_of, ingress_waypoints, takes_ingress};
pub use workloads::{WaypointAttachment, WaypointAttachmentOf, WorkloadsBehind, listed_endpoint_attachment};

/// The label value that opts out of waypoints.
const NO_WAYPOINT: &str = "none";

/// A waypoint that services and workloads can attach to.
#[derive(Clone, Debug, PartialEq)]
pub struct Waypoint {
    /// Namespace of the waypoint.
    pub namespace: Arc<str>,
    /// Name of the waypoint.
    pub name: Arc<str>,
    /// The address of the waypoint.
    pub address: Option<WaypointAddress>,
    /// The traffic it handles.
    pub traffic: Traffic,
    /// How ztunnels connect to its instances, if not through HBONE.
    pub binding: Option<Binding>,
    /// The namespaces whose objects may attach.
    allowed: RouteNamespaces,
}

/// How ztunnels connect to the instances of a waypoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Whether connections begin with a PROXY protocol header.
    pub announces_clients: bool,
    /// The port; 0 for the original destination port.
    pub port: u32,
}

impl Binding {
    /// Parses `protocol` or `protocol/port`.
    fn parse(text: &str) -> Option<Self> {
        let (protocol, port) = text.split_once('/').unwrap_or((text, ""));
        let announces_clients = match protocol {
            "PROXY" => true,
            "NONE" => false,
            _ => return None,
        };
        (!port.contains('/')).then(|| Self { announces_clients, port: port.parse().unwrap_or(0) })
    }
}

/// The address of a waypoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaypointAddress {
    /// A host of a namespace.
    Host(Arc<str>, Arc<str>),
    /// An address in a network.
    Address(Arc<str>, IpAddr),
}

/// The traffic that a waypoint handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Traffic to services.
    Services,
    /// Traffic to workload addresses.
    Workloads,
    /// Both.
    All,
    /// Neither.
    None,
}

impl Traffic {
    fn parse(text: &str) -> Self {
        match text {
            "service" => Self::Services,
            "workload" => Self::Workloads,
            "all" => Self::All,
            _ => Self::None,
        }
    }

    /// Whether it includes traffic to workload addresses.
    pub fn has_workloads(self) -> bool {
        matches!(self, Self::Workloads | Self::All)
    }

    /// Whether it includes traffic to services.
    pub fn has_services(self) -> bool {
        matches!(self, Self::Services | Self::All)
    }
}

impl Waypoint {
    /// Namespace and name.
    fn resource_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether objects of a namespace may attach.
    fn allows(&self, name: &str, labels: &Labels) -> bool {
        match &self.allowed.from {
            FromNamespaces::All => true,
            FromNamespaces::Selector => {
                let selector = self.allowed.selector.as_ref().and_then(|selector| selector.compile().ok());
                selector.is_some_and(|selector| selector.matches(labels))
            }
            _ => *self.namespace == *name,
        }
    }
}

/// The waypoint of a Gateway API Gateway; `None` until it has an address.
pub struct Waypoints;

impl Query for Waypoints {
    const NAME: &'static str = "waypoints";
    /// The Gateway.
    type Key = Origin;
    type Value = Option<Arc<Waypoint>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let gateway = object::<Gateway>(ctx, origin)?;
        if gateway.status.addresses.is_empty() {
            return None;
        }
        let class = ObjectKey::new(Kind::GatewayClass, "", &gateway.spec.gateway_class_name);
        let class = object::<GatewayClass>(ctx, &Origin::new(origin.cluster.clone(), class));
        let of_class = class.as_ref().map(|class| &class.meta);
        let label = |meta: &Meta| meta.label(known::WAYPOINT_FOR.name).map(Traffic::parse);
        let traffic = label(&gateway.meta).or_else(|| of_class.and_then(label));
        let annotation =
            |meta: &Meta| meta.annotation(annotations::WAYPOINT_INBOUND_BINDING.name).map(str::to_owned);
        let binding = annotation(&gateway.meta).or_else(|| of_class.and_then(annotation));
        let binding = binding.as_deref().and_then(Binding::parse);
        let listener = listener(&gateway.spec.listeners, binding);
        Some(Arc::new(Waypoint {
            namespace: origin.namespace().into(),
            name: origin.name().into(),
            address: address(ctx, origin, &gateway),
            traffic: traffic.unwrap_or(Traffic::Services),
            binding,
            allowed: listener.map(|listener| listener.allowed_routes.namespaces.clone()).unwrap_or_default(),
        }))
    }
}

/// The address of a waypoint. A host name is preferred, because addresses may be several and may change.
fn address(ctx: &Ctx<'_>, origin: &Origin, gateway: &Gateway) -> Option<WaypointAddress> {
    let addresses = &gateway.status.addresses;
    if let Some(host) = addresses.iter().find(|address| address.r#type == AddressType::Hostname) {
        return Some(WaypointAddress::Host(origin.namespace().into(), (&*host.value).into()));
    }
    let mut ips = addresses.iter().filter(|address| address.r#type == AddressType::IpAddress);
    let ip = ips.find_map(|address| parse_ip(&address.value).ok())?;
    let network = network::network_of_cluster(ctx, &origin.cluster).unwrap_or_default();
    Some(WaypointAddress::Address(network.into(), ip))
}

/// The listener that decides which objects may attach: the one that a binding such as `PROXY/15088` names, else the HBONE one.
fn listener(listeners: &[Listener], binding: Option<Binding>) -> Option<&Listener> {
    let bound = binding.and_then(|binding| {
        listeners.iter().find(|listener| match binding.port {
            0 => binding.announces_clients && &*listener.protocol == "istio.io/PROXY",
            port => u32::from(listener.port) == port,
        })
    });
    let hbone =
        |listener: &&Listener| &*listener.protocol == "HBONE" && u32::from(listener.port) == HBONE_PORT;
    bound.or_else(|| listeners.iter().find(hbone))
}

/// The waypoint that labels of an object or its namespace request.
enum WantedWaypoint {
    /// No `istio.io/use-waypoint` label.
    Unspecified,
    /// The label opts out of waypoints.
    OptedOut,
    /// A Gateway: namespace and name.
    Named(Box<str>, Box<str>),
}

fn wanted(meta: &Meta, name: &str, override_namespace: &str, fallback: &str) -> WantedWaypoint {
    match meta.label(name) {
        None => WantedWaypoint::Unspecified,
        Some(NO_WAYPOINT) => WantedWaypoint::OptedOut,
        Some(gateway) => {
            let namespace = meta.label(override_namespace).unwrap_or(fallback);
            WantedWaypoint::Named(namespace.into(), gateway.into())
        }
    }
}

fn primary(meta: &Meta, fallback: &str) -> WantedWaypoint {
    wanted(meta, known::USE_WAYPOINT.name, known::USE_WAYPOINT_NAMESPACE.name, fallback)
}

fn canary(meta: &Meta, fallback: &str) -> WantedWaypoint {
    wanted(meta, known::USE_WAYPOINT_CANARY.name, known::USE_WAYPOINT_CANARY_NAMESPACE.name, fallback)
}

/// The waypoints in front of a Service or ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceWaypoints {
    /// The waypoint that the object or its namespace names.
    pub primary: Option<Arc<Waypoint>>,
    /// The canary waypoint, and its percentage of new connections.
    pub canary: Option<(Arc<Waypoint>, u32)>,
}

impl ServiceWaypoints {
    /// The waypoints, the canary last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Waypoint>> {
        self.primary.iter().chain(self.canary.iter().map(|(waypoint, _)| waypoint))
    }
}

/// The waypoints of a Service or ServiceEntry: the one that it or its namespace names, and the canary.
pub struct WaypointsOf;

impl Query for WaypointsOf {
    const NAME: &'static str = "waypoints_of";
    /// The object.
    type Key = Origin;
    type Value = ServiceWaypoints;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        if !settings(ctx).flags.get(PILOT_ENABLE_AMBIENT) {
            return ServiceWaypoints::default();
        }
        match origin.key.kind {
            Kind::Service => {
                object::<KubeObject>(ctx, origin).map(|object| find_waypoints(ctx, origin, &object.meta))
            }
            Kind::ServiceEntry => {
                object::<ServiceEntry>(ctx, origin).map(|object| find_waypoints(ctx, origin, &object.meta))
            }
            _ => None,
        }
        .unwrap_or_default()
    }
}

fn find_waypoints(ctx: &Ctx<'_>, origin: &Origin, meta: &Meta) -> ServiceWaypoints {
    bind_service(ctx, origin, meta).0
}

/// The waypoints of a Service or ServiceEntry, and why one that it names is not among them.
fn bind_service(ctx: &Ctx<'_>, origin: &Origin, meta: &Meta) -> (ServiceWaypoints, Option<Unbound>) {
    // The Service of a waypoint or east-west gateway has no waypoint itself.
    let managed = meta.label(known::GATEWAY_MANAGED.name);
    if matches!(managed, Some(MESH_CONTROLLER | EAST_WEST_CONTROLLER)) {
        return Default::default();
    }
    let home = namespace(ctx, &origin.cluster, origin.namespace());
    let lookup = WaypointLookup { ctx, cluster: &origin.cluster, namespace: origin.namespace() };
    let find = |named: WantedWaypoint| {
        let Some(found) = lookup.find(named, home.as_deref())? else { return Ok(None) };
        if !found.traffic.has_services() {
            return Err(Unbound::UnsupportedTraffic(found.resource_name(), "service"));
        }
        // A waypoint of another namespace would show that namespace an entry it must not see.
        let is_kept_home = origin.key.kind == Kind::ServiceEntry
            && *found.namespace != *origin.namespace()
            && entry_visibility(ctx, origin) == EntryVisibility::Namespace;
        if is_kept_home { Err(Unbound::CrossNamespace(found.resource_name())) } else { Ok(Some(found)) }
    };
    let own = primary(meta, origin.namespace());
    let inherits = matches!(own, WantedWaypoint::Unspecified);
    let of_home = home.as_ref().filter(|_| inherits).map(|home| &home.meta);
    let first = match find(inherited(own, home.as_deref(), origin.namespace())) {
        Ok(Some(first)) => first,
        Ok(None) => return Default::default(),
        Err(why) => return (ServiceWaypoints::default(), Some(why)),
    };
    let second = match canary(meta, origin.namespace()) {
        WantedWaypoint::Unspecified => {
            of_home.map_or(WantedWaypoint::Unspecified, |home| canary(home, origin.namespace()))
        }
        own => own,
    };
    let bound = |canary| ServiceWaypoints { primary: Some(Arc::clone(&first)), canary };
    let WantedWaypoint::Named(namespace, name) = &second else { return (bound(None), None) };
    let named = format!("{namespace}/{name}");
    if named == first.resource_name() {
        return (bound(None), Some(Unbound::CanaryIsPrimary(named)));
    }
    let Some(weight) = canary_weight(meta, of_home) else {
        return (bound(None), Some(Unbound::CanaryWeight(named)));
    };
    match find(second) {
        Ok(second) => (bound(second.map(|second| (second, weight))), None),
        Err(why) => (bound(None), Some(why)),
    }
}

/// The request of an object, else that of its namespace.
fn inherited(own: WantedWaypoint, home: Option<&Namespace>, namespace: &str) -> WantedWaypoint {
    match own {
        WantedWaypoint::Unspecified => {
            home.map_or(WantedWaypoint::Unspecified, |home| primary(&home.meta, namespace))
        }
        own => own,
    }
}

/// Looks up waypoints for an object of a namespace.
struct WaypointLookup<'a> {
    ctx: &'a Ctx<'a>,
    cluster: &'a Arc<str>,
    namespace: &'a str,
}

impl WaypointLookup<'_> {
    /// Finds the requested waypoint: `None` if none is requested, an error if it cannot be used.
    fn find(
        &self,
        wanted: WantedWaypoint,
        home: Option<&Namespace>,
    ) -> Result<Option<Arc<Waypoint>>, Unbound> {
        let WantedWaypoint::Named(namespace, name) = wanted else { return Ok(None) };
        let gateway = ObjectKey::new(Kind::KubernetesGateway, &namespace, &name);
        let waypoint = self.ctx.get::<Waypoints>(&Origin::new(self.cluster.clone(), gateway));
        let Some(waypoint) = waypoint.as_ref() else {
            return Err(Unbound::NotReady(format!("{namespace}/{name}")));
        };
        let labels = home.map(|home| home.meta.labels.clone()).unwrap_or_default();
        if !waypoint.allows(self.namespace, &labels) {
            return Err(Unbound::Denied(waypoint.resource_name()));
        }
        Ok(Some(Arc::clone(waypoint)))
    }
}

/// The percentage of a canary waypoint; `None` if the annotation is invalid.
fn canary_weight(meta: &Meta, home: Option<&Meta>) -> Option<u32> {
    let annotation =
        |meta: &Meta| meta.annotation(annotations::USE_WAYPOINT_CANARY_WEIGHT.name).map(str::to_owned);
    match annotation(meta).or_else(|| home.and_then(annotation)) {
        Some(weight) => weight.parse::<u32>().ok().filter(|weight| *weight <= 100),
        None => Some(0),
    }
}

/// The services attached to each waypoint, by its address.
struct AttachedServices;

impl Query for AttachedServices {
    const NAME: &'static str = "attached_services";
    type Key = ();
    type Value = BTreeMap<WaypointAddress, Vec<ServiceKey>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let here = settings(ctx).cluster.clone();
        let mut attached = Self::Value::new();
        for service in
            ctx.get::<AllServices>(&()).iter().filter(|service| service.resolution != Resolution::Alias)
        {
            let Some(origin) = service.origins.iter().find(|origin| origin.cluster == here) else { continue };
            for waypoint in ctx.get::<WaypointsOf>(origin).iter() {
                let Some(address) = waypoint.address.clone() else { continue };
                let keys = attached.entry(address).or_default();
                if !keys.contains(&service.key()) {
                    keys.push(service.key());
                }
            }
        }
        attached
    }
}

/// Whether a Service is global, that is visible in all networks, by the `serviceScopeConfigs` of the mesh config.
pub struct IsGlobal;

impl Query for IsGlobal {
    const NAME: &'static str = "is_global_service";
    /// The Service.
    type Key = Origin;
    type Value = bool;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> bool {
        let settings = settings(ctx);
        let Some(service) = object::<KubeObject>(ctx, origin) else { return false };
        let Some(home) = namespace(ctx, &origin.cluster, origin.namespace()) else { return false };
        settings.mesh.service_scope_configs.iter().any(|config| {
            config.scope() == Scope::Global
                && selects(config.namespace_selector.as_ref(), &home.meta.labels)
                && selects(config.services_selector.as_ref(), &service.meta.labels)
        })
    }
}

/// Whether a selector of the mesh config matches labels. A missing selector matches all.
fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return true };
    label_selector(selector).is_ok_and(|selector| selector.matches(labels))
}

/// The services that other networks may call: global ones, and the waypoints of global ones.
fn global_services(ctx: &Ctx<'_>) -> Vec<ServiceKey> {
    let here = settings(ctx).cluster.clone();
    let is_global = |service: &Service| {
        let origin = service.origins.iter().find(|origin| origin.cluster == here);
        origin.is_some_and(|origin| *ctx.get::<IsGlobal>(origin))
    };
    let attached = ctx.get::<AttachedServices>(&());
    let leads_to_global = |service: &Service| {
        let address = WaypointAddress::Host(service.namespace.clone(), service.host.clone());
        let mut behind = attached.get(&address).into_iter().flatten();
        behind.any(|key| crate::service::service(ctx, key).is_some_and(|service| is_global(&service)))
    };
    let all = ctx.get::<AllServices>(&());
    all.iter()
        .filter(|service| is_global(service) || leads_to_global(service))
        .map(|service| service.key())
        .collect()
}

/// A waypoint proxy as the objects attached to it see it: the key of [`ServicesBehind`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaypointRunner {
    /// The namespace of the proxy.
    pub namespace: Arc<str>,
    /// Whether it is a gateway between networks.
    pub is_east_west_gateway: bool,
    /// The cluster it runs in.
    pub cluster: Arc<str>,
    /// The network it is in.
    pub network: Arc<str>,
    /// The service ports that lead to the proxy.
    pub port_targets: Vec<PortTarget>,
}

/// The services behind a waypoint proxy, oldest first, one for each host. Behind an east-west gateway are all services that
/// other networks may call.
pub struct ServicesBehind;

impl Query for ServicesBehind {
    const NAME: &'static str = "services_behind_waypoint";
    type Key = WaypointRunner;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, waypoint: &WaypointRunner) -> Self::Value {
        let crosses = waypoint.is_east_west_gateway && settings(ctx).flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
        let keys = if crosses {
            global_services(ctx)
        } else {
            let attached = ctx.get::<AttachedServices>(&());
            let addresses = addresses_of_proxy(ctx, waypoint);
            addresses.iter().filter_map(|address| attached.get(address)).flatten().cloned().collect()
        };
        let mut by_host: BTreeMap<Arc<str>, Arc<Service>> = BTreeMap::new();
        for key in &keys {
            let Some(service) = crate::service::service(ctx, key) else { continue };
            // Dynamic DNS works for external names only.
            if service.resolution != Resolution::DynamicDns || service.external {
                by_host.insert(service.host.clone(), service);
            }
        }
        let mut services: Vec<_> = by_host.into_values().collect();
        oldest_first(&mut services);
        services
    }
}

/// The addresses of a waypoint proxy: the hosts and IPs of its own Services.
fn addresses_of_proxy(ctx: &Ctx<'_>, waypoint: &WaypointRunner) -> Vec<WaypointAddress> {
    let mut found = Vec::new();
    for target in &waypoint.port_targets {
        found.push(WaypointAddress::Host(waypoint.namespace.clone(), target.host.clone()));
        let services = ctx.get::<ServicesByHost>(&target.host);
        let Some(service) = services.get(&target.namespace) else { continue };
        let cluster = &*waypoint.cluster;
        let in_cluster = if waypoint.is_east_west_gateway {
            service.kube.as_ref().and_then(|kube| kube.external_addresses.get(cluster))
        } else {
            service.cluster_addresses.get(cluster)
        };
        let allocated: Vec<_> =
            [&service.allocated_v4, &service.allocated_v6].into_iter().flatten().cloned().collect();
        let addresses =
            if allocated.is_empty() { in_cluster.cloned().unwrap_or_default() } else { allocated };
        let network = &waypoint.network;
        let ips = addresses.iter().filter_map(|address| parse_ip(address).ok());
        found.extend(ips.map(|ip| WaypointAddress::Address(network.clone(), ip)));
    }
    found.sort();
    found.dedup();
    found
}
