//! Outbound route tables of a sidecar in namespace `shop`, for small worlds.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its fixture has failed")]

use std::collections::BTreeMap;
use std::fmt::Write;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use canopus_proto::google::protobuf::{Struct, Value};

/// Two services with two ports, and a client that calls them.
const SERVICES: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.0.0.1
  ports: [{name: http, port: 80}, {name: http-admin, port: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: cards, namespace: pay}
spec:
  clusterIP: 10.0.0.2
  ports: [{name: http, port: 80}, {name: unnamed, port: 9000}]
---
";

fn table(objects: &str, name: &str) -> RouteConfiguration {
    let mut batch = Batch::new();
    let documents = format!("{SERVICES}{objects}");
    for outcome in decode_documents(documents, &Limits::default(), Options::strict()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    let engine = Engine::new();
    engine.apply(batch);
    let labels = Struct::from(BTreeMap::from([("app".to_owned(), Value::from("client"))]));
    let metadata = BTreeMap::from([
        ("CLUSTER_ID".to_owned(), Value::from("Kubernetes")),
        ("NAMESPACE".to_owned(), Value::from("shop")),
        ("LABELS".to_owned(), Value::from(labels)),
    ]);
    let node = Node {
        id: "sidecar~10.1.0.1~client.shop~shop.svc.cluster.local".to_owned(),
        metadata: Some(Struct::from(metadata)),
        ..Default::default()
    };
    let world = engine.snapshot();
    let audiences = world.get::<AudiencesOf>(&Proxy::new(&node, None).unwrap()).unwrap();
    let resource = world.get::<Routes>(&(audiences.routes.clone(), name.to_owned())).unwrap();
    let body = &resource.as_ref().as_ref().unwrap().body;
    let table = RouteConfiguration::decode(body.clone()).unwrap();
    // However it was put together, it is encoded as the whole message would be.
    assert_eq!(table.encode_to_vec(), *body);
    table
}

/// A line for each virtual host, with the ends of its routes.
fn shown(table: &RouteConfiguration) -> String {
    let mut text = String::new();
    for host in &table.virtual_hosts {
        let ends: Vec<_> = host.routes.iter().map(end).collect();
        writeln!(text, "{} -> {}", host.name, ends.join(", ")).unwrap();
    }
    text
}

fn end(route: &Route) -> String {
    match route.action.as_ref().unwrap() {
        Action::Route(action) => match action.cluster_specifier.as_ref().unwrap() {
            ClusterSpecifier::Cluster(cluster) => cluster.clone(),
            ClusterSpecifier::WeightedClusters(weighted) => {
                let parts =
                    weighted.clusters.iter().map(|to| format!("{}%{}", to.weight.unwrap().value, to.name));
                parts.collect::<Vec<_>>().join("+")
            }
            other => panic!("{other:?}"),
        },
        Action::DirectResponse(response) => response.status.to_string(),
        other => panic!("{other:?}"),
    }
}

fn host<'a>(table: &'a RouteConfiguration, name: &str) -> &'a VirtualHost {
    table.virtual_hosts.iter().find(|host| host.name == name).unwrap()
}

#[track_caller]
fn check(objects: &str, name: &str, expected: &[&str]) {
    assert_eq!(
        shown(&table(objects, name)),
        expected.iter().map(|line| format!("{line}\n")).collect::<String>()
    );
}

const ANY: &str = "allow_any -> PassthroughCluster";

#[test]
fn every_service_with_the_port_has_a_virtual_host_and_the_rest_passes_through() {
    check(
        "",
        "80",
        &[
            "cards.pay.svc.cluster.local:80 -> outbound|80||cards.pay.svc.cluster.local",
            "cart.shop.svc.cluster.local:80 -> outbound|80||cart.shop.svc.cluster.local",
            ANY,
        ],
    );
    check(
        "",
        "8080",
        &["cart.shop.svc.cluster.local:8080 -> outbound|8080||cart.shop.svc.cluster.local", ANY],
    );
}

#[test]
fn neighbours_have_short_names_and_no_domain_is_there_twice() {
    let table = table("", "80");
    let domains = |name| host(&table, name).domains.clone();
    assert_eq!(
        domains("cart.shop.svc.cluster.local:80"),
        [
            "cart.shop.svc.cluster.local",
            "cart.shop.svc.cluster.local.",
            "cart",
            "cart.shop.svc",
            "cart.shop",
            "10.0.0.1"
        ]
    );
    assert_eq!(
        domains("cards.pay.svc.cluster.local:80"),
        [
            "cards.pay.svc.cluster.local",
            "cards.pay.svc.cluster.local.",
            "cards.pay",
            "cards.pay.svc",
            "10.0.0.2"
        ]
    );
}

#[test]
fn table_of_one_service_answers_to_every_host_and_an_unknown_name_is_an_empty_table() {
    let sniffed = table("", "cards.pay.svc.cluster.local:9000");
    assert_eq!(sniffed.virtual_hosts.len(), 1);
    assert_eq!(sniffed.virtual_hosts[0].domains, ["*"]);
    let unknown = table("", "inbound|80||");
    assert_eq!((unknown.name.as_str(), unknown.virtual_hosts.len()), ("inbound|80||", 0));
}

