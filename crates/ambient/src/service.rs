//! Services as ztunnels know them.

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
use canopus_mesh::service::{ServicesOf, TrafficDistribution};
use canopus_mesh::waypoint::{IsGlobal, ServiceWaypoints, WaypointsOf, takes_ingress};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, object, settings};
use canopus_proto::istio::networking::v1alpha3::service_entry::Resolution;
use canopus_proto::istio::workload::load_balancing::{HealthPolicy, Mode, Scope};
use canopus_proto::istio::workload::{
    AppProtocol, IpFamilies, LoadBalancing, Port, Service, WeightedWaypoint,
};
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;
use jiff::Timestamp;

use crate::{address, network, split_horizon};

/// A service, and what its workloads have to know of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Info {
    pub(crate) service: Service,
    /// The labels of its workloads; none if it does not select any.
    pub(crate) selector: Labels,
    /// The names of its ports by number: of the service, and of the workload if that is how it is given.
    pub(crate) port_names: BTreeMap<u32, (String, String)>,
    /// Whether a Kubernetes Service defines it.
    pub(crate) is_kube: bool,
    /// The object.
    pub(crate) origin: Origin,
    /// The waypoint in front of it: namespace and name.
    pub(crate) waypoint: Option<(String, String)>,
    /// Whether it is known in all networks.
    pub(crate) is_global: bool,
    created: Option<Timestamp>,
}

impl Info {
    /// `namespace/host`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.service.namespace, self.service.hostname)
    }
}

/// The services that an object defines.
pub(crate) struct InfosOf;

impl Query for InfosOf {
    const NAME: &'static str = "ambient_services_of";
    type Key = Origin;
    type Value = Vec<Arc<Info>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let infos = match origin.key.kind {
            Kind::Service => of_kube(ctx, origin).into_iter().collect(),
            Kind::ServiceEntry => of_entry(ctx, origin),
            _ => Vec::new(),
        };
        infos.into_iter().map(Arc::new).collect()
    }
}

/// The services of a namespace in a cluster, one for each host: that of Kubernetes, else the oldest.
pub(crate) struct InfosIn;

impl Query for InfosIn {
    const NAME: &'static str = "ambient_services_in";
    /// Cluster and namespace.
    type Key = (Arc<str>, Arc<str>);
    type Value = Vec<Arc<Info>>;

    fn run(ctx: &Ctx<'_>, (cluster, namespace): &Self::Key) -> Self::Value {
        let mut by_host: BTreeMap<String, Arc<Info>> = BTreeMap::new();
        for kind in [Kind::Service, Kind::ServiceEntry] {
            let shelf = ObjectIndex::InCluster(kind, cluster.clone(), namespace.as_ref().into());
            for origin in ctx.members::<Objects>(&shelf).iter() {
                for info in ctx.get::<InfosOf>(origin).iter() {
                    let present = by_host.get(&info.service.hostname);
                    let wins = |present: &Arc<Info>| !present.is_kube && info.created < present.created;
                    if present.is_none_or(wins) {
                        by_host.insert(info.service.hostname.clone(), info.clone());
                    }
                }
            }
        }
        by_host.into_values().collect()
    }
}

/// Every service as ztunnels are told of it.
pub(crate) fn all(ctx: &Ctx<'_>) -> Vec<Service> {
    let mut services: Vec<_> = merged(ctx).values().map(|info| told(ctx, info)).collect();
    split_horizon::name_remote_accounts(ctx, &mut services);
    services
}

/// The services of a cluster and namespace as ztunnels are told of them, where there is one network.
pub(crate) fn of_place(ctx: &Ctx<'_>, place: &(Arc<str>, Arc<str>)) -> Vec<Service> {
    ctx.get::<InfosIn>(place).iter().map(|info| told(ctx, info)).collect()
}

fn told(ctx: &Ctx<'_>, info: &Info) -> Service {
    let canonical = info.service.canonical || is_canonical(ctx, &settings(ctx).cluster, info);
    Service { canonical, ..info.service.clone() }
}

/// The services by `namespace/host`; those known in all networks have the addresses they have anywhere.
pub(crate) fn merged(ctx: &Ctx<'_>) -> BTreeMap<String, Arc<Info>> {
    let settings = settings(ctx);
    let here = &settings.cluster;
    let mut found: BTreeMap<String, Arc<Info>> = BTreeMap::new();
    for (cluster, namespace) in places(ctx) {
        for info in ctx.get::<InfosIn>(&(cluster.clone(), namespace)).iter() {
            if cluster != *here && !info.is_global {
                continue;
            }
            match found.get_mut(&info.key()) {
                None => {
                    found.insert(info.key(), info.clone());
                }
                Some(known) if known.is_global => join(known, info),
                Some(_) => {}
            }
        }
    }
    found
}

