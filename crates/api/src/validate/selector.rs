//! What an object applies to: selected workloads, or other objects it refers to.

use std::collections::BTreeMap;

use canopus_proto::istio::networking::v1alpha3::WorkloadSelector as NetworkingSelector;
use canopus_proto::istio::r#type::v1beta1::{PolicyTargetReference, WorkloadSelector};

use super::code::codes;
use super::scope::Scope;
use crate::text::quoted;

codes! {
    EMPTY_KEY: error "selector-key-empty", "give the key of a label";
    WILDCARD: error "selector-wildcard", "name each label in full";
    NO_LABELS: warning "selector-without-labels", "add labels, or remove the selector";
    REF_WITHOUT_NAME: error "target-ref-without-name", "give the name of the object";
    REF_WITH_NAMESPACE: error "target-ref-with-namespace", "remove the namespace: the object is in this one";
    REF_KIND: error "target-ref-kind-unsupported", "refer to a Service, ServiceEntry, Gateway or GatewayClass";
    REF_AND_SELECTOR: error "target-ref-and-selector", "use either a selector or references";
}

const WITHOUT_LABELS: &str = "workload selector specified without labels";

/// The kinds a policy may refer to: group, as Istio's message lists it, and kind.
const TARGETS: [(&str, &str); 4] = [
    ("core", "Service"),
    ("networking.istio.io", "ServiceEntry"),
    ("gateway.networking.k8s.io", "Gateway"),
    ("gateway.networking.k8s.io", "GatewayClass"),
];

/// A selector of security, telemetry and extension kinds, and of destination rules.
pub fn workload(selector: &WorkloadSelector, mut scope: Scope<'_>) {
    labels("matchLabels", &selector.match_labels, scope.again());
    scope.add_if(selector.match_labels.is_empty(), || NO_LABELS.says(WITHOUT_LABELS));
}

/// A selector of networking kinds; `owner` is what the warning calls the object.
pub fn networking(selector: &NetworkingSelector, owner: &str, mut scope: Scope<'_>) {
    labels("labels", &selector.labels, scope.again());
    scope.add_if(selector.labels.is_empty(), || {
        NO_LABELS.says(format!("{owner}: {WITHOUT_LABELS}, will be applied to all services in namespace"))
    });
}

fn labels(name: &'static str, labels: &BTreeMap<String, String>, mut scope: Scope<'_>) {
    scope.each_entry(name, labels, |key, value, mut scope| {
        let label = || quoted(&format!("{key}={value}"));
        scope.add_if(key.is_empty(), || {
            EMPTY_KEY.says(format!("empty key is not supported in selector: {}", label()))
        });
        scope.add_if(key.contains('*') || value.contains('*'), || {
            WILDCARD.says(format!("wildcard is not supported in selector: {}", label())).with_value(value)
        });
    });
}

/// A reference to the object a policy applies to.
pub fn target_ref(target: &PolicyTargetReference, mut scope: Scope<'_>) {
    let PolicyTargetReference { group, kind, name, namespace } = target;
    if name.is_empty() {
        scope.field("name").add(REF_WITHOUT_NAME.says("targetRef name must be set"));
    }
    if !namespace.is_empty() {
        let message = "targetRef namespace must not be set; cross namespace referencing is not supported";
        scope.field("namespace").add(REF_WITH_NAMESPACE.says(message).with_value(namespace));
    }
    let canonical = if group.is_empty() { "core" } else { group };
    if !TARGETS.contains(&(canonical, kind)) {
        let known: Vec<_> = TARGETS.iter().map(|(group, kind)| format!("{group}/v1/{kind}")).collect();
        let known = known.join(" ");
        let message = format!("targetRef must be to one of [{known}] but was {group}/{kind}");
        scope.field("kind").add(REF_KIND.says(message).with_value(kind));
    }
}

/// References to the objects a policy applies to, one of them perhaps in the older field.
pub fn target_refs(
    target: Option<&PolicyTargetReference>,
    targets: &[PolicyTargetReference],
    mut scope: Scope<'_>,
) {
    scope.optional("targetRef", target, target_ref);
    scope.each("targetRefs", targets, target_ref);
}

/// At most one of the ways to say what a policy applies to.
pub fn one_way(
    selector: Option<&WorkloadSelector>,
    target: Option<&PolicyTargetReference>,
    targets: &[PolicyTargetReference],
    mut scope: Scope<'_>,
) {
    let ways = [selector.is_some(), target.is_some(), !targets.is_empty()];
    if ways.into_iter().filter(|used| *used).count() > 1 {
        scope.add(REF_AND_SELECTOR.says("only one of targetRefs or workloadSelector can be set"));
    }
}
