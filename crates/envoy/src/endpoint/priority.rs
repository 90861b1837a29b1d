//! Which endpoints come first: weights by locality, and priorities by how near or how alike they are.

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::labels as known;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_mesh::audience::Position;
use canopus_mesh::locality::Locality as Place;
use canopus_proto::envoy::config::core::v3::Locality;
use canopus_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use canopus_proto::istio::networking::v1alpha3::locality_load_balancer_setting::Distribute;
use canopus_proto::istio::networking::v1alpha3::{LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};

use super::Destination;
use super::Env;
use super::group::Group;
use crate::proximity::{self, Proximity};

/// Weighs and orders the groups of an assignment as seen from the proxy.
pub(crate) fn prioritise(
    env: &Env<'_>,
    destination: &Destination<'_>,
    groups: &[Group],
    assignment: &mut ClusterLoadAssignment,
) {
    let policy = destination
        .rule
        .as_ref()
        .and_then(|rule| rule.subset_policy(destination.subset, destination.port.number));
    let balancer = policy.as_ref().and_then(|policy| policy.load_balancer.as_ref());
    // Without outlier detection a proxy would never find out that it has to go elsewhere.
    let detects_outliers = policy.as_ref().is_some_and(|policy| policy.outlier_detection.is_some());
    if let Some(proximity) = proximity::find(env.mesh(), destination.service, balancer) {
        order(
            env.audience.role.kind,
            &env.audience.position,
            &proximity,
            detects_outliers,
            groups,
            assignment,
        );
    }
}

/// Weighs and orders the groups of an assignment as a setting says. Labels count for the endpoints of `groups` alone, which
/// are then all there are.
pub(crate) fn order(
    kind: NodeKind,
    position: &Position,
    proximity: &Proximity,
    detects_outliers: bool,
    groups: &[Group],
    assignment: &mut ClusterLoadAssignment,
) {
    let nowhere = Place::default();
    let from = From { place: position.locality.as_deref().unwrap_or(&nowhere), position };
    match proximity {
        Proximity::Localities { setting, always } => {
            by_locality(from, setting, *always || detects_outliers, groups, assignment);
        }
        Proximity::Zones(setting) if kind != NodeKind::Waypoint => {
            by_region(from, setting, groups, assignment);
        }
        Proximity::Zones(_) => {}
    }
}

/// Where the proxy is.
#[derive(Clone, Copy)]
struct From<'a> {
    place: &'a Place,
    position: &'a Position,
}

fn by_locality(
    from: From<'_>,
    setting: &LocalityLoadBalancerSetting,
    fails_over: bool,
    groups: &[Group],
    assignment: &mut ClusterLoadAssignment,
) {
    if !setting.distribute.is_empty() {
        return distribute(from.place, &setting.distribute, assignment);
    }
    if !fails_over {
        return;
    }
    if !setting.failover_priority.is_empty() {
        by_labels(from.position, &setting.failover_priority, groups, assignment);
        if setting.failover.is_empty() {
            return;
        }
    }
    let failover = |region: &str| {
        let entry = setting.failover.iter().find(|entry| entry.from == region)?;
        Some(entry.to.clone())
    };
    let to = failover(&from.place.region);
    let rank = |locality: &Locality| match distance(from.place, locality) {
        3 if to.as_ref().is_some_and(|to| *to != locality.region) => 4,
        distance => distance,
    };
    compose(assignment, 5, rank);
}

/// Keeps the proxy's region together, so that it can balance over the region's zones.
fn by_region(
    from: From<'_>,
    setting: &ZoneAwareLoadBalancerSetting,
    groups: &[Group],
    assignment: &mut ClusterLoadAssignment,
) {
    if setting.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
        return;
    }
    if !setting.failover_priority.is_empty() {
        by_labels(from.position, &setting.failover_priority, groups, assignment);
    }
    let region = &from.place.region;
    let to = setting.failover.iter().find(|entry| entry.from == *region).map(|entry| entry.to.as_str());
    let rank = |locality: &Locality| match &locality.region {
        same if same == region => 0,
        other if to == Some(other) => 1,
        _ => 2,
    };
    compose(assignment, 3, rank);
}

/// How far a locality is: 0 in the same subzone, 1 in the same zone, 2 in the same region, else 3.
fn distance(from: &Place, to: &Locality) -> u32 {
    if from.region != to.region {
        3
    } else if from.zone != to.zone {
        2
    } else if from.subzone != to.sub_zone {
        1
    } else {
        0
    }
}

