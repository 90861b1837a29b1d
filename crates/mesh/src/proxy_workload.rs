//! The workload behind a proxy: its pod, its WorkloadEntry, or an endpoint of a ServiceEntry at its address.

use std::sync::Arc;

use canopus_api::istio::WorkloadEntry;
use canopus_api::kube::Pod;
use canopus_api::{Kind, ObjectKey};
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::ENABLE_PROXY_FIND_POD_BY_IP;

use crate::endpoint::entry_endpoints_at;
use crate::locality::Locality;
use crate::proxy::Proxy;
use crate::workload::{EntryWorkload, PodWorkload, Workload, add_location_labels};
use crate::world::{ObjectIndex, Origin, indexed_objects, settings};

/// The labels and locality of the workload behind a proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The labels of the workload, with location labels added.
    pub labels: Labels,
    /// The locality, from labels, else as the proxy reports it.
    pub locality: Locality,
}

/// Describes the workload behind a proxy. Registries win over the proxy's own metadata, except on virtual machines.
pub fn describe(ctx: &Ctx<'_>, proxy: &Proxy) -> Described {
    let pod = || pod_of_proxy(ctx, proxy).map(|pod| pod.labels.clone());
    let known = || pod().or_else(|| endpoint_labels(ctx, proxy));
    let labels = match (!proxy.is_vm()).then(known).flatten() {
        Some(labels) => proxy.metadata.static_labels.iter().chain(labels.iter()).collect(),
        None => proxy.metadata.labels.clone(),
    };
    let locality = Locality::from_labels(&labels).unwrap_or_else(|| proxy.locality.clone());
    let metadata = &proxy.metadata;
    let labels = add_location_labels(
        labels,
        &metadata.cluster_id,
        &locality.to_string(),
        &metadata.node_name,
        &metadata.network,
    );
    Described { labels, locality }
}

/// [`describe`] as a query, for callers outside of queries.
pub struct DescriptionOf;

impl Query for DescriptionOf {
    const NAME: &'static str = "description_of";
    type Key = Proxy;
    type Value = Described;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Described {
        describe(ctx, proxy)
    }
}
/// Finds the pod of a proxy by its node id or, if the flag allows it, by its address.
pub fn pod_of_proxy(ctx: &Ctx<'_>, proxy: &Proxy) -> Option<Arc<Workload>> {
    let cluster: Arc<str> = match proxy.metadata.cluster_id.as_str() {
        "" => settings(ctx).cluster.clone(),
        cluster => cluster.into(),
    };
    if let Some((name, namespace)) = proxy.id.id.split_once('.') {
        let origin = Origin::new(cluster.clone(), ObjectKey::new(Kind::Pod, namespace, name));
        if let Some(pod) = ctx.get::<PodWorkload>(&origin).as_ref() {
            return Some(pod.clone());
        }
    }
    if !settings(ctx).flags.get(ENABLE_PROXY_FIND_POD_BY_IP) {
        return None;
    }
    let index = ObjectIndex::WorkloadAddress(proxy.id.addresses.first()?.to_string().into());
    let pods = indexed_objects::<Pod>(ctx, &index);
    // Pods on the host network share the address of their node, so an address does not identify them.
    let own = pods.into_iter().filter(|(origin, pod)| origin.cluster == cluster && !pod.spec.host_network);
    let mut own: Vec<_> =
        own.filter_map(|(origin, _)| ctx.get::<PodWorkload>(&origin).as_ref().clone()).collect();
    if own.len() > 1 {
        own.retain(|pod| *pod.namespace == *proxy.metadata.namespace);
    }
    own.into_iter().next()
}

/// Finds the labels of a proxy that is not a pod: those of the ServiceEntry endpoint at its address, in its namespace.
fn endpoint_labels(ctx: &Ctx<'_>, proxy: &Proxy) -> Option<Labels> {
    let metadata = &proxy.metadata;
    if !(metadata.cluster_id.is_empty() || *metadata.cluster_id == *settings(ctx).cluster) {
        return None;
    }
    let addresses = proxy.id.addresses.iter().map(ToString::to_string);
    let mut found = addresses.flat_map(|address| entry_endpoints_at(ctx, &metadata.namespace, &address));
    found.next().map(|(_, endpoint)| endpoint.workload.labels.clone())
}

/// Finds the WorkloadEntry at the address of a proxy, in its namespace. Of several, the one that its node id names wins.
pub fn entry_of_proxy(ctx: &Ctx<'_>, proxy: &Proxy) -> Option<Arc<Workload>> {
    let address = proxy.id.addresses.first()?.to_string();
    let entries = indexed_objects::<WorkloadEntry>(ctx, &ObjectIndex::WorkloadAddress(address.into()));
    let of_namespace = |origin: &Origin| {
        proxy.metadata.namespace.is_empty() || *origin.namespace() == *proxy.metadata.namespace
    };
    let mut found: Vec<_> = entries
        .into_iter()
        .filter(|(origin, _)| of_namespace(origin))
        .filter_map(|(origin, _)| ctx.get::<EntryWorkload>(&origin).as_ref().clone())
        .collect();
    let named =
        found.iter().position(|workload| proxy.id.id == format!("{}.{}", workload.name, workload.namespace));
    if found.is_empty() { None } else { Some(found.swap_remove(named.unwrap_or(0))) }
}
