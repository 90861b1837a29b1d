//! Endpoints of Kubernetes services: EndpointSlices, the pods behind them, and WorkloadEntries that a selector finds.
//!
//! Slices are looked up by [`ObjectIndex::EndpointSlices`], so a query depends on the slices of its own service and on no
//! others. The pod that a slice refers to supplies labels, identity and locality; an endpoint without a known pod has what the
//! slice says.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::kube::{
    AddressType, Endpoint as SliceEndpoint, EndpointConditions, EndpointSlice, Service as KubeObject,
    ServicePort,
};
use canopus_api::value::IntOrString;
use canopus_api::{Kind, ObjectKey};
use canopus_base::labels::Labels;
use canopus_engine::Ctx;
use canopus_runtime::flags::{Flags, ISTIO_DUAL_STACK, PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES};

use super::{Endpoint, EndpointWorkload, Health};
use crate::network;
use crate::service::{KubernetesService, Registry, Resolution, Service, ServiceKey, ServicesOf};
use crate::workload::{EntriesIn, PodWorkload, TLS_DISABLED, Workload, add_location_labels};
use crate::world::{ObjectIndex, Objects, Origin, indexed_objects, object, settings};

/// The endpoints of a Kubernetes service, cluster by cluster.
pub(super) fn endpoints(ctx: &Ctx<'_>, key: &ServiceKey) -> Vec<Arc<Endpoint>> {
    let settings = settings(ctx);
    let suffix = format!(".{}.svc.{}", key.namespace, settings.domain);
    let Some(name) = key.host.strip_suffix(&suffix) else { return Vec::new() };
    let Some(service) = ctx.get::<KubernetesService>(&(key.namespace.clone(), name.into())).as_ref().clone()
    else {
        return Vec::new();
    };
    let mut clusters: Vec<_> = service.origins.clone();
    clusters.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    clusters.iter().flat_map(|origin| cluster_endpoints(ctx, origin)).map(Arc::new).collect()
}

/// The endpoints in one cluster.
fn cluster_endpoints(ctx: &Ctx<'_>, origin: &Origin) -> Vec<Endpoint> {
    let Some(object) = object::<KubeObject>(ctx, origin) else { return Vec::new() };
    let services = ctx.get::<ServicesOf>(origin);
    let Some(service) = services.first() else { return Vec::new() };
    let index = ObjectIndex::EndpointSlices(
        origin.cluster.clone(),
        object.meta.namespace.clone(),
        object.meta.name.clone(),
    );
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (slice_origin, slice) in indexed_objects::<EndpointSlice>(ctx, &index) {
        for endpoint in slice_endpoints(ctx, service, &object, &slice_origin, &slice) {
            // An endpoint that moves between slices is in both for a while.
            if seen.insert((endpoint.addresses[0].clone(), endpoint.port_name.clone())) {
                found.push(endpoint);
            }
        }
    }
    if settings(ctx).flags.get(PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES) {
        found.extend(workload_entry_endpoints(ctx, service, &object));
    }
    found
}

fn slice_endpoints(
    ctx: &Ctx<'_>,
    service: &Service,
    object: &KubeObject,
    origin: &Origin,
    slice: &EndpointSlice,
) -> Vec<Endpoint> {
    if slice.spec.address_type == AddressType::Fqdn {
        return Vec::new();
    }
    let flags = &settings(ctx).flags;
    let mut found = Vec::new();
    for endpoint in &slice.spec.endpoints {
        let health = health(flags, service, endpoint.conditions);
        for address in &endpoint.addresses {
            let (pod, expected) = pod_behind(ctx, origin, endpoint, address);
            if expected && pod.is_none() {
                continue;
            }
            let mut addresses = vec![Arc::from(&**address)];
            if let Some(pod) = pod.as_ref().filter(|_| expected) {
                let dual = flags.get(ISTIO_DUAL_STACK)
                    && pod.addresses.len() > 1
                    && object.spec.cluster_ips.len() > 1;
                if dual && slice.spec.address_type == AddressType::Ipv6 {
                    continue;
                }
                if dual {
                    addresses.clone_from(&pod.addresses);
                }
            }
            let workload = Arc::new(match &pod {
                Some(pod) => EndpointWorkload::from(&**pod),
                None => unknown_workload(ctx, origin, address),
            });
            found.extend(slice.spec.ports.iter().map(|port| Endpoint {
                addresses: addresses.clone(),
                port: port.port.unwrap_or_default().into(),
                port_name: Arc::from(&*port.name),
                port_number: None,
                weight: 0,
                health,
                workload: workload.clone(),
                registry: Registry::Kubernetes,
            }));
        }
    }
    found
}

