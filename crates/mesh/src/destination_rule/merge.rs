//! Merging several DestinationRules of one host: the first decides, others add subsets and fill unset policies.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use canopus_proto::istio::networking::v1alpha3::traffic_policy::PortTrafficPolicy;
use canopus_proto::istio::networking::v1alpha3::{DestinationRule, TrafficPolicy};

use super::{Rule, RuleTable, policy};

/// Merges a rule into the present ones, which are older or more specific.
///
/// With `by_audience`, rules are merged only if the new one is exported at least as widely as the present one.
pub(super) fn add(table: &mut RuleTable, mut rule: Rule, by_audience: bool) {
    let rules = table.entry(rule.id.host.clone()).or_default();
    let mut stands_alone = true;
    for present in rules.iter_mut() {
        if by_audience {
            stands_alone = rule.export_to != present.export_to;
            if stands_alone && !covers(&rule, present) {
                continue;
            }
        }
        match (present.selector(), rule.selector()) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                stands_alone = true;
                continue;
            }
            (Some(_), Some(_)) | (None, None) => stands_alone = false,
            // Parity: where both are for the same namespaces, a rule for all workloads that is younger than one for some
            // of them lives on in that one alone.
            _ => {}
        }
        absorb(Arc::make_mut(present), &rule);
    }
    if stands_alone {
        rule.id.position = rules.len();
        rules.push(Arc::new(rule));
    }
}

/// Whether every namespace that sees `present` sees `rule` too.
fn covers(rule: &Rule, present: &Rule) -> bool {
    !present.export_to.is_empty() && rule.export_to.is_superset(&present.export_to)
}

fn absorb(into: &mut Rule, rule: &Rule) {
    into.from.extend(rule.from.iter().cloned());
    add_subsets(&mut into.spec, &rule.spec);
    let ours = into.spec.traffic_policy.take();
    let theirs = rule.spec.traffic_policy.clone();
    into.spec.traffic_policy = match (into.is_derived, rule.is_derived) {
        (false, true) => fill(ours, theirs),
        (true, false) => fill(theirs, ours),
        _ => ours.or(theirs),
    };
}

fn add_subsets(into: &mut DestinationRule, from: &DestinationRule) {
    let known: BTreeSet<String> = into.subsets.iter().map(|subset| subset.name.clone()).collect();
    into.subsets.extend(from.subsets.iter().filter(|subset| !known.contains(&subset.name)).cloned());
}

/// Fills the unset fields of a user's policy from a derived one.
fn fill(user: Option<TrafficPolicy>, derived: Option<TrafficPolicy>) -> Option<TrafficPolicy> {
    match (user, derived) {
        (Some(mut user), Some(mut derived)) => {
            let ports =
                (mem::take(&mut user.port_level_settings), mem::take(&mut derived.port_level_settings));
            let filled = policy::overlay(derived, user, false);
            Some(TrafficPolicy { port_level_settings: fill_ports(ports.0, ports.1), ..filled })
        }
        (user, derived) => user.or(derived),
    }
}

fn fill_ports(mut user: Vec<PortTrafficPolicy>, derived: Vec<PortTrafficPolicy>) -> Vec<PortTrafficPolicy> {
    let number = |settings: &PortTrafficPolicy| settings.port.as_ref().map_or(0, |port| port.number);
    for settings in derived {
        match user.iter_mut().find(|own| number(own) == number(&settings)) {
            Some(own) => {
                own.load_balancer = own.load_balancer.take().or(settings.load_balancer);
                own.connection_pool = own.connection_pool.take().or(settings.connection_pool);
                own.outlier_detection = own.outlier_detection.take().or(settings.outlier_detection);
                own.tls = own.tls.take().or(settings.tls);
            }
            None => user.push(settings),
        }
    }
    user
}
