use super::*;
use crate::testing;
use crate::world::MeshSettings;

/// A policy of a namespace, created in this minute.
fn policy(namespace: &str, minute: u8, spec: &str) -> String {
    format!(
        "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: p{minute}, \
         namespace: {namespace}, creationTimestamp: '2024-01-01T00:{minute:02}:00Z'}}, spec: {{{spec}}}}}"
    )
}

/// The policy of a workload of `ns` with label `app: a`.
fn effective(policies: &[String]) -> PeerPolicy {
    let engine = testing::world(MeshSettings::default(), &policies.join("\n---\n"));
    let labels = SelectorLabels::unreduced(&[("app", "a")].into_iter().collect());
    engine.get::<WorkloadPolicy>(&("ns".into(), labels)).unwrap().as_ref().clone()
}

#[test]
fn both_sorts_of_connections_are_taken_when_there_is_no_policy() {
    assert_eq!(effective(&[]), PeerPolicy { mode: MutualTls::Permissive, ports: BTreeMap::new() });
}

#[test]
fn narrower_policies_win_and_unset_ones_inherit() {
    let mesh = policy("istio-system", 1, "mtls: {mode: STRICT}");
    let namespace = policy("ns", 2, "mtls: {mode: DISABLE}");
    let unset = policy("ns", 2, "mtls: {mode: UNSET}");
    let workload = policy("ns", 3, "selector: {matchLabels: {app: a}}, mtls: {mode: PERMISSIVE}");
    let of_other = policy("ns", 3, "selector: {matchLabels: {app: b}}, mtls: {mode: PERMISSIVE}");
    assert_eq!(effective(std::slice::from_ref(&mesh)).mode, MutualTls::Strict);
    assert_eq!(effective(&[mesh.clone(), unset]).mode, MutualTls::Strict);
    assert_eq!(effective(&[mesh.clone(), namespace.clone()]).mode, MutualTls::Disable);
    assert_eq!(effective(&[namespace.clone(), of_other]).mode, MutualTls::Disable);
    assert_eq!(effective(&[mesh, namespace, workload]).mode, MutualTls::Permissive);
}

#[test]
fn the_oldest_counts_when_several_are_of_one_width() {
    let older = policy("ns", 1, "mtls: {mode: STRICT}");
    let younger = policy("ns", 2, "mtls: {mode: DISABLE}");
    assert_eq!(effective(&[younger, older]).mode, MutualTls::Strict);
}

#[test]
fn ports_have_modes_of_their_own_or_that_of_the_workload() {
    let policy = policy(
        "ns",
        1,
        "selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}, \
         portLevelMtls: {8080: {mode: DISABLE}, 9090: {mode: UNSET}}",
    );
    let effective = effective(&[policy]);
    assert_eq!(effective.mode_on_port(8080), MutualTls::Disable);
    assert_eq!(effective.mode_on_port(9090), MutualTls::Strict);
    assert_eq!(effective.mode_on_port(1), MutualTls::Strict);
    assert_eq!(effective.ports.len(), 2);
}

#[test]
fn selectors_count_nowhere_when_they_are_of_the_root_namespace() {
    let selecting = policy("istio-system", 1, "selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}");
    assert_eq!(effective(&[selecting]).mode, MutualTls::Permissive);
}
