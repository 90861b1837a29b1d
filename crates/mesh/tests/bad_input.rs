//! Objects that contradict each other, themselves or the world: what is defined to happen, and that nothing else is lost.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::kube::{Endpoint as SliceEndpoint, EndpointPort, EndpointSlice, EndpointSliceData};
use canopus_api::{Object, Options, decode_documents, labels};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::dump::{self, DumpSelection, MeshDump};
use canopus_mesh::endpoint::Endpoints;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::service::{AllServices, Service, ServiceKey, ServicesByHost};
use canopus_mesh::virtual_service::{AllVirtualServices, VirtualService};
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

/// A service that has nothing to do with what is wrong.
const BYSTANDER: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: bystander, namespace: ns, creationTimestamp: '2024-01-01T00:00:00Z'}
spec: {clusterIP: 10.9.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bystander, namespace: ns}
spec: {hosts: [bystander], http: [{route: [{destination: {host: bystander}}]}]}
";
const BYSTANDER_HOST: &str = "bystander.ns.svc.cluster.local";

fn add(batch: &mut Batch, cluster: &str, object: Object) {
    batch.set::<Objects>(Origin::new(cluster, object.key()), object);
}

/// The world of these objects and the bystander, with the number of documents that could not be read.
fn engine(objects: &[u8]) -> (Engine, usize) {
    let text = [objects, BYSTANDER.as_bytes()].concat();
    let mut batch = Batch::new();
    let mut unreadable = 0;
    for outcome in decode_documents(&text, &Limits::default(), Options::watch()) {
        match outcome {
            Ok(decoded) => add(&mut batch, "Kubernetes", decoded.value),
            Err(_) => unreadable += 1,
        }
    }
    let engine = Engine::new();
    engine.apply(batch);
    (engine, unreadable)
}

fn world(objects: &str) -> Engine {
    let (engine, unreadable) = engine(objects.as_bytes());
    assert_eq!(unreadable, 0);
    engine
}

fn services(engine: &Engine) -> Vec<Arc<Service>> {
    let services = engine.get::<AllServices>(&()).unwrap();
    assert!(services.iter().any(|service| &*service.host == BYSTANDER_HOST), "{services:?}");
    services.iter().filter(|service| &*service.host != BYSTANDER_HOST).cloned().collect()
}

fn virtual_services(engine: &Engine) -> Vec<Arc<VirtualService>> {
    let all = engine.get::<AllVirtualServices>(&()).unwrap();
    assert!(all.iter().any(|one| one.name() == "bystander"), "{all:?}");
    all.iter().filter(|one| one.name() != "bystander").cloned().collect()
}

/// What a sidecar of the namespace sees.
fn seen(engine: &Engine) -> MeshDump {
    let fields = [("NAMESPACE", "ns"), ("CLUSTER_ID", "Kubernetes"), ("INSTANCE_IPS", "10.0.0.1")];
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
    let node = Node {
        id: "sidecar~10.0.0.1~p.ns~ns.svc.cluster.local".into(),
        metadata: Some(Struct::from(fields)),
        ..Node::default()
    };
    let proxy = Some(Proxy::new(&node, None).unwrap());
    dump::dump_mesh(engine, &DumpSelection { proxy, ..DumpSelection::default() }).unwrap()
}

fn service(name: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: ns}}, spec: {spec}}}\n"
    )
}

fn entry(name: &str, created: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: {name}, namespace: ns{created}}}, \
         spec: {spec}}}\n"
    )
}

fn routes(name: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: ns}}, \
         spec: {spec}}}\n"
    )
}

