//! Services of the ambient mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::istio::ServiceEntry;
use canopus_api::kube::{Service as KubeService, ServicePort, ServiceType};
use canopus_api::value::IntOrString;
use canopus_api::{Kind, ObjectKey};
use canopus_base::host;
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::service::{EntryVisibility, ServicesOf, TrafficDistribution, entry_visibility};
use canopus_mesh::waypoint::{IsGlobal, ServiceWaypoints, WaypointsOf, takes_ingress};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, object, settings};
use canopus_proto::istio::networking::v1alpha3::service_entry::Resolution;
use canopus_proto::istio::workload::load_balancing::{HealthPolicy, Mode, Scope};
use canopus_proto::istio::workload::service::Visibility;
use canopus_proto::istio::workload::{
    AppProtocol, IpFamilies, LoadBalancing, Port, Service, WeightedWaypoint,
};
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;
use jiff::Timestamp;

use crate::{address, network};

/// A service resource with what its workloads need.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceInfo {
    pub(crate) service: Service,
    /// The workload selector; empty if there is none.
    pub(crate) selector: Labels,
    /// The name of each port by number, and the name of its target port if that is a name.
    pub(crate) port_names: BTreeMap<u32, (String, String)>,
    /// Whether a Kubernetes Service defines it.
    pub(crate) is_kube: bool,
    /// The object.
    pub(crate) origin: Origin,
    /// The namespace and name of its waypoint.
    pub(crate) waypoint: Option<(String, String)>,
    /// Whether it is global, that is visible in all networks.
    pub(crate) is_global: bool,
    created: Option<Timestamp>,
}

impl ServiceInfo {
    /// `namespace/host`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.service.namespace, self.service.hostname)
    }
}

/// The services that an object defines.
pub(crate) struct ServiceInfosOf;

impl Query for ServiceInfosOf {
    const NAME: &'static str = "ambient_services_of";
    type Key = Origin;
    type Value = Vec<Arc<ServiceInfo>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let infos = match origin.key.kind {
            Kind::Service => convert_service(ctx, origin).into_iter().collect(),
            Kind::ServiceEntry => convert_service_entry(ctx, origin),
            _ => Vec::new(),
        };
        infos.into_iter().map(Arc::new).collect()
    }
}

/// The services of a namespace in a cluster, one for each host: the Kubernetes Service, else the oldest ServiceEntry.
pub(crate) struct ServiceInfosIn;

impl Query for ServiceInfosIn {
    const NAME: &'static str = "ambient_services_in";
    /// Cluster and namespace.
    type Key = (Arc<str>, Arc<str>);
    type Value = Vec<Arc<ServiceInfo>>;

    fn run(ctx: &Ctx<'_>, (cluster, namespace): &Self::Key) -> Self::Value {
        let mut by_host: BTreeMap<String, Arc<ServiceInfo>> = BTreeMap::new();
        for kind in [Kind::Service, Kind::ServiceEntry] {
            let index = ObjectIndex::InCluster(kind, cluster.clone(), namespace.as_ref().into());
            for origin in ctx.members::<Objects>(&index).iter() {
                for info in ctx.get::<ServiceInfosOf>(origin).iter() {
                    let present = by_host.get(&info.service.hostname);
                    let wins =
                        |present: &Arc<ServiceInfo>| !present.is_kube && info.created < present.created;
                    if present.is_none_or(wins) {
                        by_host.insert(info.service.hostname.clone(), info.clone());
                    }
                }
            }
        }
        by_host.into_values().collect()
    }
}

/// The services of a namespace in a cluster, in a mesh with one network.
pub(crate) fn in_namespace(ctx: &Ctx<'_>, key: &(Arc<str>, Arc<str>)) -> Vec<Service> {
    ctx.get::<ServiceInfosIn>(key).iter().map(|info| resource(ctx, info)).collect()
}

