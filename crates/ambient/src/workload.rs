//! Workloads of the ambient mesh: pods, WorkloadEntries, endpoints of ServiceEntries, and other addresses in EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::istio::{ServiceEntry, WorkloadEntry};
use canopus_api::kube::{AddressType, EndpointSlice, Node, Pod, PodPhase, TransportProtocol};
use canopus_api::value::ConditionStatus;
use canopus_api::{Kind, Meta, ObjectKey, annotations, labels as known};
use canopus_base::labels::{Labels, canonical};
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_mesh::locality::Locality as ParsedLocality;
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

use crate::service::{ServiceInfo, ServiceInfosIn, ServiceInfosOf};
use crate::trust_domain::trust_domain;
use crate::{address, network, policies, ports};

/// The workloads of an object.
pub(crate) struct WorkloadsOf;

impl Query for WorkloadsOf {
    const NAME: &'static str = "ambient_workloads_of";
    type Key = Origin;
    type Value = Vec<Arc<Workload>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let workloads = match origin.key.kind {
            Kind::Pod => pod_workload(ctx, origin).into_iter().collect(),
            Kind::WorkloadEntry => workload_entry_workload(ctx, origin).into_iter().collect(),
            Kind::ServiceEntry => service_entry_workloads(ctx, origin),
            Kind::EndpointSlice => slice_workloads(ctx, origin),
            _ => Vec::new(),
        };
        workloads.into_iter().map(Arc::new).collect()
    }
}

/// Returns a filter for workloads of the own network. In a mesh with one network it admits all.
pub(crate) fn own_network_filter(ctx: &Ctx<'_>) -> impl Fn(&Workload) -> bool {
    let settings = settings(ctx);
    let own_network = network::network_of_cluster(ctx, &settings.cluster);
    let several = settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
    move |workload| !several || workload.network == own_network
}

/// The workloads of the own cluster, and of other clusters in a multi-network mesh.
pub(crate) fn in_all_clusters(ctx: &Ctx<'_>) -> Vec<Arc<Workload>> {
    let mut found = Vec::new();
    for_each_object(ctx, |origin| found.extend(ctx.get::<WorkloadsOf>(origin).iter().cloned()));
    found
}

/// Visits every object that may have workloads, in the same clusters.
pub(crate) fn for_each_object(ctx: &Ctx<'_>, mut look: impl FnMut(&Origin)) {
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

fn pod_workload(ctx: &Ctx<'_>, origin: &Origin) -> Option<Workload> {
    let pod = object::<Pod>(ctx, origin)?;
    if matches!(pod.status.phase, PodPhase::Succeeded | PodPhase::Failed) {
        return None;
    }
    let known = ctx.get::<PodWorkload>(origin).as_ref().clone()?;
    let addresses: Option<Vec<_>> =
        known.addresses.iter().map(|text| parse_ip(text).ok().map(address::octets)).collect();
    let addresses = addresses.filter(|addresses| !addresses.is_empty())?;
    let by_entries = settings(ctx).flags.get(PILOT_ENABLE_SERVICEENTRY_SELECT_PODS);
    let mut services = services_selecting(ctx, origin, &pod.meta.labels);
    services.retain(|info| by_entries || info.is_kube);
    services.extend(services_listing(ctx, origin, &pod, &services));
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
        services: ports::pod_ports(&pod, &services),
        status: status(healthy) as i32,
        locality: node_locality(ctx, origin, &pod.spec.node_name),
        network_mode: if pod.spec.host_network { NetworkMode::HostNetwork } else { NetworkMode::Standard }
            as i32,
        workload_name: known.workload_name.to_string(),
        ..object_fields(ctx, origin, &attachment, &pod.meta.labels, &services)
    };
    Some(with_tunnel_and_canonical_names(workload, &pod.meta, &pod.meta.labels))
}

fn workload_entry_workload(ctx: &Ctx<'_>, origin: &Origin) -> Option<Workload> {
    let entry = object::<WorkloadEntry>(ctx, origin)?;
    let known = ctx.get::<EntryWorkload>(origin).as_ref().clone()?;
    let mut labels: Labels = entry.spec.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    for (key, value) in entry.meta.labels.iter() {
        labels.insert(key, value);
    }
    let by_kube = settings(ctx).flags.get(PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES);
    let mut services = services_selecting(ctx, origin, &labels);
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
        ..object_fields(ctx, origin, &attachment, &labels, &services)
    };
    Some(with_tunnel_and_canonical_names(
        with_entry_fields(ctx, workload, &entry.spec, &services),
        &entry.meta,
        &labels,
    ))
}

