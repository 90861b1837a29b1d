//! Targets: the services whose endpoints a proxy's workload is, and the ports they lead to.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::kube::{Pod, Service as KubeObject, ServicePort};
use canopus_api::value::IntOrString;
use canopus_base::labels::Labels;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES;

use crate::endpoint::{Endpoint, Endpoints, entry_endpoints_at, kube::entry_port};
use crate::proxy::Proxy;
use crate::proxy_workload::{describe, entry_of_proxy, pod_of_proxy};
use crate::service::{KubernetesService, Port, Resolution, Service};
use crate::workload::Workload;
use crate::world::{ObjectIndex, indexed_objects, object, settings};

/// A port of a service that has the proxy's workload as an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The service.
    pub service: Arc<Service>,
    /// The service port, which callers use.
    pub port: Port,
    /// The workload port.
    pub target_port: u32,
}

/// The targets of a proxy, sorted by the age and host of the service.
pub struct Targets;

impl Query for Targets {
    const NAME: &'static str = "targets";
    type Key = Proxy;
    type Value = Vec<Target>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Self::Value {
        let mut targets = from_kubernetes(ctx, proxy);
        targets.extend(from_entries(ctx, proxy));
        targets
            .sort_by(|a, b| (a.service.created, &a.service.host).cmp(&(b.service.created, &b.service.host)));
        targets
    }
}