fn health(flags: &Flags, service: &Service, conditions: EndpointConditions) -> Health {
    if conditions.ready.unwrap_or(true) {
        return Health::Healthy;
    }
    let terminating = conditions.terminating.unwrap_or(true);
    if terminating && conditions.serving.unwrap_or(true) && service.keeps_sessions(flags) {
        return Health::Draining;
    }
    if terminating { Health::Terminating } else { Health::Unhealthy }
}

/// The pod at an address of a slice, and whether the slice refers to a pod.
fn pod_behind(
    ctx: &Ctx<'_>,
    origin: &Origin,
    endpoint: &SliceEndpoint,
    address: &str,
) -> (Option<Arc<Workload>>, bool) {
    if let Some(target) = endpoint.target_ref.as_ref().filter(|target| &*target.kind == "Pod") {
        let key = ObjectKey::new(Kind::Pod, &target.namespace, &target.name);
        let pod = ctx.get::<PodWorkload>(&Origin::new(origin.cluster.clone(), key));
        return (pod.as_ref().clone(), true);
    }
    let at_address = ctx.members::<Objects>(&ObjectIndex::WorkloadAddress(address.into()));
    let own = |pod: &&Origin| pod.key.kind == Kind::Pod && pod.cluster == origin.cluster;
    let pods: Vec<_> = at_address.iter().filter(own).collect();
    let pod = match pods[..] {
        [pod] => Some(pod),
        _ => pods.into_iter().find(|pod| pod.key.namespace == origin.key.namespace),
    };
    (pod.and_then(|pod| ctx.get::<PodWorkload>(pod).as_ref().clone()), false)
}

/// The workload of an address without a pod.
fn unknown_workload(ctx: &Ctx<'_>, origin: &Origin, address: &str) -> EndpointWorkload {
    let network = network::network_of_address(ctx, &origin.cluster, address, &Labels::new());
    EndpointWorkload {
        cluster: origin.cluster.clone(),
        labels: add_location_labels(Labels::new(), &origin.cluster, "", "", &network),
        network: network.into(),
        tls_mode: TLS_DISABLED.into(),
        ..EndpointWorkload::default()
    }
}

/// The endpoints from WorkloadEntries that the Service selects.
fn workload_entry_endpoints(ctx: &Ctx<'_>, service: &Service, object: &KubeObject) -> Vec<Endpoint> {
    if service.resolution != Resolution::Listed || service.selector.is_empty() {
        return Vec::new();
    }
    let entries = ctx.get::<EntriesIn>(&service.namespace);
    let mut found = Vec::new();
    for port in &object.spec.ports {
        let selected = entries
            .iter()
            .filter(|workload| !workload.has_no_ip())
            .filter(|workload| service.selector.subset_of(&workload.labels));
        for workload in selected {
            let Some(number) = entry_port(port, workload) else { continue };
            found.push(Endpoint {
                addresses: workload.addresses.clone(),
                port: number,
                port_name: Arc::from(&*port.name),
                port_number: None,
                weight: workload.weight,
                health: Health::Unknown,
                workload: Arc::new(EndpointWorkload::from(&**workload)),
                registry: Registry::Kubernetes,
            });
        }
    }
    found
}

/// The port of a WorkloadEntry for a service port. Returns `None` if the target port is a name that the entry lacks.
pub(crate) fn entry_port(port: &ServicePort, workload: &Workload) -> Option<u32> {
    let named = |name: &str| workload.ports.get(name).copied().filter(|number| *number != 0);
    match &port.target_port {
        Some(IntOrString::String(name)) => named(name),
        Some(IntOrString::Int(number)) if *number != 0 => {
            Some(named(&port.name).unwrap_or(u32::try_from(*number).unwrap_or_default()))
        }
        _ => Some(named(&port.name).unwrap_or_else(|| port.port.into())),
    }
}