fn service_entry_workloads(ctx: &Ctx<'_>, origin: &Origin) -> Vec<Workload> {
    let Some(entry) = object::<ServiceEntry>(ctx, origin) else { return Vec::new() };
    let spec = &entry.spec;
    let by_name =
        matches!(spec.resolution(), Resolution::Dns | Resolution::DnsRoundRobin | Resolution::DynamicDns);
    // Only the ServiceEntry that wins for its host has workloads.
    let infos = ctx.get::<ServiceInfosIn>(&(origin.cluster.clone(), origin.namespace().into()));
    let services: Vec<_> = infos.iter().filter(|info| info.origin == *origin).cloned().collect();
    let workload = |listed: &Listed, services: &[Arc<ServiceInfo>], attachment: &WaypointAttachment| {
        let workload = Workload {
            uid: format!(
                "{}/networking.istio.io/ServiceEntry/{}/{}/{}",
                origin.cluster,
                origin.namespace(),
                origin.name(),
                listed.address
            ),
            workload_name: origin.name().to_owned(),
            ..object_fields(ctx, origin, attachment, &entry.meta.labels, services)
        };
        with_tunnel_and_canonical_names(
            with_entry_fields(ctx, workload, listed, services),
            &entry.meta,
            &entry.meta.labels,
        )
    };
    if !spec.endpoints.is_empty() {
        // Parity: an endpoint without a network inherits that of the endpoint before it.
        let mut network = String::new();
        let mut endpoint_workload = |listed: &Listed| {
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
            spec.endpoints.iter().map(&mut endpoint_workload).collect()
        };
    }
    if !by_name || spec.workload_selector.is_some() {
        return Vec::new();
    }
    // An entry that is resolved by DNS and lists no endpoints has its hosts as workloads.
    let host_workload = |info: &Arc<ServiceInfo>| {
        let listed = Listed { address: info.service.hostname.clone(), ..Default::default() };
        workload(&listed, std::slice::from_ref(info), &WaypointAttachment::default())
    };
    services.iter().map(host_workload).collect()
}

/// The addresses of a slice that belong to no pod.
fn slice_workloads(ctx: &Ctx<'_>, origin: &Origin) -> Vec<Workload> {
    let Some(slice) = object::<EndpointSlice>(ctx, origin) else { return Vec::new() };
    let name = slice.meta.label(known::KUBERNETES_SERVICE_NAME.name);
    let service = name.and_then(|name| {
        let key = ObjectKey::new(Kind::Service, origin.namespace(), name);
        ctx.get::<ServiceInfosOf>(&Origin::new(origin.cluster.clone(), key)).first().cloned()
    });
    let Some(service) = service.filter(|_| slice.spec.address_type != AddressType::Fqdn) else {
        return Vec::new();
    };
    let port = |port: &canopus_api::kube::EndpointPort| {
        let target_port = u32::from(port.port.filter(|_| port.protocol == TransportProtocol::Tcp)?);
        let mut own = service.service.ports.iter();
        let service_port = own.find(|own| {
            service.port_names.get(&own.service_port).is_some_and(|(name, _)| **name == *port.name)
        })?;
        Some(Port { service_port: service_port.service_port, target_port, ..Default::default() })
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
            network: network::network_of_cluster(ctx, &origin.cluster),
            trust_domain: trust_domain(ctx),
            services: BTreeMap::from([(service.key(), list.clone())]),
            status: status(endpoint.conditions.ready.unwrap_or(true)) as i32,
            cluster_id: origin.cluster.to_string(),
            // Other workloads may have the same address.
            network_mode: NetworkMode::HostNetwork as i32,
            ..Default::default()
        });
    }
    found
}