/// The clusters and namespaces that have services, the own cluster first; others count only where there are several
/// networks.
pub(crate) fn places(ctx: &Ctx<'_>) -> Vec<(Arc<str>, Arc<str>)> {
    let settings = settings(ctx);
    let everywhere = settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
    let mut places = BTreeSet::new();
    for kind in [Kind::Service, Kind::ServiceEntry] {
        for origin in ctx.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
            let is_here = origin.cluster == settings.cluster;
            if is_here || everywhere {
                places.insert((!is_here, origin.cluster.clone(), Arc::from(origin.namespace())));
            }
        }
    }
    places.into_iter().map(|(_, cluster, namespace)| (cluster, namespace)).collect()
}

/// Adds the addresses that a service has in another cluster.
fn join(known: &mut Arc<Info>, other: &Info) {
    let service = &mut Arc::make_mut(known).service;
    for address in &other.service.addresses {
        if !service.addresses.contains(address) {
            service.addresses.push(address.clone());
        }
    }
    service.addresses.sort_by(|a, b| (&a.network, &a.address).cmp(&(&b.network, &b.address)));
}

/// Whether an entry is what a host means to those who are not of its namespace: no Kubernetes Service is, and it is the
/// oldest.
fn is_canonical(ctx: &Ctx<'_>, here: &Arc<str>, info: &Info) -> bool {
    if names_kube_service(ctx, here, &info.service.hostname) {
        return false;
    }
    let entries =
        ctx.members::<Objects>(&ObjectIndex::ServiceEntryHost(info.service.hostname.as_str().into()));
    let others = entries.iter().flat_map(|origin| ctx.get::<InfosOf>(origin).to_vec());
    let mut others = others.filter(|other| other.service.hostname == info.service.hostname);
    let age = |info: &Info| (info.created, info.origin.clone());
    others.all(|other| age(info) <= age(&other))
}

/// Whether a host is that of a Service of Kubernetes.
fn names_kube_service(ctx: &Ctx<'_>, here: &Arc<str>, host: &str) -> bool {
    let suffix = format!(".svc.{}", settings(ctx).domain);
    let named = host.strip_suffix(&suffix).and_then(|rest| rest.split_once('.'));
    named.is_some_and(|(name, namespace)| {
        let origin = Origin::new(here.clone(), ObjectKey::new(Kind::Service, namespace, name));
        object::<KubeService>(ctx, &origin).is_some()
    })
}

fn of_kube(ctx: &Ctx<'_>, origin: &Origin) -> Option<Info> {
    let object = object::<KubeService>(ctx, origin)?;
    let spec = &object.spec;
    if spec.r#type == ServiceType::ExternalName {
        return None;
    }
    let services = ctx.get::<ServicesOf>(origin);
    let converted = services.first()?;
    let network = network::of_cluster(ctx, &origin.cluster);
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
        Info {
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

fn of_entry(ctx: &Ctx<'_>, origin: &Origin) -> Vec<Info> {
    let Some(object) = object::<ServiceEntry>(ctx, origin) else { return Vec::new() };
    let spec = &object.spec;
    let network = network::of_cluster(ctx, &origin.cluster);
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
        near(distribution)
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
    let info = |name: &String| Info {
        service: Service {
            name: origin.name().to_owned(),
            namespace: origin.namespace().to_owned(),
            hostname: name.clone(),
            addresses: if written.is_empty() { allocated(name) } else { written.clone() },
            ports: ports.clone(),
            subject_alt_names: spec.subject_alt_names.clone(),
            load_balancing: balancing.clone(),
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

/// Adds the waypoints in front of a service.
fn behind_waypoints(ctx: &Ctx<'_>, mut info: Info) -> Info {
    let ServiceWaypoints { primary, canary } = ctx.get::<WaypointsOf>(&info.origin).as_ref().clone();
    let Some(primary) = primary else { return info };
    info.waypoint = Some((primary.namespace.to_string(), primary.name.to_string()));
    info.service.waypoint = address::of_waypoint(&primary);
    info.service.ingress_use_waypoint = takes_ingress(ctx, &info.origin);
    if let Some((canary, weight)) = canary {
        let weighted =
            |waypoint, weight| WeightedWaypoint { destination: address::of_waypoint(waypoint), weight };
        info.service.weighted_waypoints = vec![weighted(&primary, 100 - weight), weighted(&canary, weight)];
    }
    info
}

fn load_balancing(object: &KubeService, distribution: TrafficDistribution) -> Option<LoadBalancing> {
    let mut balancing = if object.spec.internal_traffic_policy.as_deref() == Some("Local") {
        let mode = Mode::Strict as i32;
        Some(LoadBalancing { routing_preference: vec![Scope::Node as i32], mode, ..Default::default() })
    } else {
        near(distribution)
    };
    if object.spec.publish_not_ready_addresses {
        balancing.get_or_insert_default().health_policy = HealthPolicy::AllowAll as i32;
    }
    balancing
}

/// Prefers what is near, and goes further where there is nothing.
fn near(distribution: TrafficDistribution) -> Option<LoadBalancing> {
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
