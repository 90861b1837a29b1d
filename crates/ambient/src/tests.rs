use std::sync::Arc;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::istio::security::Scope;
use canopus_proto::istio::workload::address::Type;
use canopus_proto::istio::workload::{Address, Service, TunnelProtocol, Workload};
use canopus_runtime::flags::Flags;

use super::*;

fn world(ambient: bool, documents: &[String]) -> Engine {
    let engine = Engine::new();
    let mut batch = Batch::new();
    let flags = Flags::read(&[("PILOT_ENABLE_AMBIENT", if ambient { "true" } else { "false" })]);
    batch.set::<Settings>((), MeshSettings { flags: Arc::new(flags), ..MeshSettings::default() });
    for outcome in decode_documents(documents.join("\n---\n"), &Limits::default(), Options::strict()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    engine.apply(batch);
    engine
}

fn pod(labels: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: ns, labels: {{{labels}}}, \
         annotations: {{{annotations}}}}}, spec: {{serviceAccountName: a, containers: [{{name: c, \
         ports: [{{name: web, containerPort: 8080}}]}}]}}, status: {{podIP: 10.0.0.1, phase: Running, \
         conditions: [{{type: Ready, status: 'True'}}]}}}}"
    )
}

fn service(target: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: a, namespace: ns}}, spec: {{clusterIP: 10.1.0.1, \
         selector: {{app: a}}, ports: [{{name: http, port: 80, targetPort: {target}}}]}}}}"
    )
}

fn peer_authentication(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, \
         metadata: {{name: {name}, namespace: ns}}, spec: {{{spec}}}}}"
    )
}

fn address(engine: &Engine, name: &str) -> Option<Type> {
    let all = engine.get::<Addresses>(&()).unwrap();
    let found = all.iter().find(|resource| *resource.name == *name)?;
    Address::decode(found.body.clone()).unwrap().r#type
}

fn workload(engine: &Engine) -> Workload {
    match address(engine, "Kubernetes//Pod/ns/p") {
        Some(Type::Workload(workload)) => workload,
        other => panic!("no workload but {other:?}"),
    }
}

fn policies(engine: &Engine) -> Vec<String> {
    engine.get::<Authorizations>(&()).unwrap().iter().map(|resource| resource.name.to_string()).collect()
}

#[test]
fn nothing_is_told_when_the_mesh_is_not_ambient() {
    let engine = world(false, &[pod("app: a", ""), service("8080")]);
    assert!(engine.get::<Addresses>(&()).unwrap().is_empty());
}

#[test]
fn pod_has_the_ports_of_the_services_that_select_it() {
    let engine = world(true, &[pod("app: a", ""), service("web")]);
    let found = workload(&engine);
    let ports = &found.services["ns/a.ns.svc.cluster.local"].ports;
    assert_eq!(
        ports.iter().map(|port| (port.service_port, port.target_port)).collect::<Vec<_>>(),
        [(80, 8080)]
    );
    // A named port that the pod does not have is none of its ports.
    let engine = world(true, &[pod("app: a", ""), service("other")]);
    assert!(workload(&engine).services["ns/a.ns.svc.cluster.local"].ports.is_empty());
    let Some(Type::Service(Service { addresses, canonical, .. })) =
        address(&engine, "ns/a.ns.svc.cluster.local")
    else {
        panic!("the service is told of");
    };
    assert!(canonical && addresses.len() == 1);
}

#[test]
fn pod_takes_tunnels_when_it_is_redirected() {
    let engine = world(true, &[pod("app: a", "ambient.istio.io/redirection: enabled")]);
    assert_eq!(workload(&engine).tunnel_protocol(), TunnelProtocol::Hbone);
    assert_eq!(workload(&world(true, &[pod("app: a", "")])).tunnel_protocol(), TunnelProtocol::None);
}

#[test]
fn strict_workload_refers_to_the_policy_that_denies_strangers() {
    let documents = [pod("app: a", ""), peer_authentication("p", "mtls: {mode: STRICT}")];
    let engine = world(true, &documents);
    assert_eq!(workload(&engine).authorization_policies, ["istio-system/istio_converted_static_strict"]);
    assert_eq!(policies(&engine), ["istio-system/istio_converted_static_strict"]);
}

#[test]
fn workload_without_labels_has_every_policy_that_selects_by_labels() {
    let policy = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, \
             metadata: {{name: {name}, namespace: ns}}, spec: {{{spec}}}}}"
        )
    };
    let of = |labels: &str| {
        let selecting = policy("selecting", "selector: {matchLabels: {app: a}}");
        let engine = world(true, &[pod(labels, ""), selecting, policy("wide", "")]);
        workload(&engine).authorization_policies
    };
    assert_eq!(of("app: a"), ["ns/selecting"]);
    assert!(of("app: b").is_empty());
    assert_eq!(of(""), ["ns/selecting"]);
}