/// The resource that clients receive for a service.
pub(crate) fn resource(ctx: &Ctx<'_>, info: &ServiceInfo) -> Service {
    let canonical = info.service.canonical || is_canonical(ctx, &settings(ctx).cluster, info);
    Service { canonical, ..info.service.clone() }
}

/// All services by `namespace/host`. Global services have the addresses of all clusters.
pub(crate) fn merged(ctx: &Ctx<'_>) -> BTreeMap<String, Arc<ServiceInfo>> {
    let settings = settings(ctx);
    let here = &settings.cluster;
    let mut found: BTreeMap<String, Arc<ServiceInfo>> = BTreeMap::new();
    for (cluster, namespace) in namespaces(ctx) {
        for info in ctx.get::<ServiceInfosIn>(&(cluster.clone(), namespace)).iter() {
            if cluster != *here && !info.is_global {
                continue;
            }
            match found.get_mut(&info.key()) {
                None => {
                    found.insert(info.key(), info.clone());
                }
                Some(known) if known.is_global => add_addresses(known, info),
                Some(_) => {}
            }
        }
    }
    found
}

/// The clusters and namespaces with services, the own cluster first. Other clusters are included in multi-network meshes only.
pub(crate) fn namespaces(ctx: &Ctx<'_>) -> Vec<(Arc<str>, Arc<str>)> {
    let settings = settings(ctx);
    let everywhere = settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
    let mut found = BTreeSet::new();
    for kind in [Kind::Service, Kind::ServiceEntry] {
        for origin in ctx.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
            let is_here = origin.cluster == settings.cluster;
            if is_here || everywhere {
                found.insert((!is_here, origin.cluster.clone(), Arc::from(origin.namespace())));
            }
        }
    }
    found.into_iter().map(|(_, cluster, namespace)| (cluster, namespace)).collect()
}

/// Adds the addresses of a service in another cluster.
fn add_addresses(known: &mut Arc<ServiceInfo>, other: &ServiceInfo) {
    let service = &mut Arc::make_mut(known).service;
    for address in &other.service.addresses {
        if !service.addresses.contains(address) {
            service.addresses.push(address.clone());
        }
    }
    service.addresses.sort_by(|a, b| (&a.network, &a.address).cmp(&(&b.network, &b.address)));
}

/// Whether a ServiceEntry is what its host means in other namespaces: there is no Kubernetes Service, and it is the oldest.
fn is_canonical(ctx: &Ctx<'_>, here: &Arc<str>, info: &ServiceInfo) -> bool {
    if names_kube_service(ctx, here, &info.service.hostname) {
        return false;
    }
    let entries =
        ctx.members::<Objects>(&ObjectIndex::ServiceEntryHost(info.service.hostname.as_str().into()));
    let others = entries.iter().flat_map(|origin| ctx.get::<ServiceInfosOf>(origin).to_vec());
    let mut others = others.filter(|other| other.service.hostname == info.service.hostname);
    let age = |info: &ServiceInfo| (info.created, info.origin.clone());
    others.all(|other| age(info) <= age(&other))
}

/// Whether a host is that of an existing Kubernetes Service.
fn names_kube_service(ctx: &Ctx<'_>, here: &Arc<str>, host: &str) -> bool {
    let suffix = format!(".svc.{}", settings(ctx).domain);
    let named = host.strip_suffix(&suffix).and_then(|rest| rest.split_once('.'));
    named.is_some_and(|(name, namespace)| {
        let origin = Origin::new(here.clone(), ObjectKey::new(Kind::Service, namespace, name));
        object::<KubeService>(ctx, &origin).is_some()
    })
}

