//! A change is looked at by those it concerns: how often queries run, not how long they take.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its world has failed")]

use std::collections::BTreeMap;

use canopus_api::{Kind, ObjectKey, Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Applied, Batch, Engine, Root};
use canopus_mesh::endpoint::Endpoints;
use canopus_mesh::scope::{ScopeKey, Scopes};
use canopus_mesh::service::{ServiceKey, ServicesByHost};
use canopus_mesh::world::{Objects, Origin};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

fn service(namespace: &str, port: u16, meta: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: {namespace}, {meta}}}, \
         spec: {{clusterIP: 10.0.0.1, selector: {{app: s}}, ports: [{{name: http, port: {port}}}]}}}}"
    )
}

fn slice(namespace: &str, ready: bool) -> String {
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: s}}}}, addressType: IPv4, ports: [{{name: http, port: 80}}], \
         endpoints: [{{addresses: [10.1.0.1], conditions: {{ready: {ready}}}}}]}}"
    )
}

fn route(namespace: &str, timeout: u32, version: u32) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, \
         metadata: {{name: v, namespace: {namespace}, resourceVersion: '{version}'}}, \
         spec: {{hosts: [s], http: [{{timeout: {timeout}s, route: [{{destination: {{host: s}}}}]}}]}}}}"
    )
}

