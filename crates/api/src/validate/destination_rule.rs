//! Destination rules.

use std::collections::BTreeSet;

use canopus_proto::istio::networking::v1alpha3::Subset;

use super::code::codes;
use super::export_to::{self, Exporter};
use super::scope::Scope;
use super::{destination, host, labels, selector, traffic_policy};
use crate::istio::DestinationRule;

codes! {
    DUPLICATE_SUBSET: error "subset-twice", "give each subset a name of its own";
}

/// Checks a DestinationRule.
pub fn check(rule: &DestinationRule, mut scope: Scope<'_>) {
    let namespace = &*rule.meta.namespace;
    let spec = &rule.spec;
    let mut scope = scope.field("spec");
    scope.field("host").require(host::wildcard(&spec.host));
    scope.optional("trafficPolicy", spec.traffic_policy.as_ref(), |policy, scope| {
        traffic_policy::check(policy, namespace, scope);
    });
    let mut names = BTreeSet::new();
    scope.each("subsets", &spec.subsets, |subset, mut scope| {
        if !names.insert(subset.name.as_str()) {
            let message = format!("duplicate subset names: {}", subset.name);
            scope.field("name").add(DUPLICATE_SUBSET.says(message).with_value(&subset.name));
        }
        // Parity: Istio drops the warnings of a subset's policy.
        self::subset(subset, namespace, scope.without_warnings());
    });
    let exporter = if spec.workload_selector.is_some() { Exporter::SelectingRule } else { Exporter::Other };
    export_to::check(&spec.export_to, namespace, exporter, scope.field("exportTo"));
    scope.optional("workloadSelector", spec.workload_selector.as_ref(), selector::workload);
}

fn subset(subset: &Subset, namespace: &str, mut scope: Scope<'_>) {
    scope.field("name").require(destination::subset_name(&subset.name));
    labels::check("labels", &subset.labels, scope.again());
    scope.optional("trafficPolicy", subset.traffic_policy.as_ref(), |policy, scope| {
        traffic_policy::check(policy, namespace, scope);
    });
}