fn from_kubernetes(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Target> {
    let selects_entries = settings(ctx).flags.get(PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES);
    let entry = selects_entries.then(|| entry_of_proxy(ctx, proxy)).flatten();
    if let Some(entry) = entry.filter(|entry| entry.is_healthy) {
        return entry_targets(ctx, &entry);
    }
    if let Some(workload) = pod_of_proxy(ctx, proxy).filter(|_| !proxy.is_vm()) {
        let Some(pod) = object::<Pod>(ctx, &workload.origin) else { return Vec::new() };
        let services =
            services_selecting(ctx, &workload.namespace, &pod.meta.labels, Some(&workload.cluster));
        if services.is_empty() {
            return from_slices(ctx, proxy);
        }
        let of_service = |(service, object): &(Arc<Service>, Arc<KubeObject>)| {
            service_targets(service, object, |port| pod_port(port, &pod))
        };
        return services.iter().flat_map(of_service).collect();
    }
    from_metadata(ctx, proxy)
}

/// The Kubernetes services of a namespace that select these labels, as the cluster has them.
fn services_selecting(
    ctx: &Ctx<'_>,
    namespace: &str,
    labels: &Labels,
    cluster: Option<&Arc<str>>,
) -> Arc<Vec<(Arc<Service>, Arc<KubeObject>)>> {
    ctx.get::<ServicesSelecting>(&(namespace.into(), labels.clone(), cluster.cloned()))
}

/// [`services_selecting`] as a query, which pods of one workload share.
struct ServicesSelecting;

impl Query for ServicesSelecting {
    const NAME: &'static str = "services_selecting";
    /// Namespace, labels, and the cluster if not all count.
    type Key = (Arc<str>, Labels, Option<Arc<str>>);
    type Value = Vec<(Arc<Service>, Arc<KubeObject>)>;

    fn run(ctx: &Ctx<'_>, (namespace, labels, cluster): &Self::Key) -> Self::Value {
        let index = ObjectIndex::Namespace(Kind::Service, namespace.as_ref().into());
        let objects = indexed_objects::<KubeObject>(ctx, &index).into_iter();
        let here =
            objects.filter(|(origin, _)| cluster.as_ref().is_none_or(|cluster| *cluster == origin.cluster));
        let selecting = here.filter(|(_, object)| object.spec.selector.selects(labels));
        selecting
            .filter_map(|(origin, object)| {
                let key = (namespace.clone(), Arc::from(origin.name()));
                Some((ctx.get::<KubernetesService>(&key).as_ref().clone()?, object))
            })
            .collect()
    }
}

/// The targets of one service. Of ports with the same target port and protocol, the first wins.
fn service_targets(
    service: &Arc<Service>,
    object: &KubeObject,
    number: impl Fn(&ServicePort) -> Option<u32>,
) -> Vec<Target> {
    let mut seen: BTreeSet<(u32, Protocol)> = BTreeSet::new();
    let mut targets = Vec::new();
    for written in &object.spec.ports {
        let Some(port) = service.port_named(&written.name) else { continue };
        let Some(target_port) = number(written) else { continue };
        if seen.insert((target_port, port.protocol)) {
            targets.push(Target { service: service.clone(), port: port.clone(), target_port });
        }
    }
    targets
}

/// The port of a pod that a service's port leads to.
fn pod_port(port: &ServicePort, pod: &Pod) -> Option<u32> {
    match &port.target_port {
        Some(IntOrString::String(name)) => {
            let staying = pod.spec.init_containers.iter();
            let staying = staying.filter(|container| container.restart_policy.as_deref() == Some("Always"));
            let containers = pod.spec.containers.iter().chain(staying);
            let mut ports = containers.flat_map(|container| &container.ports);
            let found = ports.find(|own| own.name == *name && own.protocol == port.protocol);
            found.map(|own| own.container_port.into())
        }
        Some(IntOrString::Int(number)) => u32::try_from(*number).ok(),
        // The API server fills it in; files may leave it out.
        None => Some(port.port.into()),
    }
}

/// A service without a selector has a pod as endpoint only if its EndpointSlices say so.
fn from_slices(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Target> {
    let Some(address) = proxy.id.addresses.first().map(ToString::to_string) else { return Vec::new() };
    let index = ObjectIndex::Namespace(Kind::Service, proxy.namespace().into());
    let mut targets = Vec::new();
    for (origin, _) in indexed_objects::<KubeObject>(ctx, &index) {
        let key = (Arc::from(origin.namespace()), Arc::from(origin.name()));
        let Some(service) = ctx.get::<KubernetesService>(&key).as_ref().clone() else { continue };
        for endpoint in ctx.get::<Endpoints>(&service.key()).iter().filter(|e| e.address() == address) {
            if let Some(port) = service.port_named(&endpoint.port_name) {
                let (service, port) = (service.clone(), port.clone());
                targets.push(Target { service, port, target_port: endpoint.port });
            }
        }
    }
    targets
}

/// The targets of a WorkloadEntry that Kubernetes services select.
fn entry_targets(ctx: &Ctx<'_>, entry: &Workload) -> Vec<Target> {
    let services = services_selecting(ctx, &entry.namespace, &entry.labels, None);
    let listed = services.iter().filter(|(service, _)| service.resolution == Resolution::Listed);
    listed
        .flat_map(|(service, object)| {
            let ports = object.spec.ports.iter().filter_map(|written| {
                let port = service.port_named(&written.name)?;
                let target_port = entry_port(written, entry)?;
                (port.protocol != Protocol::Udp).then(|| Target {
                    service: service.clone(),
                    port: port.clone(),
                    target_port,
                })
            });
            ports.collect::<Vec<_>>()
        })
        .collect()
}

/// A pod that the API server has not reported yet is matched by the labels in its node metadata.
fn from_metadata(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Target> {
    let described = describe(ctx, proxy);
    if described.labels.is_empty() {
        return Vec::new();
    }
    let cluster = match proxy.metadata.cluster_id.as_str() {
        "" => settings(ctx).cluster.clone(),
        cluster => cluster.into(),
    };
    let own = &proxy.metadata.pod_ports.0;
    let number = |port: &ServicePort| match &port.target_port {
        Some(IntOrString::String(name)) => {
            let same = |own: &&canopus_api::node::PodPort| {
                own.name == **name && own.protocol == port.protocol.as_str()
            };
            own.iter().find(same).and_then(|own| u32::try_from(own.container_port).ok())
        }
        Some(IntOrString::Int(number)) => u32::try_from(*number).ok(),
        None => Some(port.port.into()),
    };
    let services = services_selecting(ctx, proxy.namespace(), &described.labels, Some(&cluster));
    services.iter().flat_map(|(service, object)| service_targets(service, object, number)).collect()
}

/// The ServiceEntries of the proxy's namespace that have one of its addresses among their endpoints.
fn from_entries(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Target> {
    let addresses = proxy.id.addresses.iter().map(ToString::to_string);
    let found = addresses.flat_map(|address| entry_endpoints_at(ctx, &proxy.metadata.namespace, &address));
    let target = |(service, endpoint): (Arc<Service>, Arc<Endpoint>)| {
        let port = service.port(endpoint.port_number?)?.clone();
        Some(Target { service, port, target_port: endpoint.port })
    };
    found.filter_map(target).collect()
}

/// A service port and the port of the proxy's workload that it leads to: [`Target`] without the service itself, for use in
/// keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortTarget {
    /// The host of the service.
    pub host: Arc<str>,
    /// The namespace of the service.
    pub namespace: Arc<str>,
    /// The port of the service.
    pub port: u32,
    /// The port on the workload.
    pub target_port: u32,
    /// The protocol of the port.
    pub protocol: Protocol,
    /// Whether the service opts out of port translation.
    pub untranslated: bool,
}

/// The label by which a service opts out of port translation, where several services of one port would be ambiguous.
const UNTRANSLATED: &str = "experimental.istio.io/disable-gateway-port-translation";

/// The service ports that lead to a proxy, those of the oldest service first.
pub fn port_targets(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<PortTarget> {
    let targets = ctx.get::<Targets>(proxy);
    let port_target = |target: &Target| PortTarget {
        host: target.service.host.clone(),
        namespace: target.service.namespace.clone(),
        port: target.port.number,
        target_port: target.target_port,
        protocol: target.port.protocol,
        untranslated: target.service.labels.contains_key(UNTRANSLATED),
    };
    targets.iter().map(port_target).collect()
}
