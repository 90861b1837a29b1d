//! Workloads as ztunnels know them: pods, what entries describe, and addresses that EndpointSlices list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::istio::{ServiceEntry, WorkloadEntry};
use canopus_api::kube::{AddressType, EndpointSlice, Node, Pod, PodPhase, TransportProtocol};
use canopus_api::value::ConditionStatus;
use canopus_api::{Kind, Meta, ObjectKey, annotations, labels as known};
use canopus_base::labels::{Labels, canonical};
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_mesh::locality::Locality as Place;
use canopus_mesh::waypoint::{WaypointAttachment, WaypointAttachmentOf, listed_endpoint_attachment};
use canopus_mesh::workload::{EntryWorkload, PodWorkload};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, indexed_objects, object, settings};
use canopus_proto::istio::networking::v1alpha3::WorkloadEntry as Listed;
use canopus_proto::istio::networking::v1alpha3::service_entry::Resolution;
use canopus_proto::istio::workload::application_tunnel::Protocol as Announced;
use canopus_proto::istio::workload::{
    ApplicationTunnel, Locality, NetworkMode, Port, PortList, TunnelProtocol, Workload, WorkloadStatus,
    WorkloadType,
};
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES,
    PILOT_ENABLE_SERVICEENTRY_SELECT_PODS,
};

use crate::network::Gateways;
use crate::service::{Info, InfosIn, InfosOf};
use crate::{address, network, policies, ports, split_horizon};

/// The workloads that an object is or lists, as one cluster sees them.
pub(crate) struct WorkloadsOf;

impl Query for WorkloadsOf {
    const NAME: &'static str = "ambient_workloads_of";
    type Key = Origin;
    type Value = Vec<Arc<Workload>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let workloads = match origin.key.kind {
            Kind::Pod => of_pod(ctx, origin).into_iter().collect(),
            Kind::WorkloadEntry => of_entry(ctx, origin).into_iter().collect(),
            Kind::ServiceEntry => of_service_entry(ctx, origin),
            Kind::EndpointSlice => of_slice(ctx, origin),
            _ => Vec::new(),
        };
        workloads.into_iter().map(Arc::new).collect()
    }
}

/// Every workload as ztunnels are told of it; those in other networks are told of by their gateways.
pub(crate) fn all(ctx: &Ctx<'_>) -> Vec<Arc<Workload>> {
    let is_near = nearness(ctx);
    let mut workloads = everywhere(ctx);
    workloads.retain(|workload| is_near(workload));
    workloads.extend(beyond(ctx).into_iter().map(Arc::new));
    workloads
}

/// Whether workloads are in the own network, where there are several.
pub(crate) fn nearness(ctx: &Ctx<'_>) -> impl Fn(&Workload) -> bool {
    let settings = settings(ctx);
    let own_network = network::of_cluster(ctx, &settings.cluster);
    let several = settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
    move |workload| !several || workload.network == own_network
}

/// The gateways to other networks, and what stands for the workloads there.
pub(crate) fn beyond(ctx: &Ctx<'_>) -> Vec<Workload> {
    let gateways = ctx.get::<Gateways>(&());
    let mut workloads: Vec<_> = gateways.iter().map(|gateway| gateway.workload(ctx)).collect();
    workloads.extend(split_horizon::workloads(ctx));
    workloads
}

/// The workloads of all clusters that count.
pub(crate) fn everywhere(ctx: &Ctx<'_>) -> Vec<Arc<Workload>> {
    let mut found = Vec::new();
    each_object(ctx, |origin| found.extend(ctx.get::<WorkloadsOf>(origin).iter().cloned()));
    found
}

/// Looks at every object that may be or list workloads, of all clusters that count.
pub(crate) fn each_object(ctx: &Ctx<'_>, mut look: impl FnMut(&Origin)) {
    let settings = settings(ctx);
    let several = settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
    for kind in [Kind::Pod, Kind::WorkloadEntry, Kind::ServiceEntry, Kind::EndpointSlice] {
        for origin in ctx.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
            if origin.cluster == settings.cluster || several {
                look(origin);
            }
        }
    }
}