#[test]
fn virtual_service_routes_its_service_and_hosts_that_are_none_only_on_port_80() {
    let objects = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [cart, shop.example.com]
  http: [{route: [{destination: {host: cards.pay.svc.cluster.local}}]}]
";
    check(
        objects,
        "80",
        &[
            "cards.pay.svc.cluster.local:80 -> outbound|80||cards.pay.svc.cluster.local",
            "cart.shop.svc.cluster.local:80 -> outbound|80||cards.pay.svc.cluster.local",
            "shop.example.com:80 -> outbound|80||cards.pay.svc.cluster.local",
            ANY,
        ],
    );
    // On 8080, where it is selected by its service, its other hosts come along.
    check(
        objects,
        "8080",
        &[
            "cart.shop.svc.cluster.local:8080 -> outbound|8080||cards.pay.svc.cluster.local",
            "shop.example.com:8080 -> outbound|8080||cards.pay.svc.cluster.local",
            ANY,
        ],
    );
}

#[test]
fn narrowest_wildcard_routes_a_service_and_the_oldest_of_equals_wins() {
    let service = |name: &str, year: u32, host: &str, status: u32| {
        format!(
            "
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: shop, creationTimestamp: '{year}-01-01T00:00:00Z'}}
spec: {{hosts: ['{host}'], http: [{{directResponse: {{status: {status}}}}}]}}
"
        )
    };
    let objects = [
        service("wide", 2020, "*.local", 201),
        service("narrow", 2021, "*.pay.svc.cluster.local", 202),
        service("exact", 2021, "cart.shop.svc.cluster.local", 203),
        service("late", 2022, "cart.shop.svc.cluster.local", 204),
    ];
    check(
        &objects.concat(),
        "80",
        &["cards.pay.svc.cluster.local:80 -> 202", "cart.shop.svc.cluster.local:80 -> 203", ANY],
    );
}

#[test]
fn routes_are_for_sources_ports_and_weights_and_end_where_everything_matches() {
    let objects = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec:
  hosts: [cart]
  http:
  - {match: [{sourceLabels: {app: other}}], directResponse: {status: 201}}
  - {match: [{sourceLabels: {app: client}, uri: {prefix: /a}}], directResponse: {status: 202}}
  - {match: [{sourceNamespace: pay, uri: {prefix: /b}}], directResponse: {status: 203}}
  - {match: [{port: 8080, uri: {prefix: /c}}], directResponse: {status: 204}}
  - {match: [{gateways: [edge/gate]}], directResponse: {status: 205}}
  - route:
    - {destination: {host: cart, subset: v1}, weight: 90}
    - {destination: {host: cart, subset: v2}, weight: 10}
    - {destination: {host: cart, subset: v3}}
  - {directResponse: {status: 206}}
";
    let weighted =
        "90%outbound|80|v1|cart.shop.svc.cluster.local+10%outbound|80|v2|cart.shop.svc.cluster.local";
    let table = table(objects, "80");
    let ends: Vec<_> = host(&table, "cart.shop.svc.cluster.local:80").routes.iter().map(end).collect();
    assert_eq!(ends, ["202", weighted]);
}

#[test]
fn delegates_are_merged_and_those_of_others_must_be_exported() {
    let objects = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: root, namespace: shop}
spec:
  hosts: [cart]
  http:
  - {match: [{uri: {prefix: /pay}}], delegate: {name: cards, namespace: pay}}
  - {match: [{uri: {prefix: /hidden}}], delegate: {name: hidden, namespace: pay}}
  - {match: [{uri: {prefix: /missing}}], delegate: {name: missing}}
  - {directResponse: {status: 200}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cards, namespace: pay}
spec:
  http: [{match: [{uri: {prefix: /pay/cards}}], route: [{destination: {host: cards}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: hidden, namespace: pay}
spec:
  exportTo: [.]
  http: [{route: [{destination: {host: cards}}]}]
";
    let table = table(objects, "80");
    let ends: Vec<_> = host(&table, "cart.shop.svc.cluster.local:80").routes.iter().map(end).collect();
    assert_eq!(ends, ["outbound|80||cards.pay.svc.cluster.local", "200"]);
}

#[test]
fn sidecar_narrows_the_table_and_refuses_the_rest() {
    let objects = "
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec:
  egress:
  - {port: {number: 3128, name: proxy, protocol: HTTP_PROXY}, hosts: ['./*']}
  - {hosts: ['./*']}
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
";
    let cart = "cart.shop.svc.cluster.local:80 -> outbound|80||cart.shop.svc.cluster.local";
    check(objects, "80", &[cart, "block_all -> 502"]);
    let admin = "cart.shop.svc.cluster.local:8080 -> outbound|8080||cart.shop.svc.cluster.local";
    check(objects, "3128", &[cart, admin, "block_all -> 502"]);
    let proxy = table(objects, "3128");
    let without_port = |name| host(&proxy, name).domains.iter().any(|domain| !domain.contains(':'));
    assert!(without_port("cart.shop.svc.cluster.local:80"));
    assert!(!without_port("cart.shop.svc.cluster.local:8080"));
}