/// Refines the priorities there are by a rank below `ranks`.
fn compose(assignment: &mut ClusterLoadAssignment, ranks: u32, rank: impl Fn(&Locality) -> u32) {
    let nowhere = Locality::default();
    for group in &mut assignment.endpoints {
        group.priority = group.priority * ranks + rank(group.locality.as_ref().unwrap_or(&nowhere));
    }
    compact(&mut assignment.endpoints);
}

/// Envoy wants priorities without gaps.
fn compact(groups: &mut [LocalityLbEndpoints]) {
    let used: BTreeSet<u32> = groups.iter().map(|group| group.priority).collect();
    let places: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
    for group in groups {
        group.priority = places[&group.priority];
    }
}

/// Splits groups by how many of the labels, from the first on, their endpoints share with the proxy.
fn by_labels(from: &Position, wanted: &[String], groups: &[Group], assignment: &mut ClusterLoadAssignment) {
    if !from.has_labels || groups.is_empty() {
        return;
    }
    let mut split = Vec::new();
    for (group, mut message) in groups.iter().zip(std::mem::take(&mut assignment.endpoints)) {
        let mut endpoints: Vec<_> = std::mem::take(&mut message.lb_endpoints).into_iter().map(Some).collect();
        let mut by_priority: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, member) in group.members.iter().enumerate() {
            by_priority
                .entry(unlikeness(&from.labels, wanted, &member.workload.labels))
                .or_default()
                .push(index);
        }
        for (priority, indices) in by_priority {
            let weight: u32 = indices.iter().map(|index| group.members[*index].weight()).sum();
            split.push(LocalityLbEndpoints {
                lb_endpoints: indices.iter().filter_map(|index| endpoints[*index].take()).collect(),
                priority,
                load_balancing_weight: Some(weight.into()),
                ..message.clone()
            });
        }
    }
    compact(&mut split);
    assignment.endpoints = split;
}

/// How many labels are left when the first one differs. Another network only puts an endpoint behind all of one's own.
fn unlikeness(own: &Labels, wanted: &[String], other: &Labels) -> u32 {
    let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    let by_network = wanted.first().is_some_and(|first| first == known::TOPOLOGY_NETWORK.name);
    let mut behind = 0;
    for (index, entry) in (0..).zip(wanted) {
        let (label, value) = match entry.split_once('=') {
            Some((label, value)) => (label, Some(value)),
            None => (entry.as_str(), own.get(label_of(entry))),
        };
        if value.unwrap_or_default() == other.get(label).unwrap_or_default() {
            continue;
        }
        if index == 0 && by_network {
            behind = count;
            continue;
        }
        return behind + count - index;
    }
    behind
}

fn label_of(entry: &str) -> &str {
    entry.split('=').next().unwrap_or(entry)
}

/// The entry by which a proxy in this locality distributes requests: the first that covers it.
pub(super) fn distribution<'a>(entries: &'a [Distribute], from: &Place) -> Option<&'a Distribute> {
    let own =
        Locality { region: from.region.clone(), zone: from.zone.clone(), sub_zone: from.subzone.clone() };
    entries.iter().find(|entry| covers(&entry.from, &own))
}

/// Weighs localities as the entry for the proxy's own says; localities it does not name get nothing.
fn distribute(from: &Place, entries: &[Distribute], assignment: &mut ClusterLoadAssignment) {
    let Some(entry) = distribution(entries, from) else { return };
    let nowhere = Locality::default();
    let mut left: BTreeSet<usize> = (0..assignment.endpoints.len()).collect();
    for (target, share) in &entry.to {
        let matches = |index: &usize| {
            covers(target, assignment.endpoints[*index].locality.as_ref().unwrap_or(&nowhere))
        };
        let matching: Vec<usize> = left.iter().copied().filter(matches).collect();
        let weight = |index: usize| {
            assignment.endpoints[index].load_balancing_weight.as_ref().map_or(1, |weight| weight.value)
        };
        let weights: Vec<u32> = matching.iter().map(|index| weight(*index)).collect();
        let total: u32 = weights.iter().sum();
        for (index, weight) in matching.into_iter().zip(weights) {
            left.remove(&index);
            let scaled = f64::from(weight.wrapping_mul(*share)) / f64::from(total);
            if scaled > 0.0 {
                assignment.endpoints[index].load_balancing_weight = Some((scaled.ceil() as u32).into());
            }
        }
    }
    for index in left {
        assignment.endpoints[index].lb_endpoints.clear();
    }
}

/// Whether a rule such as `region/zone/*` covers a locality.
fn covers(rule: &str, locality: &Locality) -> bool {
    let rule = Place::parse(rule);
    let open = |wanted: &str, part: &str| matches!(wanted, "*" | "") || wanted == part;
    (rule.region == "*" || rule.region == locality.region)
        && open(&rule.zone, &locality.zone)
        && open(&rule.subzone, &locality.sub_zone)
}