fn convert_service(ctx: &Ctx<'_>, origin: &Origin) -> Option<ServiceInfo> {
    let object = object::<KubeService>(ctx, origin)?;
    let spec = &object.spec;
    if spec.r#type == ServiceType::ExternalName {
        return None;
    }
    let services = ctx.get::<ServicesOf>(origin);
    let converted = services.first()?;
    let network = network::network_of_cluster(ctx, &origin.cluster);
    let port = |port: &ServicePort| {
        let number = u32::from(port.port);
        let protocol = converted.port(number).map_or(Protocol::Tcp, |known| known.protocol);
        let target_port = match &port.target_port {
            Some(IntOrString::Int(number)) => u32::try_from(*number).unwrap_or(0),
            _ => 0,
        };
        Port { service_port: number, target_port, app_protocol: app_protocol(protocol) as i32 }
    };
    let addresses = match spec.cluster_ips.as_slice() {
        [] => std::slice::from_ref(&spec.cluster_ip),
        several => several,
    };
    let addresses = addresses.iter().filter(|ip| !ip.is_empty() && &***ip != "None");
    let addresses: Option<Vec<_>> =
        addresses.map(|ip| Some(address::in_network(&network, parse_ip(ip).ok()?))).collect();
    let service = Service {
        name: origin.name().to_owned(),
        namespace: origin.namespace().to_owned(),
        hostname: converted.host.to_string(),
        addresses: addresses?,
        ports: spec.ports.iter().map(port).collect(),
        load_balancing: load_balancing(&object, converted.traffic_distribution),
        ip_families: ip_families(&spec.ip_families) as i32,
        canonical: true,
        ..Default::default()
    };
    let names = spec.ports.iter().map(|port| {
        let target = match &port.target_port {
            Some(IntOrString::String(name)) => name.to_string(),
            _ => String::new(),
        };
        (u32::from(port.port), (port.name.to_string(), target))
    });
    let is_global = settings(ctx).flags.get(AMBIENT_ENABLE_MULTI_NETWORK) && *ctx.get::<IsGlobal>(origin);
    Some(behind_waypoints(
        ctx,
        ServiceInfo {
            service,
            selector: spec.selector.clone(),
            port_names: names.collect(),
            is_kube: true,
            origin: origin.clone(),
            waypoint: None,
            is_global,
            created: object.meta.creation_timestamp,
        },
    ))
}

fn convert_service_entry(ctx: &Ctx<'_>, origin: &Origin) -> Vec<ServiceInfo> {
    let Some(object) = object::<ServiceEntry>(ctx, origin) else { return Vec::new() };
    let visibility = match entry_visibility(ctx, origin) {
        EntryVisibility::Public => Visibility::Public,
        EntryVisibility::Namespace => Visibility::Namespace,
        EntryVisibility::None => return Vec::new(),
    };
    let spec = &object.spec;
    let network = network::network_of_cluster(ctx, &origin.cluster);
    let written: Option<Vec<_>> =
        spec.addresses.iter().map(|text| address::range_in_network(&network, text)).collect();
    let Some(written) = written else { return Vec::new() };
    let services = ctx.get::<ServicesOf>(origin);
    let passes_through = spec.resolution() == Resolution::None;
    let distribution =
        services.first().map_or(TrafficDistribution::Any, |service| service.traffic_distribution);
    let balancing = if passes_through {
        Some(LoadBalancing {
            mode: Mode::Passthrough as i32,
            health_policy: HealthPolicy::AllowAll as i32,
            ..Default::default()
        })
    } else {
        nearest_first(distribution)
    };
    let ports: Vec<_> = spec
        .ports
        .iter()
        .map(|port| Port {
            service_port: port.number,
            target_port: if port.target_port == 0 { port.number } else { port.target_port },
            app_protocol: app_protocol(Protocol::parse(&port.protocol)) as i32,
        })
        .collect();
    let allocated = |name: &String| {
        let dynamic = spec.resolution() == Resolution::DynamicDns;
        if passes_through || (host::is_wildcard(name) && !dynamic) {
            return Vec::new();
        }
        let of_host = services.iter().find(|service| *service.host == **name);
        let addresses =
            of_host.into_iter().flat_map(|service| [&service.allocated_v4, &service.allocated_v6]);
        let addresses = addresses.flatten().filter_map(|text| parse_ip(text).ok());
        addresses.map(|ip| address::in_network(&network, ip)).collect()
    };
    let selector = spec.workload_selector.iter().flat_map(|selector| &selector.labels);
    let selector: Labels = selector.map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let names: BTreeMap<_, _> =
        spec.ports.iter().map(|port| (port.number, (port.name.clone(), String::new()))).collect();
    let info = |name: &String| ServiceInfo {
        service: Service {
            name: origin.name().to_owned(),
            namespace: origin.namespace().to_owned(),
            hostname: name.clone(),
            addresses: if written.is_empty() { allocated(name) } else { written.clone() },
            ports: ports.clone(),
            subject_alt_names: spec.subject_alt_names.clone(),
            load_balancing: balancing.clone(),
            visibility: visibility as i32,
            ..Default::default()
        },
        selector: selector.clone(),
        port_names: names.clone(),
        is_kube: false,
        origin: origin.clone(),
        waypoint: None,
        is_global: false,
        created: object.meta.creation_timestamp,
    };
    let infos = spec.hosts.iter().map(info);
    infos.map(|info| behind_waypoints(ctx, info)).collect()
}

