//! Workloads: what runs behind endpoints and proxies, described by pods and WorkloadEntries in the same terms.

mod name;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::istio::WorkloadEntry as EntryObject;
use canopus_api::kube::{Node, Pod, PodPhase};
use canopus_api::{Kind, Meta, ObjectKey, annotations, labels as known};
use canopus_base::labels::Labels;
use canopus_base::spiffe::Identity;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::WorkloadEntry;
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, PILOT_ENABLE_AMBIENT, PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS,
};

use crate::locality::{self, Locality};
use crate::network;
use crate::world::{ObjectIndex, Objects, Origin, object, settings};

/// A pod, or what a WorkloadEntry describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name of the pod or entry.
    pub name: Arc<str>,
    /// The name in telemetry, such as that of its Deployment.
    pub workload_name: Arc<str>,
    /// The namespace it runs in.
    pub namespace: Arc<str>,
    /// The cluster it runs in.
    pub cluster: Arc<str>,
    /// The network; empty if unknown.
    pub network: Arc<str>,
    /// The labels, with location labels added.
    pub labels: Labels,
    /// `region/zone/subzone` as the registry reports it, with empty parts kept.
    pub locality: Arc<str>,
    /// The SPIFFE identity; empty if unknown.
    pub service_account: Arc<str>,
    /// The TLS mode: `istio`, `disabled`, or another value of the label.
    pub tls_mode: Arc<str>,
    /// Whether it accepts HBONE tunnels, itself or through the ztunnel of its node.
    pub takes_tunnels: bool,
    /// The addresses. An entry may have a host name or a `unix://` path.
    pub addresses: Vec<Arc<str>>,
    /// The Kubernetes node.
    pub node: Arc<str>,
    /// The host name below a headless service, and the name of that service.
    pub host_name: Option<(Arc<str>, Arc<str>)>,
    /// The load balancing weight; 0 if unset.
    pub weight: u32,
    /// Port numbers by port name, where they differ from the service's.
    pub ports: BTreeMap<String, u32>,
    /// Whether it is a pod.
    pub is_pod: bool,
    /// Whether it takes traffic as far as its own agent reports; always true where none reports.
    pub is_healthy: bool,
    /// The object it comes from.
    pub origin: Origin,
}

/// The annotation of a WorkloadEntry that its agent reports its health.
pub(crate) const HEALTH_CHECKED: &str = "proxy.istio.io/health-checks-enabled";

/// The TLS mode of workloads without mutual TLS.
pub const TLS_DISABLED: &str = "disabled";
/// The TLS mode of workloads with mutual TLS.
pub const TLS_ISTIO: &str = "istio";

impl Workload {
    /// Whether an address is a host name or a socket path.
    pub fn has_no_ip(&self) -> bool {
        self.addresses
            .iter()
            .any(|address| !address.is_empty() && canopus_base::net::parse_ip(address).is_err())
    }
}

/// The workload of a pod. `None` if it does not exist or has ended.
pub struct PodWorkload;

impl Query for PodWorkload {
    const NAME: &'static str = "pod_workload";
    type Key = Origin;
    type Value = Option<Arc<Workload>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let pod = object::<Pod>(ctx, origin)?;
        let ended = matches!(pod.status.phase, PodPhase::Succeeded | PodPhase::Failed);
        (!ended).then(|| Arc::new(workload_from_pod(ctx, origin, &pod)))
    }
}

fn workload_from_pod(ctx: &Ctx<'_>, origin: &Origin, pod: &Pod) -> Workload {
    let (meta, spec) = (&pod.meta, &pod.spec);
    let settings = settings(ctx);
    let locality = pod_locality(ctx, origin, pod);
    let network = network::network_of_address(ctx, &origin.cluster, &pod.status.pod_ip, &meta.labels);
    let takes_tunnels = has_tunnel_label(&meta.labels) || is_behind_ztunnel(ctx, origin, meta, &network);
    let identity = Identity::new(settings.trust_domain(), &meta.namespace, &spec.service_account_name);
    let host_name = spec.subdomain.as_ref().filter(|subdomain| !subdomain.is_empty()).map(|subdomain| {
        let own = spec.hostname.as_deref().filter(|name| !name.is_empty()).unwrap_or(&meta.name);
        (Arc::from(own), Arc::from(&**subdomain))
    });
    let addresses = pod.status.pod_ips.iter().map(|ip| Arc::from(&*ip.ip));
    let mut addresses: Vec<_> = addresses.collect();
    if addresses.is_empty() && !pod.status.pod_ip.is_empty() {
        addresses.push(Arc::from(&*pod.status.pod_ip));
    }
    Workload {
        name: Arc::from(&*meta.name),
        workload_name: name::pod_workload_name(meta).into(),
        namespace: Arc::from(&*meta.namespace),
        cluster: origin.cluster.clone(),
        labels: add_location_labels(
            meta.labels.clone(),
            &origin.cluster,
            &locality,
            &spec.node_name,
            &network,
        ),
        network: network.into(),
        locality: locality.into(),
        service_account: identity.map(|identity| identity.to_string()).unwrap_or_default().into(),
        tls_mode: tls_mode(&meta.labels).into(),
        takes_tunnels,
        addresses,
        node: Arc::from(&*spec.node_name),
        host_name,
        weight: 0,
        ports: BTreeMap::new(),
        is_pod: true,
        is_healthy: true,
        origin: origin.clone(),
    }
}