fn sidecar(namespace: &str, name: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: {name}, namespace: {namespace}}}, \
         spec: {{egress: [{{hosts: [./*]}}]}}}}"
    )
}

fn scope(namespace: &str, sidecar: &str) -> ScopeKey {
    let sidecar = Origin::new("Kubernetes", ObjectKey::new(Kind::Sidecar, namespace, sidecar));
    ScopeKey::Sidecars(namespace.into(), Some(sidecar))
}

/// Three namespaces of one service each, whose proxies see their own namespace alone.
struct Mesh {
    engine: Engine,
    scopes: Vec<Root<Scopes>>,
    hosts: Vec<Root<ServicesByHost>>,
    endpoints: Vec<Root<Endpoints>>,
}

impl Mesh {
    fn new() -> Self {
        let engine = Engine::new();
        for namespace in NAMESPACES {
            let documents = [
                service(namespace, 80, ""),
                slice(namespace, true),
                route(namespace, 1, 1),
                sidecar(namespace, "d"),
            ];
            documents.iter().for_each(|document| drop(set(&engine, document)));
        }
        let key = |namespace: &str| ServiceKey::new(format!("s.{namespace}.svc.cluster.local"), namespace);
        Self {
            scopes: engine.watch_all::<Scopes>(NAMESPACES.map(|namespace| scope(namespace, "d"))),
            hosts: engine.watch_all::<ServicesByHost>(NAMESPACES.map(|namespace| key(namespace).host)),
            endpoints: engine.watch_all::<Endpoints>(NAMESPACES.map(key)),
            engine,
        }
    }

    /// What changed, and how often each query ran.
    fn apply(&self, document: &str) -> (Applied, BTreeMap<&'static str, u64>) {
        let before = self.engine.evaluations();
        let applied = set(&self.engine, document);
        let mut ran = self.engine.evaluations();
        for (name, count) in &mut ran {
            *count -= before.get(name).copied().unwrap_or_default();
        }
        ran.retain(|_, count| *count > 0);
        (applied, ran)
    }
}

fn set(engine: &Engine, document: &str) -> Applied {
    let object = decode_documents(document, &Limits::default(), Options::watch()).remove(0).unwrap().value;
    let mut batch = Batch::new();
    batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    engine.apply(batch)
}

#[test]
fn changed_service_concerns_its_own_namespace_and_host() {
    let mesh = Mesh::new();
    let (applied, ran) = mesh.apply(&service("b", 81, ""));
    let mut expected = [mesh.scopes[1].id(), mesh.hosts[1].id()];
    expected.sort();
    assert_eq!(applied.changed, expected);
    for query in ["services_of", "kubernetes_service", "services_in", "scopes", "services_by_host"] {
        assert_eq!(ran.get(query), Some(&1), "{query} of {ran:?}");
    }
    assert!(!ran.contains_key("all_services"), "{ran:?}");
}

#[test]
fn changed_endpoint_concerns_its_service_alone() {
    let mesh = Mesh::new();
    let (applied, ran) = mesh.apply(&slice("b", false));
    assert_eq!(applied.changed, [mesh.endpoints[1].id()]);
    assert_eq!(ran, BTreeMap::from([("endpoints", 1), ("object", 1)]));
}

#[test]
fn changed_route_concerns_those_who_import_it() {
    let mesh = Mesh::new();
    let (applied, ran) = mesh.apply(&route("b", 2, 2));
    assert_eq!(applied.changed, [mesh.scopes[1].id()]);
    let expected = [
        ("imported_route_targets", 1),
        ("imported_routes", 1),
        ("object", 1),
        ("scopes", 1),
        ("virtual_service", 1),
        ("virtual_services_in", 1),
    ];
    assert_eq!(ran, BTreeMap::from(expected));
}

#[test]
fn changed_objects_are_imported_once_for_all_sidecars_that_import_the_same() {
    let mesh = Mesh::new();
    for name in ["e", "f"] {
        set(&mesh.engine, &sidecar("b", name));
    }
    let more = mesh.engine.watch_all::<Scopes>(["e", "f"].map(|name| scope("b", name)));
    let mut scopes = vec![mesh.scopes[1].id(), more[0].id(), more[1].id()];
    scopes.sort();
    let (applied, ran) = mesh.apply(&route("b", 2, 2));
    assert_eq!(applied.changed, scopes);
    assert_eq!((ran["imported_routes"], ran["scopes"]), (1, 3), "{ran:?}");
    assert!(!ran.contains_key("visible_services_for"), "{ran:?}");
    let (_, ran) = mesh.apply(&service("b", 81, ""));
    assert_eq!((ran["imported_services"], ran["visible_services_for"], ran["scopes"]), (1, 1, 3), "{ran:?}");
}

#[test]
fn namespaces_that_see_what_everybody_sees_share_it() {
    let mesh = Mesh::new();
    let everything = |namespace: &str| ScopeKey::Sidecars(namespace.into(), None);
    let edges = mesh.engine.watch_all::<Scopes>(["x", "y"].map(everything));
    let (applied, ran) = mesh.apply(&route("b", 2, 2));
    assert!(edges.iter().all(|edge| applied.changed.contains(&edge.id())));
    for settled in [
        "virtual_service_order",
        "services_in_chunk",
        "public_services",
        "visible_services_for",
        "unlisted_hosts",
    ] {
        assert!(!ran.contains_key(settled), "{settled} of {ran:?}");
    }
    let scopes = edges.iter().map(|edge| edge.value().unwrap()).collect::<Vec<_>>();
    let [x, y] = &scopes[..] else { panic!("two are watched") };
    assert_eq!(x.services().len(), NAMESPACES.len());
    assert!(x.services().is_same(y.services()));
    assert!(x.listeners[0].virtual_services.is_same(&y.listeners[0].virtual_services));
    let (_, ran) = mesh.apply(&service("b", 81, ""));
    assert_eq!((ran["services_in_chunk"], ran["public_services"]), (1, 1), "{ran:?}");
    for settled in ["service_order", "virtual_services_in_chunk", "unlisted_hosts"] {
        assert!(!ran.contains_key(settled), "{settled} of {ran:?}");
    }
}

#[test]
fn nothing_changes_when_an_object_says_the_same_in_a_new_version() {
    let mesh = Mesh::new();
    let (applied, ran) = mesh.apply(&route("b", 1, 2));
    assert_eq!(applied.changed, []);
    assert_eq!(ran, BTreeMap::from([("object", 1)]));
    let (applied, ran) = mesh.apply(&service("b", 80, "annotations: {example.com/note: x}"));
    assert_eq!(applied.changed, []);
    assert!(!ran.contains_key("kubernetes_service"), "{ran:?}");
}
