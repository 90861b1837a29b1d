use canopus_api::gateway_api::RouteStatus;
use canopus_engine::Snapshot;

use super::super::{Status, StatusOf};
use super::*;
use crate::testing;
use crate::world::{MeshSettings, Origin};

/// Two namespaces with routes, and the Service they lead to.
const BASE: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: app, labels: {team: shop}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: lab}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: app}, spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: lab}, spec: {clusterIP: 10.0.0.2, ports: [{port: 80}]}}
";

/// A Gateway of namespace `app` with these listeners.
fn gateway(listeners: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: gw, namespace: app}},
           spec: {{gatewayClassName: istio, listeners: [{listeners}]}}}}"
    )
}

/// An HTTPRoute for these hosts that refers to the Gateway, with more fields of the reference.
fn route(namespace: &str, hosts: &str, reference: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: r, namespace: {namespace}}},
           spec: {{hostnames: [{hosts}], parentRefs: [{{name: gw, namespace: app{reference}}}],
                   rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}}}"
    )
}

fn world(documents: &[String]) -> Snapshot {
    let documents = format!("{BASE}---\n{}", documents.join("\n---\n"));
    testing::world(MeshSettings::default(), &documents).snapshot()
}

fn status(world: &Snapshot, kind: Kind, namespace: &str) -> RouteStatus {
    let origin = Origin::new("Kubernetes", ObjectKey::new(kind, namespace, "r"));
    match world.get::<StatusOf>(&origin).unwrap().as_ref().as_deref() {
        Some(Status::Route(status)) => status.clone(),
        other => panic!("{other:?}"),
    }
}

/// Why the route is accepted, or is not, by its only parent.
fn accepted(listeners: &str, namespace: &str, hosts: &str, reference: &str) -> (String, String) {
    let world = world(&[gateway(listeners), route(namespace, hosts, reference)]);
    reason(&status(&world, Kind::HttpRoute, namespace))
}

fn reason(status: &RouteStatus) -> (String, String) {
    let [parent] = &status.parents[..] else { panic!("{status:?}") };
    let condition = parent.conditions.iter().find(|condition| &*condition.r#type == "Accepted").unwrap();
    (condition.reason.to_string(), condition.message.to_string())
}

const PLAIN: &str = "{name: http, port: 80, protocol: HTTP, hostname: '*.example.com'}";

#[test]
fn hosts_of_route_and_listener_must_meet() {
    let attach = |hosts| accepted(PLAIN, "app", hosts, "").0;
    assert_eq!(attach("a.example.com"), "Accepted");
    assert_eq!(attach("'*.example.com'"), "Accepted");
    assert_eq!(attach("'*.com'"), "Accepted", "the listener's hosts are among the route's");
    assert_eq!(attach("other.org, a.example.com"), "Accepted", "one of them is enough");
    assert_eq!(attach(""), "Accepted", "a route without hosts takes the listener's");
    assert_eq!(attach("example.com"), "NoMatchingListenerHostname");
    let (reason, message) = accepted(PLAIN, "app", "other.org", "");
    assert_eq!(reason, "NoMatchingListenerHostname");
    assert!(message.contains("*.example.com"), "{message}");
}

#[test]
fn listener_says_from_which_namespaces() {
    let from = |allowed: &str, namespace| {
        let listener =
            format!("{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {allowed}}}}}");
        accepted(&listener, namespace, "a.com", "").0
    };
    assert_eq!(from("{from: Same}", "app"), "Accepted");
    assert_eq!(from("{from: Same}", "lab"), "NotAllowedByListeners");
    assert_eq!(from("{from: All}", "lab"), "Accepted");
    let selector = "{from: Selector, selector: {matchLabels: {team: shop}}}";
    assert_eq!(from(selector, "app"), "Accepted");
    assert_eq!(from(selector, "lab"), "NotAllowedByListeners");
}

#[test]
fn reference_may_name_a_port_and_a_listener() {
    let to = |reference| accepted(PLAIN, "app", "a.example.com", reference);
    assert_eq!(to(", port: 80, sectionName: http").0, "Accepted");
    let (reason, message) = to(", port: 81");
    assert_eq!(reason, "NoMatchingParent");
    assert!(message.contains("81"), "{message}");
    let (reason, message) = to(", sectionName: https");
    assert_eq!(reason, "NoMatchingParent");
    assert!(message.contains("https"), "{message}");
}

#[test]
fn listener_says_which_kinds() {
    let listener = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}";
    assert_eq!(accepted(listener, "app", "a.com", "").0, "NotAllowedByListeners");
    let grpc =
        "{apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, metadata: {name: r, namespace: app},
        spec: {parentRefs: [{name: gw}], rules: [{backendRefs: [{name: web, port: 80}]}]}}";
    let world = world(&[gateway(listener), grpc.to_owned()]);
    assert_eq!(reason(&status(&world, Kind::GrpcRoute, "app")).0, "Accepted");
}

#[test]
fn narrower_listener_of_the_port_takes_its_hosts() {
    let link = |hostname: &str, others: &[&str]| ParentLink {
        internal_name: "gw".into(),
        key: ObjectKey::new(Kind::KubernetesGateway, "app", "gw"),
        section: "http".into(),
        reference: ParentReference::default(),
        hostname: hostname.into(),
        other_hostnames: others.iter().map(|&other| other.into()).collect(),
        denied: None,
        no_waypoint: None,
    };
    let all = link("", &["*.example.com", "a.example.com"]);
    assert!(all.receives("other.org"));
    assert!(!all.receives("a.example.com"));
    assert!(!all.receives("b.example.com"));
    let wide = link("*.example.com", &["", "a.example.com"]);
    assert!(wide.receives("b.example.com"), "a listener for all hosts is not narrower");
    assert!(!wide.receives("a.example.com"));
    assert!(!wide.receives("other.org"));
    assert!(link("a.example.com", &["*.example.com"]).receives("a.example.com"));
}