/// Whether a ztunnel handles the traffic of a pod or WorkloadEntry. Of other networks the control plane knows the gateways
/// only, so workloads there do not count.
fn is_behind_ztunnel(ctx: &Ctx<'_>, origin: &Origin, meta: &Meta, network: &str) -> bool {
    let settings = settings(ctx);
    let flags = &settings.flags;
    let own_network = || network::network_of_cluster(ctx, &settings.cluster).unwrap_or_default() == network;
    let is_near =
        origin.cluster == settings.cluster || (flags.get(AMBIENT_ENABLE_MULTI_NETWORK) && own_network());
    let redirected = meta.annotation(annotations::AMBIENT_REDIRECTION.name) == Some("enabled");
    redirected && flags.get(PILOT_ENABLE_AMBIENT) && is_near
}

fn has_tunnel_label(labels: &Labels) -> bool {
    let tunnels = labels.get(known::TUNNEL.name).unwrap_or_default();
    tunnels.split(',').any(|tunnel| tunnel == "http")
}

/// The TLS mode that labels set.
pub fn tls_mode(labels: &Labels) -> &str {
    labels.get(known::SECURITY_TLS_MODE.name).unwrap_or(TLS_DISABLED)
}

/// The locality of a pod: from its own label, else from the labels of its node.
fn pod_locality(ctx: &Ctx<'_>, origin: &Origin, pod: &Pod) -> String {
    if let Some(label) = locality::locality_label(&pod.meta.labels) {
        return label;
    }
    let key = ObjectKey::new(Kind::Node, "", &pod.spec.node_name);
    let Some(node) = object::<Node>(ctx, &Origin::new(origin.cluster.clone(), key)) else {
        return String::new();
    };
    let label = |keys: &[&str]| {
        keys.iter().find_map(|key| node.meta.label(key).filter(|value| !value.is_empty())).unwrap_or_default()
    };
    let region = label(&[known::KUBERNETES_REGION.name, "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(&[known::KUBERNETES_ZONE.name, "failure-domain.beta.kubernetes.io/zone"]);
    let subzone = label(&[known::TOPOLOGY_SUBZONE.name]);
    if region.is_empty() && zone.is_empty() && subzone.is_empty() {
        return String::new();
    }
    format!("{region}/{zone}/{subzone}")
}

/// Adds location labels: region, zone, subzone, cluster, node and network.
pub fn add_location_labels(
    mut labels: Labels,
    cluster: &str,
    locality: &str,
    node: &str,
    network: &str,
) -> Labels {
    let parsed = Locality::parse(locality);
    let mut set = |key: &str, value: &str| {
        if !value.is_empty() {
            labels.insert(key, value);
        }
    };
    set(known::KUBERNETES_REGION.name, &parsed.region);
    set(known::KUBERNETES_ZONE.name, &parsed.zone);
    set(known::TOPOLOGY_SUBZONE.name, &parsed.subzone);
    set(known::TOPOLOGY_CLUSTER.name, cluster);
    set(known::KUBERNETES_HOSTNAME.name, node);
    let known_network = labels.get(known::TOPOLOGY_NETWORK.name).unwrap_or_default();
    if !network.is_empty() && known_network.is_empty() {
        labels.insert(known::TOPOLOGY_NETWORK.name, network);
    }
    labels
}

/// The workload a WorkloadEntry describes.
pub struct EntryWorkload;

impl Query for EntryWorkload {
    const NAME: &'static str = "entry_workload";
    type Key = Origin;
    type Value = Option<Arc<Workload>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let entry = object::<EntryObject>(ctx, origin)?;
        // Labels in the metadata win over those in the spec.
        let mut labels: Labels = entry.spec.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        for (key, value) in entry.meta.labels.iter() {
            labels.insert(key, value);
        }
        let workload = workload_from_entry(ctx, origin, &entry.meta.name, &entry.spec, labels);
        let takes_tunnels =
            workload.takes_tunnels || is_behind_ztunnel(ctx, origin, &entry.meta, &workload.network);
        Some(Arc::new(Workload {
            workload_name: name::entry_workload_name(&entry.meta).into(),
            takes_tunnels,
            is_healthy: is_healthy(ctx, &entry),
            ..workload
        }))
    }
}

/// Whether a WorkloadEntry takes traffic. One whose agent reports its health does not until the agent has said that it is well.
fn is_healthy(ctx: &Ctx<'_>, entry: &EntryObject) -> bool {
    let is_checked = entry.meta.annotation(HEALTH_CHECKED).is_some_and(|value| IS_TRUE.contains(&value));
    if !is_checked || !settings(ctx).flags.get(PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS) {
        return true;
    }
    let reported = entry.status.conditions.iter().find(|condition| condition.r#type == "Healthy");
    reported.is_some_and(|condition| condition.status.eq_ignore_ascii_case("true"))
}

/// Texts that Go parses as `true`.
const IS_TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];

/// The workload of an entry, whether it is a WorkloadEntry object or an endpoint listed in a ServiceEntry.
pub fn workload_from_entry(
    ctx: &Ctx<'_>,
    origin: &Origin,
    name: &str,
    spec: &WorkloadEntry,
    labels: Labels,
) -> Workload {
    let settings = settings(ctx);
    let tls_mode = match labels.get(known::SECURITY_TLS_MODE.name) {
        Some(mode) => mode.to_owned(),
        None if spec.service_account.is_empty() => TLS_DISABLED.to_owned(),
        None => TLS_ISTIO.to_owned(),
    };
    let identity = || Identity::new(settings.trust_domain(), origin.namespace(), &spec.service_account);
    let service_account = match spec.service_account.as_str() {
        "" => String::new(),
        _ => identity().map(|identity| identity.to_string()).unwrap_or_default(),
    };
    let locality = match spec.locality.as_str() {
        "" => locality::locality_label(&labels).unwrap_or_default(),
        written => written.to_owned(),
    };
    let network = match spec.network.as_str() {
        "" => network::network_of_address(ctx, &settings.cluster, &spec.address, &labels),
        written => written.to_owned(),
    };
    Workload {
        name: name.into(),
        workload_name: name.into(),
        namespace: origin.namespace().into(),
        cluster: settings.cluster.clone(),
        labels: add_location_labels(labels.clone(), &settings.cluster, &locality, "", &network),
        // Parity: the network of the endpoint is that in the entry's own field; derived networks only become a label.
        network: spec.network.as_str().into(),
        locality: locality.into(),
        service_account: service_account.into(),
        tls_mode: tls_mode.into(),
        takes_tunnels: has_tunnel_label(&labels),
        addresses: vec![spec.address.as_str().into()],
        node: Arc::default(),
        host_name: None,
        weight: spec.weight,
        ports: spec.ports.clone(),
        is_pod: false,
        is_healthy: true,
        origin: origin.clone(),
    }
}

/// The pods and the WorkloadEntries of a namespace that take traffic, pods first, each sorted by name.
pub struct WorkloadsIn;

impl Query for WorkloadsIn {
    const NAME: &'static str = "workloads_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<Workload>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let pods = ctx.members::<Objects>(&ObjectIndex::Namespace(Kind::Pod, namespace.as_ref().into()));
        let pods = pods.iter().filter_map(|origin| ctx.get::<PodWorkload>(origin).as_ref().clone());
        let mut workloads: Vec<_> = pods.collect();
        by_name(&mut workloads);
        workloads.extend_from_slice(&ctx.get::<EntriesIn>(namespace));
        workloads
    }
}

/// The WorkloadEntries of a namespace that take traffic, sorted by name. Separate from pods, which change more often.
pub struct EntriesIn;

impl Query for EntriesIn {
    const NAME: &'static str = "workload_entries_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<Workload>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let index = ObjectIndex::Namespace(Kind::WorkloadEntry, namespace.as_ref().into());
        let entries = ctx.members::<Objects>(&index);
        let mut workloads: Vec<_> =
            entries.iter().filter_map(|origin| ctx.get::<EntryWorkload>(origin).as_ref().clone()).collect();
        workloads.retain(|workload| workload.is_healthy);
        by_name(&mut workloads);
        workloads
    }
}

fn by_name(workloads: &mut [Arc<Workload>]) {
    workloads.sort_by(|a, b| (&a.name, &a.cluster).cmp(&(&b.name, &b.cluster)));
}
