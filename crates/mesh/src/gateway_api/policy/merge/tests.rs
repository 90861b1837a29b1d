use super::super::DerivedRules;
use super::*;
use crate::testing;
use crate::world::MeshSettings;
use canopus_runtime::flags::Flags;

/// The rules of namespace `app`, where a Service `web` has the ports `http` (80) and `https` (443).
fn rules_of(policies: &[String]) -> Arc<Vec<Arc<istio::DestinationRule>>> {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: app},
        spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: https, port: 443}]}}";
    let flags = Flags::read(&[("PILOT_ENABLE_ALPHA_GATEWAY_API", "true")]);
    let settings = MeshSettings { flags: Arc::new(flags), ..MeshSettings::default() };
    let world = testing::world(settings, &format!("{service}\n---\n{}", policies.join("\n---\n")));
    world.snapshot().get::<DerivedRules>(&Arc::from("app")).unwrap()
}

/// A BackendTLSPolicy of the `day`, for one port if it is named.
fn tls(name: &str, day: u32, section: &str) -> String {
    let section = if section.is_empty() { String::new() } else { format!(", sectionName: {section}") };
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy,
           metadata: {{name: {name}, namespace: app, creationTimestamp: 2026-01-0{day}T00:00:00Z}},
           spec: {{targetRefs: [{{group: '', kind: Service, name: web{section}}}],
                   validation: {{wellKnownCACertificates: System, hostname: {name}.example.com}}}}}}"
    )
}

/// An XBackendTrafficPolicy of the `day` with this retry budget.
fn traffic(name: &str, day: u32, percent: Option<u32>) -> String {
    let budget = percent.map_or_else(String::new, |percent| {
        format!(", retryConstraint: {{budget: {{percent: {percent}, interval: 10s}}}}")
    });
    format!(
        "{{apiVersion: gateway.networking.x-k8s.io/v1alpha1, kind: XBackendTrafficPolicy,
           metadata: {{name: {name}, namespace: app, creationTimestamp: 2026-01-0{day}T00:00:00Z}},
           spec: {{targetRefs: [{{group: '', kind: Service, name: web}}]{budget}}}}}"
    )
}

fn policy(rule: &istio::DestinationRule) -> &TrafficPolicy {
    rule.spec.traffic_policy.as_ref().unwrap()
}

fn parents(rule: &istio::DestinationRule) -> &str {
    rule.meta.annotation(annotations::INTERNAL_PARENTS.name).unwrap()
}

#[test]
fn policies_of_both_kinds_are_one_rule() {
    let rules =
        rules_of(&[traffic("retries", 1, Some(20)), tls("everywhere", 2, ""), tls("encrypted", 3, "https")]);
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!(rule.spec.host, "web.app.svc.cluster.local");
    let merged = policy(rule);
    assert_eq!(merged.tls.as_ref().unwrap().sni, "everywhere.example.com");
    assert_eq!(merged.retry_budget.as_ref().unwrap().percent.unwrap().value, 20.0);
    let ports: Vec<_> = merged
        .port_level_settings
        .iter()
        .map(|port| (port.port.as_ref().unwrap().number, port.tls.as_ref().unwrap().sni.as_str()))
        .collect();
    assert_eq!(ports, [(443, "encrypted.example.com")]);
    assert_eq!(
        parents(rule),
        "XBackendTrafficPolicy/app.retries,BackendTLSPolicy/app.everywhere,BackendTLSPolicy/app.encrypted"
    );
}

#[test]
fn younger_traffic_policy_is_left_out_whole() {
    // A traffic policy always sets a load balancer, so a younger one does not even add the budget that the older lacks.
    let rules = rules_of(&[traffic("younger", 2, Some(50)), traffic("older", 1, None)]);
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!(policy(rule).retry_budget, None);
    assert_eq!(parents(rule), "XBackendTrafficPolicy/app.older");
}

#[test]
fn oldest_policy_of_a_port_wins() {
    let rules = rules_of(&[tls("younger", 2, "https"), tls("older", 1, "https")]);
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    let [port] = &policy(rule).port_level_settings[..] else { panic!("{rule:?}") };
    assert_eq!(port.tls.as_ref().unwrap().sni, "older.example.com");
    assert_eq!(policy(rule).tls, None);
}