#[test]
fn kubernetes_keeps_its_host_when_an_older_entry_claims_it() {
    let engine = world(
        &(entry(
            "claim",
            ", creationTimestamp: '2000-01-01T00:00:00Z'",
            "{hosts: [a.ns.svc.cluster.local], ports: [{number: 90, name: http, protocol: HTTP}]}",
        ) + &service("a", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}")),
    );
    let by_host = engine.get::<ServicesByHost>(&"a.ns.svc.cluster.local".into()).unwrap();
    assert!(by_host["ns"].is_kubernetes());
    assert_eq!(services(&engine).len(), 2);
    let found = seen(&engine);
    let of_host = found.services.iter().find(|service| &*service.host == "a.ns.svc.cluster.local").unwrap();
    assert_eq!(of_host.registry, "Kubernetes");
}

#[test]
fn older_of_two_entries_of_one_host_counts() {
    let ports =
        |port: u32| format!("{{hosts: [h.com], ports: [{{number: {port}, name: http, protocol: HTTP}}]}}");
    let older = entry("z", ", creationTimestamp: '2001-01-01T00:00:00Z'", &ports(1));
    let newer = entry("a", ", creationTimestamp: '2002-01-01T00:00:00Z'", &ports(2));
    let engine = world(&(newer + &older));
    let by_host = engine.get::<ServicesByHost>(&"h.com".into()).unwrap();
    assert_eq!(by_host["ns"].origins[0].name(), "z");
    assert_eq!(services(&engine).len(), 2);
}

#[test]
fn times_that_cannot_be_are_only_an_order() {
    let spec = "{hosts: [h.com], ports: [{number: 80, name: http, protocol: HTTP}]}";
    let future = entry("future", ", creationTimestamp: '2999-01-01T00:00:00Z'", spec);
    let epoch = entry("epoch", ", creationTimestamp: '1970-01-01T00:00:00Z'", spec);
    let timeless = entry("timeless", "", spec);
    let engine = world(&(future.clone() + &epoch + &timeless));
    let names: Vec<_> =
        services(&engine).iter().map(|service| service.origins[0].name().to_owned()).collect();
    assert_eq!(names, ["timeless", "epoch", "future"]);
    let reordered = world(&(timeless + &future + &epoch));
    assert_eq!(services(&reordered), services(&engine));
}

#[test]
fn services_of_one_address_are_all_there() {
    let spec = "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}";
    let engine = world(&(service("a", spec) + &service("b", spec)));
    let addresses: Vec<_> =
        services(&engine).iter().map(|service| service.cluster_addresses["Kubernetes"].clone()).collect();
    assert_eq!(addresses, [["10.1.0.1"], ["10.1.0.1"]]);
    assert_eq!(seen(&engine).services.len(), 3);
}

#[test]
fn names_that_stand_for_each_other_stand_for_nothing() {
    let alias = |name: &str, of: &str| {
        service(
            name,
            &format!(
                "{{type: ExternalName, externalName: {of}.ns.svc.cluster.local, ports: [{{port: 80}}]}}"
            ),
        )
    };
    let engine = world(&(alias("a", "b") + &alias("b", "c") + &alias("c", "a") + &alias("d", "bystander")));
    assert!(services(&engine).iter().all(|service| service.aliases.is_empty()));
    let bystander = engine.get::<ServicesByHost>(&BYSTANDER_HOST.into()).unwrap();
    assert_eq!(bystander["ns"].aliases, [ServiceKey::new("d.ns.svc.cluster.local", "ns")]);
}

#[test]
fn delegates_that_delegate_to_each_other_end_after_one_step() {
    let engine = world(
        &(routes(
            "root",
            "{hosts: [a], http: [{name: r, delegate: {name: one}}, {route: [{destination: {host: a}}]}]}",
        ) + &routes("one", "{http: [{name: one, delegate: {name: two}}]}")
            + &routes("two", "{http: [{name: two, delegate: {name: one}}]}")
            + &routes(
                "self",
                "{hosts: [b], http: [{delegate: {name: self}}, {route: [{destination: {host: b}}]}]}",
            )),
    );
    let all = virtual_services(&engine);
    let names = |name: &str| {
        let found = all.iter().find(|one| one.name() == name).unwrap();
        found.spec.http.iter().map(|http| http.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("root"), ["r-one", ""]);
    // What has hosts is nobody's delegate, itself included.
    assert_eq!(names("self"), [""]);
}

#[test]
fn what_refers_to_nothing_leaves_the_rest_of_its_object() {
    let engine = world(
        &(routes(
            "r",
            "{hosts: [a], http: [{delegate: {name: missing}}, {route: [{destination: {host: nowhere, subset: none}}]}]}",
        ) + &routes(
            "g",
            "{hosts: [b.com], gateways: [ns/missing], http: [{route: [{destination: {host: a}}]}]}",
        ) + "---\n{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: d, namespace: ns}, \
               spec: {host: nowhere}}\n"),
    );
    let all = virtual_services(&engine);
    let of_name = |name: &str| all.iter().find(|one| one.name() == name).unwrap();
    assert_eq!(of_name("r").spec.http.len(), 1);
    let found = seen(&engine).proxy.unwrap();
    assert_eq!(found.scope.hosts, [BYSTANDER_HOST.into()]);
    assert!(found.scope.destination_rules.is_empty());
}

#[test]
fn selectors_that_pick_each_others_workloads_are_no_cycle() {
    let workload = |kind: &str, spec: &str| {
        format!("---\n{{{kind}, metadata: {{name: w, namespace: ns, labels: {{app: w}}}}, {spec}}}\n")
    };
    let engine = world(
        &(entry(
            "e",
            "",
            "{hosts: [w.com], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: w}}, \
             ports: [{number: 80, name: http, protocol: HTTP}]}",
        ) + &service("w", "{clusterIP: 10.1.0.1, selector: {app: w}, ports: [{name: http, port: 80}]}")
            + &workload(
                "apiVersion: networking.istio.io/v1, kind: WorkloadEntry",
                "spec: {address: 10.0.0.7, labels: {app: w}}",
            )
            + &workload(
                "apiVersion: v1, kind: Pod",
                "status: {phase: Running, podIP: 10.0.0.8, podIPs: [{ip: 10.0.0.8}], conditions: [{type: Ready, status: 'True'}]}",
            )),
    );
    let addresses = |host: &str| {
        let endpoints = engine.get::<Endpoints>(&ServiceKey::new(host, "ns")).unwrap();
        let mut addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address().to_owned()).collect();
        addresses.sort();
        addresses
    };
    assert_eq!(addresses("w.com"), ["10.0.0.7", "10.0.0.8"]);
    assert_eq!(addresses("w.ns.svc.cluster.local"), ["10.0.0.7"]);
}

#[test]
fn document_with_bytes_that_are_no_text_is_left_out_alone() {
    let mut bad = service("a", "{clusterIP: 10.1.0.1, ports: [{port: 80}]}").into_bytes();
    let at = bad.windows(2).position(|window| window == b"a,").unwrap();
    bad[at] = 0xff;
    let good = service("b", "{clusterIP: 10.1.0.2, ports: [{port: 80}]}").into_bytes();
    let (engine, unreadable) = engine(&[bad, good].concat());
    assert_eq!(unreadable, 1);
    let names: Vec<_> = services(&engine).iter().map(|service| service.name.to_string()).collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn same_name_in_two_clusters_is_one_service_with_the_endpoints_of_both() {
    let engine = world(&service("a", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}"));
    let mut batch = Batch::new();
    let elsewhere = service("a", "{clusterIP: 10.2.0.1, ports: [{name: http, port: 81}]}");
    for outcome in decode_documents(elsewhere, &Limits::default(), Options::watch()) {
        add(&mut batch, "elsewhere", outcome.unwrap().value);
    }
    for (cluster, address) in [("Kubernetes", "10.0.0.1"), ("elsewhere", "10.0.0.2")] {
        add(&mut batch, cluster, Object::EndpointSlice(Arc::new(slice(0, [address.to_owned()]))));
    }
    engine.apply(batch);
    let [merged] = &services(&engine)[..] else { panic!("more than one service") };
    assert_eq!(merged.ports[0].number, 80, "that of the control plane's own cluster counts");
    assert_eq!(merged.origins.len(), 2);
    assert_eq!(engine.get::<Endpoints>(&merged.key()).unwrap().len(), 2);
}

/// A slice of service `a`.
fn slice(number: usize, addresses: impl IntoIterator<Item = String>) -> EndpointSlice {
    let endpoint =
        |address: String| SliceEndpoint { addresses: vec![address.into()], ..SliceEndpoint::default() };
    let data = EndpointSliceData {
        endpoints: addresses.into_iter().map(endpoint).collect(),
        ports: vec![EndpointPort { name: "http".into(), port: Some(8080), ..EndpointPort::default() }],
        ..EndpointSliceData::default()
    };
    let mut slice = EndpointSlice::new("ns", &format!("a-{number}"), data);
    slice.meta.labels.insert(labels::KUBERNETES_SERVICE_NAME.name, "a");
    slice
}

#[test]
fn service_of_very_many_endpoints_has_each_of_them_once() {
    const SLICES: usize = 100;
    const EACH: usize = 1000;
    let engine = world(&service("a", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}"));
    let mut batch = Batch::new();
    for number in 0..SLICES {
        let addresses = (0..EACH).map(|at| format!("10.{}.{}.{}", 100 + number, at / 250, at % 250));
        add(&mut batch, "Kubernetes", Object::EndpointSlice(Arc::new(slice(number, addresses))));
    }
    // While endpoints move, two slices have them.
    add(&mut batch, "Kubernetes", Object::EndpointSlice(Arc::new(slice(SLICES, ["10.100.0.0".to_owned()]))));
    engine.apply(batch);
    let key = ServiceKey::new("a.ns.svc.cluster.local", "ns");
    assert_eq!(engine.get::<Endpoints>(&key).unwrap().len(), SLICES * EACH);
    assert_eq!(services(&engine).len(), 1);
}