/// Adds the waypoints of a service.
fn behind_waypoints(ctx: &Ctx<'_>, mut info: ServiceInfo) -> ServiceInfo {
    let ServiceWaypoints { primary, canary } = ctx.get::<WaypointsOf>(&info.origin).as_ref().clone();
    let Some(primary) = primary else { return info };
    info.waypoint = Some((primary.namespace.to_string(), primary.name.to_string()));
    info.service.waypoint = address::waypoint_address(&primary);
    info.service.ingress_use_waypoint = takes_ingress(ctx, &info.origin);
    if let Some((canary, weight)) = canary {
        let weighted =
            |waypoint, weight| WeightedWaypoint { destination: address::waypoint_address(waypoint), weight };
        info.service.weighted_waypoints = vec![weighted(&primary, 100 - weight), weighted(&canary, weight)];
    }
    info
}

fn load_balancing(object: &KubeService, distribution: TrafficDistribution) -> Option<LoadBalancing> {
    let mut balancing = if object.spec.internal_traffic_policy.as_deref() == Some("Local") {
        let mode = Mode::Strict as i32;
        Some(LoadBalancing { routing_preference: vec![Scope::Node as i32], mode, ..Default::default() })
    } else {
        nearest_first(distribution)
    };
    if object.spec.publish_not_ready_addresses {
        balancing.get_or_insert_default().health_policy = HealthPolicy::AllowAll as i32;
    }
    balancing
}

/// Prefers near workloads and fails over to farther ones.
fn nearest_first(distribution: TrafficDistribution) -> Option<LoadBalancing> {
    let zone = [Scope::Network, Scope::Region, Scope::Zone];
    let scopes: Vec<Scope> = match distribution {
        TrafficDistribution::Any => return None,
        TrafficDistribution::PreferSameZone => zone.to_vec(),
        TrafficDistribution::PreferSameNode => {
            zone.into_iter().chain([Scope::Subzone, Scope::Node]).collect()
        }
    };
    Some(LoadBalancing {
        routing_preference: scopes.into_iter().map(|scope| scope as i32).collect(),
        mode: Mode::Failover as i32,
        ..Default::default()
    })
}

fn ip_families(families: &[Box<str>]) -> IpFamilies {
    match families {
        [_, _] => IpFamilies::Dual,
        [only] if &**only == "IPv4" => IpFamilies::Ipv4Only,
        [_] => IpFamilies::Ipv6Only,
        _ => IpFamilies::Automatic,
    }
}

fn app_protocol(protocol: Protocol) -> AppProtocol {
    match protocol {
        Protocol::Http => AppProtocol::Http11,
        Protocol::Http2 => AppProtocol::Http2,
        Protocol::Grpc => AppProtocol::Grpc,
        Protocol::Tls | Protocol::Https => AppProtocol::Tls,
        Protocol::Tcp => AppProtocol::Tcp,
        _ => AppProtocol::Unknown,
    }
}