/// The fields that workloads of all kinds of objects share.
fn object_fields(
    ctx: &Ctx<'_>,
    origin: &Origin,
    attachment: &WaypointAttachment,
    labels: &Labels,
    services: &[Arc<ServiceInfo>],
) -> Workload {
    let network = network::network_of_cluster(ctx, &origin.cluster);
    let behind = attachment.behind.as_deref();
    let mut policies = policies::selecting_policy_names(ctx, origin.namespace(), labels);
    policies.extend(policies::waypoint_policy_names(ctx, &origin.cluster, behind, services));
    let binding = attachment.instance_of.as_ref().and_then(|waypoint| waypoint.binding);
    Workload {
        name: origin.name().to_owned(),
        namespace: origin.namespace().to_owned(),
        network_gateway: network::gateway_into(ctx, &network),
        network,
        cluster_id: origin.cluster.to_string(),
        trust_domain: trust_domain(ctx),
        waypoint: behind.and_then(address::waypoint_address),
        application_tunnel: binding.map(|binding| ApplicationTunnel {
            protocol: if binding.announces_clients { Announced::Proxy } else { Announced::None } as i32,
            port: binding.port,
        }),
        authorization_policies: policies,
        workload_type: WorkloadType::Pod as i32,
        ..Default::default()
    }
}

/// Adds the fields of a WorkloadEntry spec.
fn with_entry_fields(
    ctx: &Ctx<'_>,
    workload: Workload,
    spec: &Listed,
    services: &[Arc<ServiceInfo>],
) -> Workload {
    let network = if spec.network.is_empty() { workload.network.clone() } else { spec.network.clone() };
    let parsed = ParsedLocality::parse(&spec.locality);
    let ip = parse_ip(&spec.address).ok();
    Workload {
        network_gateway: network::gateway_into(ctx, &network),
        network,
        service_account: spec.service_account.clone(),
        services: ports::entry_ports(&spec.ports, services),
        locality: (parsed != ParsedLocality::default()).then_some(Locality {
            region: parsed.region,
            zone: parsed.zone,
            subzone: parsed.subzone,
        }),
        capacity: (spec.weight > 0).then(|| spec.weight.into()),
        addresses: ip.map(address::octets).into_iter().collect(),
        hostname: if ip.is_some() { String::new() } else { spec.address.clone() },
        ..workload
    }
}

/// Adds the canonical names and the tunnel protocol.
fn with_tunnel_and_canonical_names(mut workload: Workload, meta: &Meta, labels: &Labels) -> Workload {
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

/// The services that select a workload.
fn services_selecting(ctx: &Ctx<'_>, origin: &Origin, labels: &Labels) -> Vec<Arc<ServiceInfo>> {
    let infos = ctx.get::<ServiceInfosIn>(&(origin.cluster.clone(), origin.namespace().into()));
    infos.iter().filter(|info| info.selector.selects(labels)).cloned().collect()
}

/// The services whose EndpointSlices list a pod that they do not select.
fn services_listing(
    ctx: &Ctx<'_>,
    origin: &Origin,
    pod: &Pod,
    known_already: &[Arc<ServiceInfo>],
) -> Vec<Arc<ServiceInfo>> {
    let index =
        ObjectIndex::InCluster(Kind::EndpointSlice, origin.cluster.clone(), origin.namespace().into());
    let mut found: Vec<Arc<ServiceInfo>> = Vec::new();
    for (_, slice) in indexed_objects::<EndpointSlice>(ctx, &index) {
        let mut endpoints = slice.spec.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref());
        let lists = endpoints.any(|target| &*target.kind == "Pod" && target.name == pod.meta.name);
        let Some(name) = slice.meta.label(known::KUBERNETES_SERVICE_NAME.name).filter(|_| lists) else {
            continue;
        };
        let key = ObjectKey::new(Kind::Service, origin.namespace(), name);
        let service = ctx.get::<ServiceInfosOf>(&Origin::new(origin.cluster.clone(), key)).first().cloned();
        let is_new = |info: &Arc<ServiceInfo>| {
            known_already.iter().chain(&found).all(|known| known.service.hostname != info.service.hostname)
        };
        found.extend(service.filter(is_new));
    }
    found
}

fn status(healthy: bool) -> WorkloadStatus {
    if healthy { WorkloadStatus::Healthy } else { WorkloadStatus::Unhealthy }
}

/// The locality of a node.
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
