//! Patches of clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::Ctx;
use canopus_proto::Message;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::core::v3::TransportSocket;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::ClusterMatch;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::resource::Resource;

use super::compile::{Patch, Patches};
use super::tally::Tally;
use super::{Patched, Side, merge, patches};
use crate::audience::PatchSet;
use crate::names::{ClusterName, INBOUND_PASSTHROUGH};
use crate::pool;

/// Clusters of the tunnels between proxies and of their local helpers, which are nobody's to change.
const UNPATCHED: [&str; 5] = [
    "connect_originate",
    "inner_connect_originate",
    "outer_connect_originate",
    "main_internal",
    "sds-external",
];

/// What names of clusters of called services begin with.
const CALLED: &str = "outbound|";

/// The clusters that are not of a workload of its own, with what patches add.
pub(crate) fn shared_clusters(
    ctx: &Ctx<'_>,
    set: &PatchSet,
    kind: NodeKind,
    generated: Arc<Vec<Resource>>,
) -> Patched {
    let side_of = |name: &str| match name {
        name if UNPATCHED.contains(&name) => None,
        // Parity: of a waypoint's clusters, patches reach those of services it calls, not of those it stands in front of.
        name if kind == NodeKind::Waypoint => name.starts_with(CALLED).then_some(Side::Outbound),
        INBOUND_PASSTHROUGH => Some(Side::Inbound),
        _ => Some(Side::for_kind(kind)),
    };
    let mut patched = clusters(ctx, set, generated, side_of, |_| Vec::new());
    let sides: &[Side] = match kind {
        NodeKind::Router => &[Side::Gateway],
        // Parity: only what is for the inbound side of sidecars is added to waypoints.
        NodeKind::Waypoint => &[Side::Inbound],
        _ => &[Side::Outbound, Side::Inbound],
    };
    let patches = patches(ctx, set);
    if patches.clusters.is_empty() {
        return patched;
    }
    let mut names: BTreeSet<_> = patched.resources.iter().map(|resource| resource.name.clone()).collect();
    for side in sides {
        for patch in &patches.clusters {
            let Some(added) = patch.addition(*side) else { continue };
            let is_new = names.insert(added.name.as_str().into());
            patched.tally.note(&patch.id, is_new);
            if is_new {
                let resource = pool::CLUSTERS.share(Resource::encode(added.name.as_str(), added));
                Arc::make_mut(&mut patched.resources).push(resource);
            }
        }
    }
    patched
}

/// Clusters after their patches. `side_of` says by its name which side a cluster is on, if patches concern it at all;
/// `hosts_of` which services it stands for, if its name does not say.
pub(crate) fn clusters(
    ctx: &Ctx<'_>,
    set: &PatchSet,
    generated: Arc<Vec<Resource>>,
    side_of: impl Fn(&str) -> Option<Side>,
    hosts_of: impl Fn(&ClusterName<'_>) -> Vec<Arc<str>>,
) -> Patched {
    let patches = patches(ctx, set);
    if patches.clusters.is_empty() {
        return Patched::untouched(generated);
    }
    let mut tally = Tally::default();
    let mut resources = Vec::new();
    for resource in generated.iter() {
        let decoded = side_of(&resource.name).zip(Cluster::decode(resource.body.clone()).ok());
        let Some((side, cluster)) = decoded else {
            resources.push(resource.clone());
            continue;
        };
        let hosts = ClusterName::parse(&resource.name).map(|name| hosts_of(&name)).unwrap_or_default();
        let encode = |patched: Cluster| match patched == cluster {
            // A cluster that no patch is for stays the very bytes that others have.
            true => resource.clone(),
            false => pool::CLUSTERS.share(Resource::encode(patched.name.as_str(), &patched)),
        };
        resources.extend(patched(&patches, side, cluster.clone(), &hosts, &mut tally).map(encode));
    }
    Patched { resources: Arc::new(resources), tally }
}

/// A cluster after its patches; `None` if one of them removes it.
fn patched(
    patches: &Patches,
    side: Side,
    mut cluster: Cluster,
    hosts: &[Arc<str>],
    tally: &mut Tally,
) -> Option<Cluster> {
    for patch in &patches.clusters {
        if patch.operation == Operation::Add {
            continue;
        }
        let matches = patch.is_on(side) && patch.cluster().is_none_or(|m| is_meant(m, &cluster.name, hosts));
        if matches && patch.operation == Operation::Remove {
            tally.note(&patch.id, true);
            return None;
        }
        let merged = if matches && patch.is_merge() { merge_into(&mut cluster, patch) } else { Ok(false) };
        tally.note(&patch.id, merged == Ok(true));
        if merged == Err(WrongType) {
            // Parity: a patch that Istio cannot merge ends the patching of that cluster. What was merged before stays.
            break;
        }
    }
    Some(cluster)
}

fn is_meant(matching: &ClusterMatch, name: &str, hosts: &[Arc<str>]) -> bool {
    if !matching.name.is_empty() {
        return matching.name == name;
    }
    let parsed = ClusterName::parse(name);
    let (port, subset, host) = parsed.map_or((0, "", ""), |name| (name.port, name.subset, name.host));
    let is_host = |wanted: &str| {
        if hosts.is_empty() { wanted == host } else { hosts.iter().any(|host| **host == *wanted) }
    };
    (matching.subset.is_empty() || matching.subset == subset)
        && (matching.service.is_empty() || is_host(&matching.service))
        && (matching.port_number == 0 || matching.port_number == port)
}

/// The settings of a patch are of another type than those it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WrongType;

/// Merges a patch into a cluster; says whether it had an effect.
fn merge_into(cluster: &mut Cluster, patch: &Patch<Cluster>) -> Result<bool, WrongType> {
    let Some(value) = &patch.value else { return Ok(false) };
    match &value.transport_socket {
        // Parity: a patch of the transport socket is nothing else.
        Some(socket) => merge_socket(cluster, socket),
        None => Ok(merge::into(cluster, value, patch.operation)),
    }
}

fn merge_socket(cluster: &mut Cluster, patch: &TransportSocket) -> Result<bool, WrongType> {
    let merge = |socket: &mut TransportSocket| match merge::is_of_other_type(socket, patch) {
        true => Err(WrongType),
        false => Ok(merge::transport_socket(socket, patch)),
    };
    if cluster.transport_socket_matches.is_empty() {
        return match &mut cluster.transport_socket {
            Some(socket) if socket.name == patch.name => merge(socket),
            socket => {
                *socket = Some(patch.clone());
                Ok(true)
            }
        };
    }
    // A socket beside the alternatives would never be used.
    let mut alternatives = cluster.transport_socket_matches.iter_mut();
    let found = alternatives.find_map(|one| one.transport_socket.as_mut().filter(|s| s.name == patch.name));
    found.map_or(Ok(false), merge)
}
