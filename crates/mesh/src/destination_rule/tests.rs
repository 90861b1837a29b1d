use canopus_engine::Engine;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::{LbPolicy, SimpleLb};

use super::*;
use crate::testing;
use crate::world::MeshSettings;

fn world(documents: &str) -> Engine {
    testing::world(MeshSettings::default(), documents)
}

/// One rule: name, namespace, age in days of January, and the rest of its spec.
fn rule(name: &str, namespace: &str, day: u32, spec: &str) -> String {
    let meta =
        format!("{{name: {name}, namespace: {namespace}, creationTimestamp: '2026-01-{day:02}T00:00:00Z'}}");
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {meta}\nspec: {{{spec}}}\n---\n"
    )
}

/// The names of the rules for `a.ns` as seen from a namespace, those of one host joined by `+`.
fn seen(documents: &[String], caller: &str) -> Vec<String> {
    let service = ServiceKey::new("a.ns.svc.cluster.local", "ns");
    let rules = world(&documents.concat()).get::<RulesFor>(&(caller.into(), service)).unwrap();
    let named = |rule: &Arc<Rule>| rule.from.iter().map(Origin::name).collect::<Vec<_>>().join("+");
    rules.iter().map(named).collect()
}

#[test]
fn callers_namespace_goes_before_the_services_and_that_before_the_root() {
    let all = [
        rule("mine", "caller", 1, "host: '*.cluster.local'"),
        rule("theirs", "ns", 1, "host: a"),
        rule("roots", "istio-system", 1, "host: '*.local'"),
    ];
    assert_eq!(seen(&all, "caller"), ["mine"]);
    assert_eq!(seen(&all, "other"), ["theirs"]);
    assert_eq!(seen(&all[2..], "other"), ["roots"]);
    // What the root says to all does not go before what the service's namespace says, not even for its own proxies.
    assert_eq!(seen(&all, "istio-system"), ["theirs"]);
}

#[test]
fn narrowest_host_wins_within_a_namespace() {
    let all = [
        rule("any", "ns", 1, "host: '*'"),
        rule("wide", "ns", 1, "host: '*.cluster.local'"),
        rule("narrow", "ns", 1, "host: '*.ns.svc.cluster.local'"),
    ];
    assert_eq!(seen(&all, "other"), ["narrow"]);
}

#[test]
fn rules_are_for_whom_they_are_exported_to() {
    let private = [rule("private", "ns", 1, "host: a, exportTo: ['.']")];
    assert_eq!(seen(&private, "ns"), ["private"]);
    assert_eq!(seen(&private, "other"), [""; 0]);
    let named = [rule("named", "ns", 1, "host: a, exportTo: [other]")];
    assert_eq!(seen(&named, "other"), ["named"]);
    assert_eq!(seen(&named, "ns"), [""; 0]);
}

#[test]
fn rules_for_one_host_are_merged_oldest_first() {
    let random = "trafficPolicy: {loadBalancer: {simple: RANDOM}}";
    let all = [
        rule("young", "ns", 2, &format!("host: a, {random}, subsets: [{{name: one}}, {{name: two}}]")),
        rule("old", "ns", 1, "host: a.ns.svc.cluster.local, subsets: [{name: one, labels: {v: '1'}}]"),
    ];
    assert_eq!(seen(&all, "other"), ["old+young"]);
    let service = ServiceKey::new("a.ns.svc.cluster.local", "ns");
    let rules = world(&all.concat()).get::<RulesFor>(&("other".into(), service)).unwrap();
    assert_eq!(rules[0].subset_labels("one").get("v"), Some("1"));
    assert!(rules[0].subset("two").is_some());
    let balancer = rules[0].policy(80).and_then(|policy| policy.load_balancer).unwrap();
    assert_eq!(balancer.lb_policy, Some(LbPolicy::Simple(SimpleLb::Random as i32)));
}

#[test]
fn rules_for_other_audiences_are_kept_apart() {
    let all = [
        rule("some", "ns", 1, "host: a, exportTo: [other]"),
        rule("all", "ns", 2, "host: a, exportTo: ['*']"),
    ];
    assert_eq!(seen(&all, "other"), ["some", "all"]);
    assert_eq!(seen(&all, "third"), ["all"]);
}

#[test]
fn rules_for_some_workloads_stay_in_their_namespace() {
    let selected = "host: a, workloadSelector: {matchLabels: {app: x}}";
    let all = [rule("all", "ns", 1, "host: a"), rule("some", "ns", 2, selected)];
    assert_eq!(seen(&all, "ns"), ["some", "all"]);
    assert_eq!(seen(&all, "other"), ["all"]);
}

#[test]
fn rule_is_found_again_by_its_id() {
    let all = [
        rule("some", "ns", 1, "host: a, exportTo: [other]"),
        rule("all", "ns", 2, "host: a, exportTo: ['*']"),
    ];
    let engine = world(&all.concat());
    let service = ServiceKey::new("a.ns.svc.cluster.local", "ns");
    let found = engine.get::<RulesFor>(&("other".into(), service)).unwrap();
    let tables = engine.get::<RulesIn>(&"ns".into()).unwrap();
    for rule in found.iter() {
        let id = &rule.id;
        assert_eq!(&tables.tables[&id.scope][&id.host][id.position], rule);
    }
}

#[test]
fn settings_of_a_port_replace_all_others() {
    let policy = TrafficPolicy {
        tls: Some(Default::default()),
        load_balancer: Some(Default::default()),
        port_level_settings: vec![
            canopus_proto::istio::networking::v1alpha3::traffic_policy::PortTrafficPolicy {
                port: Some(canopus_proto::istio::networking::v1alpha3::PortSelector { number: 80 }),
                connection_pool: Some(Default::default()),
                ..Default::default()
            },
        ],
        ..Default::default()
    };
    let (port, own) = policy_for_port(&policy, 80);
    assert!(own && port.tls.is_none() && port.connection_pool.is_some());
    let (port, own) = policy_for_port(&policy, 81);
    assert!(!own && port.tls.is_some());
    // A subset adds to the rule, but its settings of a port replace the rule's.
    let subset = TrafficPolicy { outlier_detection: Some(Default::default()), ..Default::default() };
    let merged = policy_for_subset(Some(&policy), Some(&subset), 81).unwrap();
    assert!(merged.tls.is_some() && merged.outlier_detection.is_some());
    let merged = policy_for_subset(Some(&subset), Some(&policy), 80).unwrap();
    assert!(merged.outlier_detection.is_none() && merged.connection_pool.is_some());
}
