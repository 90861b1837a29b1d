//! What a proxy holds does not change when nothing it is told changes.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its world has failed")]

use std::collections::BTreeMap;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Applied, Batch, Engine, Root};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::bundle::References;
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::Listeners;
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

fn service(name: &str, meta: &str, port: u16) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: ns, {meta}}}, \
         spec: {{clusterIP: 10.0.0.1, selector: {{app: {name}}}, ports: [{{name: http, port: {port}}}]}}}}"
    )
}

fn route(meta: &str, timeout: u32) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v, namespace: ns, {meta}}}, \
         spec: {{hosts: [b], http: [{{timeout: {timeout}s, route: [{{destination: {{host: b}}}}]}}]}}}}"
    )
}

fn slice(address: &str) -> String {
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: b, namespace: ns, \
         labels: {{kubernetes.io/service-name: b}}}}, addressType: IPv4, ports: [{{name: http, port: 80}}], \
         endpoints: [{{addresses: [{address}]}}]}}"
    )
}

fn set(engine: &Engine, document: &str) -> Applied {
    let object = decode_documents(document, &Limits::default(), Options::watch()).remove(0).unwrap().value;
    let mut batch = Batch::new();
    batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    engine.apply(batch)
}

/// A world with two services, and all that a sidecar of it holds.
struct ServedSidecar {
    engine: Engine,
    clusters: Root<Clusters>,
    _listeners: Root<Listeners>,
    routes: Vec<Root<Routes>>,
    endpoints: Vec<Root<Assignment>>,
}

impl ServedSidecar {
    fn new() -> Self {
        let engine = Engine::new();
        for document in [service("a", "", 80), service("b", "", 80), route("", 1), slice("10.1.0.1")] {
            set(&engine, &document);
        }
        let text = |value: &str| Value::from(value);
        let metadata = BTreeMap::from([
            ("CLUSTER_ID".to_owned(), text("Kubernetes")),
            ("NAMESPACE".to_owned(), text("ns")),
        ]);
        let node = Node {
            id: "sidecar~10.1.0.9~c.ns~ns.svc.cluster.local".to_owned(),
            metadata: Some(Struct::from(metadata)),
            ..Default::default()
        };
        let proxy = Proxy::new(&node, None).unwrap();
        let audiences = engine.get::<AudiencesOf>(&proxy).unwrap();
        let clusters = engine.watch::<Clusters>(proxy.clone());
        let listeners = engine.watch::<Listeners>(proxy);
        let references = References::find(
            &clusters.value().unwrap().iter().cloned().collect::<Vec<_>>(),
            &listeners.value().unwrap().iter().cloned().collect::<Vec<_>>(),
        );
        let routes = references.routes.into_iter().map(|name| (audiences.routes.clone(), name));
        let endpoints = references.assignments.into_iter().map(|name| (audiences.endpoints.clone(), name));
        Self {
            routes: engine.watch_all::<Routes>(routes),
            endpoints: engine.watch_all::<Assignment>(endpoints),
            clusters,
            _listeners: listeners,
            engine,
        }
    }
}

#[test]
fn metadata_that_nothing_is_made_of_changes_nothing() {
    let held = ServedSidecar::new();
    for document in [
        service("b", "annotations: {example.com/note: x}", 80),
        service("b", "resourceVersion: '2'", 80),
        service("b", "labels: {argocd.argoproj.io/instance: x}", 80),
        route("resourceVersion: '2', labels: {argocd.argoproj.io/instance: x}", 1),
    ] {
        assert_eq!(set(&held.engine, &document).changed, [], "{document}");
    }
}

#[test]
fn changes_reach_the_resources_that_tell_of_them() {
    let held = ServedSidecar::new();
    assert_eq!(set(&held.engine, &route("", 2)).changed, [held.routes[0].id()]);
    let changed = set(&held.engine, &slice("10.1.0.2")).changed;
    assert_eq!(changed.len(), 1);
    assert!(held.endpoints.iter().any(|root| root.id() == changed[0]));
    assert!(set(&held.engine, &service("b", "", 81)).changed.contains(&held.clusters.id()));
}