#[test]
fn port_without_mutual_tls_makes_a_policy_of_its_own() {
    let spec =
        "selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: PERMISSIVE}}";
    let engine = world(true, &[pod("app: a", ""), peer_authentication("p", spec)]);
    assert_eq!(workload(&engine).authorization_policies, ["ns/converted_peer_authentication_p"]);
    assert!(policies(&engine).contains(&"ns/converted_peer_authentication_p".to_owned()));
}

#[test]
fn policy_about_requests_allows_nothing_and_denies_by_the_rest() {
    let policy = |action: &str| {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: p, namespace: ns}}, \
             spec: {{action: {action}, rules: [{{to: [{{operation: {{methods: [GET], ports: ['80']}}}}]}}]}}}}"
        )
    };
    let decoded = |action: &str| {
        let engine = world(true, &[policy(action)]);
        let found = engine.get::<Authorizations>(&()).unwrap();
        Authorization::decode(found[0].body.clone()).unwrap()
    };
    assert!(decoded("ALLOW").groups.is_empty());
    let deny = decoded("DENY");
    assert_eq!(deny.groups[0].rules[0].matches[0].destination_ports, [80]);
    assert_eq!(deny.scope(), Scope::Namespace);
}

fn found(engine: &Engine, form: Form, question: Question) -> Vec<String> {
    let found = engine.get::<Lookup>(&(form, question)).unwrap();
    found.iter().map(|resource| resource.name.to_string()).collect()
}

fn named(engine: &Engine, name: &str) -> Vec<String> {
    found(engine, Form::Address, Question::Name(name.into()))
}

#[test]
fn workload_is_found_by_its_id_and_its_address() {
    let engine = world(true, &[pod("app: a", ""), service("web")]);
    assert_eq!(named(&engine, "Kubernetes//Pod/ns/p"), ["Kubernetes//Pod/ns/p"]);
    assert_eq!(named(&engine, "/10.0.0.1"), ["Kubernetes//Pod/ns/p"]);
    assert!(named(&engine, "/10.0.0.2").is_empty());
}

#[test]
fn service_is_found_by_its_host_and_its_address_and_comes_with_its_workloads() {
    let engine = world(true, &[pod("app: a", ""), service("web")]);
    let expected = ["ns/a.ns.svc.cluster.local", "Kubernetes//Pod/ns/p"];
    assert_eq!(named(&engine, "ns/a.ns.svc.cluster.local"), expected);
    assert_eq!(named(&engine, "/10.1.0.1"), expected);
    let workloads = found(&engine, Form::Workload, Question::Name("/10.1.0.1".into()));
    assert_eq!(workloads, ["Kubernetes//Pod/ns/p"]);
}

#[test]
fn workloads_of_a_node_are_found_by_its_name() {
    let on_node = pod("app: a", "").replace("spec: {", "spec: {nodeName: node1, ");
    let engine = world(true, &[on_node, service("web")]);
    assert_eq!(found(&engine, Form::Address, Question::Node("node1".into())), ["Kubernetes//Pod/ns/p"]);
    assert!(found(&engine, Form::Address, Question::Node("node2".into())).is_empty());
}

#[test]
fn workloads_are_told_without_services() {
    let engine = world(true, &[pod("app: a", ""), service("web")]);
    let all = engine.get::<Workloads>(&()).unwrap();
    assert_eq!(all.iter().map(|resource| &*resource.name).collect::<Vec<_>>(), ["Kubernetes//Pod/ns/p"]);
    assert_eq!(Workload::decode(all[0].body.clone()).unwrap().uid, "Kubernetes//Pod/ns/p");
}

#[test]
fn change_of_one_object_encodes_its_own_part_alone() {
    let named = |text: String, name: &str| text.replace("name: p,", &format!("name: {name},"));
    let pods: Vec<String> = (0..8).map(|n| named(pod("app: a", ""), &format!("p{n}"))).collect();
    let elsewhere = service("8080").replace("namespace: ns", "namespace: other");
    let engine = world(true, &[pods, vec![service("8080"), elsewhere]].concat());
    let _watched = engine.watch::<Addresses>(());
    let set = |document: String| {
        let before = engine.evaluations();
        let object =
            decode_documents(document, &Limits::default(), Options::strict()).remove(0).unwrap().value;
        let mut batch = Batch::new();
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        engine.apply(batch);
        let after = engine.evaluations();
        let runs = |name| after[name] - before[name];
        (runs("ambient_workload_addresses"), runs("ambient_service_addresses"))
    };
    let moved = named(pod("app: a", ""), "p3").replace("10.0.0.1", "10.0.0.9");
    assert_eq!(set(moved), (1, 0), "one pod of eight");
    let relabelled = service("8080").replace("10.1.0.1", "10.1.0.9");
    assert_eq!(set(relabelled).1, 1, "one namespace of two");
}
