//! Gateway API: policies that select its gateways in vain, and definitions that are too old.

use std::collections::BTreeMap;

use canopus_api::istio::{AuthorizationPolicy, RequestAuthentication, Telemetry, WasmPlugin};
use canopus_api::{Kind, labels};

use super::selector;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

/// The oldest versions of Gateway API's definitions that Istio reads.
const MINIMUM_VERSIONS: [(&str, [u64; 3]); 4] = [
    ("grpcroutes.gateway.networking.k8s.io", [1, 1, 0]),
    ("backendtlspolicies.gateway.networking.k8s.io", [1, 4, 0]),
    ("tlsroutes.gateway.networking.k8s.io", [1, 5, 0]),
    ("tcproutes.gateway.networking.k8s.io", [1, 6, 0]),
];

const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";

pub(crate) fn selectors(world: &World, findings: &mut Findings) {
    macro_rules! check {
        ($($kind:ty),*) => {$(
            for (resource, policy) in world.each::<$kind>() {
                let wanted = policy.spec.selector.as_ref().map(|selector| &selector.match_labels);
                if let Some(wanted) = wanted.filter(|_| policy.spec.target_ref.is_none()) {
                    check_selector(world, resource, wanted, findings);
                }
            }
        )*};
    }
    check!(AuthorizationPolicy, RequestAuthentication, Telemetry, WasmPlugin);
}

fn check_selector(
    world: &World,
    policy: &Resource,
    wanted: &BTreeMap<String, String>,
    findings: &mut Findings,
) {
    let pods = world.objects_of_kind(Kind::Pod).iter().filter(|pod| pod.namespace() == policy.namespace());
    for pod in pods.filter(|pod| selector::selects(wanted, pod.labels())) {
        if let Some(gateway) = pod.labels().get(&labels::GATEWAY_NAME) {
            findings.add(&catalogue::INEFFECTIVE_SELECTOR, policy, &[gateway.into()]);
        }
    }
}

pub(crate) fn definition_versions(world: &World, findings: &mut Findings) {
    for definition in world.objects_of_kind(Kind::CustomResourceDefinition) {
        let minimum = MINIMUM_VERSIONS.iter().find(|(name, _)| *name == definition.name());
        let installed = definition.annotation(BUNDLE_VERSION).and_then(parse_version);
        let (Some((name, minimum)), Some((installed, text))) = (minimum, installed) else { continue };
        if installed < *minimum {
            let minimum = minimum.map(|part| part.to_string()).join(".");
            let parameters = [(*name).into(), text.into(), minimum.into()];
            findings.add(&catalogue::GATEWAY_API_CRD_VERSION_BELOW_MINIMUM, definition, &parameters);
        }
    }
}

/// The numbers of a version and its text without a leading `v`; a pre-release counts as the release.
fn parse_version(text: &str) -> Option<([u64; 3], String)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbers = text.split(['-', '+']).next()?;
    let mut version = [0; 3];
    let mut parts = numbers.split('.');
    for part in &mut version {
        *part = match parts.next() {
            Some(number) => number.parse().ok()?,
            None => 0,
        };
    }
    parts.next().is_none().then(|| (version, text.to_owned()))
}