fn of_pod(ctx: &Ctx<'_>, origin: &Origin) -> Option<Workload> {
    let pod = object::<Pod>(ctx, origin)?;
    if matches!(pod.status.phase, PodPhase::Succeeded | PodPhase::Failed) {
        return None;
    }
    let known = ctx.get::<PodWorkload>(origin).as_ref().clone()?;
    let addresses: Option<Vec<_>> =
        known.addresses.iter().map(|text| parse_ip(text).ok().map(address::octets)).collect();
    let addresses = addresses.filter(|addresses| !addresses.is_empty())?;
    let by_entries = settings(ctx).flags.get(PILOT_ENABLE_SERVICEENTRY_SELECT_PODS);
    let mut services = selecting(ctx, origin, &pod.meta.labels);
    services.retain(|info| by_entries || info.is_kube);
    services.extend(listing(ctx, origin, &pod, &services));
    let attachment = ctx.get::<WaypointAttachmentOf>(origin);
    let ready = pod
        .status
        .conditions
        .iter()
        .any(|one| &*one.r#type == "Ready" && one.status == ConditionStatus::True);
    let healthy = ready && pod.meta.deletion_timestamp.is_none();
    let workload = Workload {
        uid: format!("{}//Pod/{}/{}", origin.cluster, origin.namespace(), origin.name()),
        addresses,
        service_account: pod.spec.service_account_name.to_string(),
        node: pod.spec.node_name.to_string(),
        services: ports::of_pod(&pod, &services),
        status: status(healthy) as i32,
        locality: node_locality(ctx, origin, &pod.spec.node_name),
        network_mode: if pod.spec.host_network { NetworkMode::HostNetwork } else { NetworkMode::Standard }
            as i32,
        workload_name: known.workload_name.to_string(),
        ..of_object(ctx, origin, &attachment, &pod.meta.labels, &services)
    };
    Some(finished(workload, &pod.meta, &pod.meta.labels))
}

fn of_entry(ctx: &Ctx<'_>, origin: &Origin) -> Option<Workload> {
    let entry = object::<WorkloadEntry>(ctx, origin)?;
    let known = ctx.get::<EntryWorkload>(origin).as_ref().clone()?;
    let mut labels: Labels = entry.spec.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    for (key, value) in entry.meta.labels.iter() {
        labels.insert(key, value);
    }
    let by_kube = settings(ctx).flags.get(PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES);
    let mut services = selecting(ctx, origin, &labels);
    services.retain(|info| by_kube || !info.is_kube);
    let attachment = ctx.get::<WaypointAttachmentOf>(origin);
    let workload = Workload {
        uid: format!(
            "{}/networking.istio.io/WorkloadEntry/{}/{}",
            origin.cluster,
            origin.namespace(),
            origin.name()
        ),
        workload_name: known.workload_name.to_string(),
        ..of_object(ctx, origin, &attachment, &labels, &services)
    };
    Some(finished(described(ctx, workload, &entry.spec, &services), &entry.meta, &labels))
}

fn of_service_entry(ctx: &Ctx<'_>, origin: &Origin) -> Vec<Workload> {
    let Some(entry) = object::<ServiceEntry>(ctx, origin) else { return Vec::new() };
    let spec = &entry.spec;
    let by_name =
        matches!(spec.resolution(), Resolution::Dns | Resolution::DnsRoundRobin | Resolution::DynamicDns);
    // Only what counts for its hosts has workloads.
    let infos = ctx.get::<InfosIn>(&(origin.cluster.clone(), origin.namespace().into()));
    let services: Vec<_> = infos.iter().filter(|info| info.origin == *origin).cloned().collect();
    let workload = |listed: &Listed, services: &[Arc<Info>], attachment: &WaypointAttachment| {
        let workload = Workload {
            uid: format!(
                "{}/networking.istio.io/ServiceEntry/{}/{}/{}",
                origin.cluster,
                origin.namespace(),
                origin.name(),
                listed.address
            ),
            workload_name: origin.name().to_owned(),
            ..of_object(ctx, origin, attachment, &entry.meta.labels, services)
        };
        finished(described(ctx, workload, listed, services), &entry.meta, &entry.meta.labels)
    };
    if !spec.endpoints.is_empty() {
        // Parity: the network that an endpoint names is also that of those after it which name none.
        let mut network = String::new();
        let mut of_endpoint = |listed: &Listed| {
            if !listed.network.is_empty() {
                network.clone_from(&listed.network);
            }
            let listed = Listed { network: network.clone(), ..listed.clone() };
            let labels = listed.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            workload(&listed, &services, &listed_endpoint_attachment(ctx, origin, &labels))
        };
        return if services.is_empty() {
            Vec::new()
        } else {
            spec.endpoints.iter().map(&mut of_endpoint).collect()
        };
    }
    if !by_name || spec.workload_selector.is_some() {
        return Vec::new();
    }
    // What is resolved by name and lists nothing is found under its hosts.
    let of_host = |info: &Arc<Info>| {
        let listed = Listed { address: info.service.hostname.clone(), ..Default::default() };
        workload(&listed, std::slice::from_ref(info), &WaypointAttachment::default())
    };
    services.iter().map(of_host).collect()
}

/// Addresses that nobody says more about than that they are endpoints.
fn of_slice(ctx: &Ctx<'_>, origin: &Origin) -> Vec<Workload> {
    let Some(slice) = object::<EndpointSlice>(ctx, origin) else { return Vec::new() };
    let name = slice.meta.label(known::KUBERNETES_SERVICE_NAME.name);
    let service = name.and_then(|name| {
        let key = ObjectKey::new(Kind::Service, origin.namespace(), name);
        ctx.get::<InfosOf>(&Origin::new(origin.cluster.clone(), key)).first().cloned()
    });
    let Some(service) = service.filter(|_| slice.spec.address_type != AddressType::Fqdn) else {
        return Vec::new();
    };
    let port = |port: &canopus_api::kube::EndpointPort| {
        let target_port = u32::from(port.port.filter(|_| port.protocol == TransportProtocol::Tcp)?);
        let mut own = service.service.ports.iter();
        let of_service = own.find(|own| {
            service.port_names.get(&own.service_port).is_some_and(|(name, _)| **name == *port.name)
        })?;
        Some(Port { service_port: of_service.service_port, target_port, ..Default::default() })
    };
    let list = PortList { ports: slice.spec.ports.iter().filter_map(port).collect() };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for endpoint in &slice.spec.endpoints {
        let is_pod = endpoint.target_ref.as_ref().is_some_and(|target| &*target.kind == "Pod");
        let Some(first) = endpoint.addresses.first().filter(|_| !is_pod) else { continue };
        let addresses: Option<Vec<_>> =
            endpoint.addresses.iter().map(|text| parse_ip(text).ok().map(address::octets)).collect();
        let Some(addresses) = addresses.filter(|_| seen.insert(first.clone())) else { continue };
        found.push(Workload {
            uid: format!(
                "{}/discovery.k8s.io/EndpointSlice/{}/{}/{first}",
                origin.cluster,
                origin.namespace(),
                origin.name()
            ),
            name: origin.name().to_owned(),
            namespace: origin.namespace().to_owned(),
            addresses,
            network: network::of_cluster(ctx, &origin.cluster),
            trust_domain: trust_domain(ctx),
            services: BTreeMap::from([(service.key(), list.clone())]),
            status: status(endpoint.conditions.ready.unwrap_or(true)) as i32,
            cluster_id: origin.cluster.to_string(),
            // It may be an address that others have too.
            network_mode: NetworkMode::HostNetwork as i32,
            ..Default::default()
        });
    }
    found
}

/// What the workload of any object says.
fn of_object(
    ctx: &Ctx<'_>,
    origin: &Origin,
    attachment: &WaypointAttachment,
    labels: &Labels,
    services: &[Arc<Info>],
) -> Workload {
    let network = network::of_cluster(ctx, &origin.cluster);
    let behind = attachment.behind.as_deref();
    let mut policies = policies::of_workload(ctx, origin.namespace(), labels);
    policies.extend(policies::of_waypoints_before(ctx, &origin.cluster, behind, services));
    let binding = attachment.instance_of.as_ref().and_then(|waypoint| waypoint.binding);
    Workload {
        name: origin.name().to_owned(),
        namespace: origin.namespace().to_owned(),
        network_gateway: network::gateway_of(ctx, &network),
        network,
        cluster_id: origin.cluster.to_string(),
        trust_domain: trust_domain(ctx),
        waypoint: behind.and_then(address::of_waypoint),
        application_tunnel: binding.map(|binding| ApplicationTunnel {
            protocol: if binding.announces_clients { Announced::Proxy } else { Announced::None } as i32,
            port: binding.port,
        }),
        authorization_policies: policies,
        workload_type: WorkloadType::Pod as i32,
        ..Default::default()
    }
}

/// What an entry says about its workload.
fn described(ctx: &Ctx<'_>, workload: Workload, spec: &Listed, services: &[Arc<Info>]) -> Workload {
    let network = if spec.network.is_empty() { workload.network.clone() } else { spec.network.clone() };
    let place = Place::parse(&spec.locality);
    let ip = parse_ip(&spec.address).ok();
    Workload {
        network_gateway: network::gateway_of(ctx, &network),
        network,
        service_account: spec.service_account.clone(),
        services: ports::of_entry(&spec.ports, services),
        locality: (place != Place::default()).then_some(Locality {
            region: place.region,
            zone: place.zone,
            subzone: place.subzone,
        }),
        capacity: (spec.weight > 0).then(|| spec.weight.into()),
        addresses: ip.map(address::octets).into_iter().collect(),
        hostname: if ip.is_some() { String::new() } else { spec.address.clone() },
        ..workload
    }
}

/// Adds the names for telemetry and how the workload takes tunnels.
fn finished(mut workload: Workload, meta: &Meta, labels: &Labels) -> Workload {
    let (name, revision) = canonical::service(labels, &workload.workload_name);
    workload.canonical_name = name.to_owned();
    workload.canonical_revision = revision.to_owned();
    let tunnels = labels.get(known::TUNNEL.name).unwrap_or_default();
    workload.native_tunnel = tunnels.split(',').any(|tunnel| tunnel == "http");
    let redirected = meta.annotation(annotations::AMBIENT_REDIRECTION.name) == Some("enabled");
    if redirected || workload.native_tunnel {
        workload.tunnel_protocol = TunnelProtocol::Hbone as i32;
    }
    workload
}

/// The services whose selector picks a workload.
fn selecting(ctx: &Ctx<'_>, origin: &Origin, labels: &Labels) -> Vec<Arc<Info>> {
    let infos = ctx.get::<InfosIn>(&(origin.cluster.clone(), origin.namespace().into()));
    infos.iter().filter(|info| info.selector.selects(labels)).cloned().collect()
}

/// The services that list a pod by name, without selecting it.
fn listing(ctx: &Ctx<'_>, origin: &Origin, pod: &Pod, known_already: &[Arc<Info>]) -> Vec<Arc<Info>> {
    let shelf =
        ObjectIndex::InCluster(Kind::EndpointSlice, origin.cluster.clone(), origin.namespace().into());
    let mut found: Vec<Arc<Info>> = Vec::new();
    for (_, slice) in indexed_objects::<EndpointSlice>(ctx, &shelf) {
        let mut endpoints = slice.spec.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref());
        let lists = endpoints.any(|target| &*target.kind == "Pod" && target.name == pod.meta.name);
        let Some(name) = slice.meta.label(known::KUBERNETES_SERVICE_NAME.name).filter(|_| lists) else {
            continue;
        };
        let key = ObjectKey::new(Kind::Service, origin.namespace(), name);
        let service = ctx.get::<InfosOf>(&Origin::new(origin.cluster.clone(), key)).first().cloned();
        let is_new = |info: &Arc<Info>| {
            known_already.iter().chain(&found).all(|known| known.service.hostname != info.service.hostname)
        };
        found.extend(service.filter(is_new));
    }
    found
}

fn status(healthy: bool) -> WorkloadStatus {
    if healthy { WorkloadStatus::Healthy } else { WorkloadStatus::Unhealthy }
}

/// Where a node is.
fn node_locality(ctx: &Ctx<'_>, origin: &Origin, node: &str) -> Option<Locality> {
    let key = ObjectKey::new(Kind::Node, "", node);
    let node = object::<Node>(ctx, &Origin::new(origin.cluster.clone(), key))?;
    let label = |name| node.meta.label(name).unwrap_or_default().to_owned();
    let locality = Locality {
        region: label(known::KUBERNETES_REGION.name),
        zone: label(known::KUBERNETES_ZONE.name),
        subzone: label(known::TOPOLOGY_SUBZONE.name),
    };
    (locality != Locality::default()).then_some(locality)
}

/// The trust domain of identities, where it is not the one that everybody assumes.
pub(crate) fn trust_domain(ctx: &Ctx<'_>) -> String {
    let settings = settings(ctx);
    match settings.trust_domain() {
        "cluster.local" => String::new(),
        domain => domain.to_owned(),
    }
}
