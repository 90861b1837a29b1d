//! Real requests over HTTP to a small mesh.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request};
use canopus_api::{Options, decode_documents};
use canopus_base::hash::ContentHash;
use canopus_base::spiffe::Identity;
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_runtime::flags::Flags;
use canopus_sources::status::{PartStatus, Phase, SourceStatus};
use canopus_sources::{SourceInfo, SourcePart};
use canopus_testkit::http::{self, Method, StatusCode};
use canopus_xds::{Code, Interest, Names, Refusal, ResourceSet, SessionEvent, types};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_service::Service as _;

use super::*;
use crate::push::{Cause, Connections, Ledger, Observer, Observers, Stamp};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop, creationTimestamp: 2026-01-01T00:00:00Z}
spec: {clusterIP: 10.1.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec: {hosts: [api.example.com], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: nothing, namespace: shop}
spec: {configPatches: [{applyTo: CLUSTER, match: {cluster: {name: none-such}}, patch: {operation: MERGE, value: {}}}]}
";

struct Lab {
    dispatcher: Arc<Dispatcher>,
    debug: Arc<Debug>,
    address: SocketAddr,
}

/// Takes the token for the namespace.
struct Tokens;

impl Authenticator for Tokens {
    fn authenticate<'a>(
        &'a self,
        _: Option<SocketAddr>,
        headers: &'a HeaderMap,
    ) -> Pin<Box<dyn Future<Output = Option<Identity>> + Send + 'a>> {
        let namespace = headers.get("authorization").and_then(|token| token.to_str().ok());
        let identity =
            namespace.and_then(|namespace| Identity::new("cluster.local", namespace, "somebody").ok());
        Box::pin(std::future::ready(identity))
    }
}

impl Lab {
    async fn open(flags: &[(&str, &str)]) -> Self {
        Self::with(flags, SERVICE).await
    }

    async fn with(flags: &[(&str, &str)], objects: &str) -> Self {
        let mut batch = Batch::new();
        let variables: BTreeMap<String, String> =
            flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = MeshSettings { flags: Arc::new(Flags::read(&variables)), ..MeshSettings::default() };
        batch.set::<Settings>((), settings);
        let mut origins = Vec::new();
        for outcome in decode_documents(objects, &Limits::default(), Options::watch()) {
            let object = outcome.unwrap().value;
            let origin = Origin::new("Kubernetes", object.key());
            origins.push(origin.clone());
            batch.set::<Objects>(origin, object);
        }
        let ledger = Ledger::new(Observers::default());
        let observers = Observers::new([ledger.clone() as Arc<dyn Observer>]);
        let connections = Connections::new(observers.clone());
        let dispatcher = Dispatcher::new(Engine::new(), connections, observers);
        dispatcher.apply(batch, Cause::objects(Stamp::now(), origins));
        let debug = Arc::new(Debug::new(Arc::clone(&dispatcher)).with_ledger(ledger));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = routes(Arc::clone(&debug), Arc::new(Tokens));
        let service = routes.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { dispatcher, debug, address }
    }

    fn connect(&self, name: &str, namespace: &str) -> Arc<Connection> {
        let id = format!("sidecar~10.0.0.1~{name}.{namespace}~{namespace}.svc.cluster.local");
        let node = Node { id, ..Node::default() };
        let identity = Identity::new("cluster.local", namespace, "somebody").ok();
        let proxy = Proxy::new(&node, identity).unwrap();
        let connection = self.dispatcher.connect(proxy);
        let subscribe =
            |type_url: &str, interest| SessionEvent::Subscribed { type_url: type_url.into(), interest };
        self.dispatcher.connections().record(&connection, &subscribe(types::CLUSTER, Interest::Wildcard));
        let names = Interest::Names(Names::new(["outbound|80||cart.shop.svc.cluster.local"]));
        self.dispatcher.connections().record(&connection, &subscribe(types::ENDPOINT, names));
        connection
    }

    /// A message of a type goes to a client, which accepts or rejects it.
    fn exchange(&self, connection: &Connection, nonce: &str, error: Option<&str>) {
        let type_url: Arc<str> = types::CLUSTER.into();
        self.dispatcher.connections().record(
            connection,
            &SessionEvent::Sent {
                type_url: type_url.clone(),
                nonce: nonce.into(),
                version: ContentHash::compute(b""),
                revision: 1,
                pushed: false,
                resources: 1,
                removed: 0,
                bytes: 1,
            },
        );
        let event = match error {
            None => SessionEvent::Acked { type_url, nonce: nonce.into(), accepted: ResourceSet::default() },
            Some(message) => SessionEvent::Nacked {
                type_url,
                nonce: nonce.to_owned(),
                code: Code::Internal as i32,
                message: message.to_owned(),
                accepted: ResourceSet::default(),
                refused: ResourceSet::default(),
            },
        };
        self.dispatcher.connections().record(connection, &event);
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let response = http::get(self.address, &format!("/debug/{path}")).await.unwrap();
        (response.status, response.body)
    }

    async fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The status of a request from another machine.
    async fn status_from_elsewhere(&self, path: &str, token: Option<&str>) -> StatusCode {
        let mut routes = routes(Arc::clone(&self.debug), Arc::new(Tokens));
        let mut request = Request::builder().uri(format!("/debug{path}"));
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let peer = SocketAddr::from(([10, 0, 0, 9], 1));
        let request = request.extension(ConnectInfo(peer)).body(axum::body::Body::empty()).unwrap();
        routes.call(request).await.unwrap().status()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_shows_what_was_sent_acknowledged_and_rejected() {
    let lab = Lab::open(&[]).await;
    assert_eq!(lab.json("syncz").await, json!([]));
    let client = lab.connect("cart-1", "shop");
    lab.exchange(&client, "n1", None);
    let all = lab.json("syncz?namespace=shop").await;
    assert_eq!(all[0]["proxy"], "cart-1.shop");
    assert_eq!((&all[0]["cluster_sent"], &all[0]["cluster_acked"]), (&json!("n1"), &json!("n1")));
    lab.exchange(&client, "n2", Some("bad cluster"));
    let all = lab.json("syncz").await;
    let status = &all[0]["resources"][types::CLUSTER];
    assert_eq!((&status["sent"], &status["acked"]), (&json!("n2"), &json!("n1")));
    assert_eq!(status["lastError"], "bad cluster");
    assert_eq!(lab.json("syncz?namespace=other").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_has_what_a_proxy_watches() {
    let lab = Lab::open(&[]).await;
    lab.connect("cart-1", "shop");
    let dump = lab.json("config_dump?proxyID=cart-1.shop").await;
    let sections: Vec<&str> =
        dump["configs"].as_array().unwrap().iter().filter_map(|s| s["@type"].as_str()).collect();
    assert_eq!(sections.len(), 7, "{sections:?}");
    let clusters = dump["configs"][1]["dynamicActiveClusters"].as_array().unwrap();
    let names: Vec<&str> = clusters.iter().filter_map(|c| c["cluster"]["name"].as_str()).collect();
    assert!(names.contains(&"outbound|80|v1|cart.shop.svc.cluster.local"), "{names:?}");
    let endpoints = lab.json("edsz?proxyID=cart-1.shop").await;
    assert_eq!(endpoints["configs"][0]["clusterName"], "outbound|80||cart.shop.svc.cluster.local");
    assert_eq!(lab.json("config_dump?proxyID=cart-1.shop&types=bogus").await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_about_nobody_are_refused_in_istios_words() {
    let lab = Lab::open(&[]).await;
    let (status, body) = lab.get("config_dump").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(body, "You must provide a proxyID in the query string\n");
    let (status, body) = lab.get("sidecarz?proxyID=nope").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.starts_with("Proxy not connected to this Pilot instance."), "{body}");
    assert_eq!(lab.get("nope").await, (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_is_a_question_and_the_index_leads_to_all() {
    let lab = Lab::open(&[]).await;
    for method in [Method::POST, Method::PUT] {
        let response = http::request(method, lab.address, "/debug/list").send().await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
    }
    let index = http::get(lab.address, "/debug").await.unwrap().body;
    let list = lab.json("list").await;
    for name in list.as_array().unwrap().iter().filter_map(Value::as_str).chain(["why", "ledger"]) {
        assert!(index.contains(&format!("href=\"/debug/{name}\"")), "{name}");
    }
    assert!(!list.as_array().unwrap().contains(&json!("why")), "tools complete from Istio's names alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_elsewhere_sees_what_their_namespace_allows() {
    let lab = Lab::open(&[("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", "friends")]).await;
    lab.connect("cart-1", "shop");
    for (path, token, expected) in [
        ("/syncz", None, StatusCode::UNAUTHORIZED),
        ("/pprof/heap", None, StatusCode::UNAUTHORIZED),
        ("/nope", None, StatusCode::NOT_FOUND),
        ("", None, StatusCode::OK),
        ("/syncz", Some("istio-system"), StatusCode::OK),
        ("/syncz", Some("friends"), StatusCode::OK),
        ("/syncz", Some("shop"), StatusCode::FORBIDDEN),
        ("/what_if", Some("shop"), StatusCode::FORBIDDEN),
        ("/what_if", Some("istio-system"), StatusCode::BAD_REQUEST),
        ("/changes?from=5m", Some("shop"), StatusCode::FORBIDDEN),
        ("/ecdsz?proxyID=cart-1.shop", Some("shop"), StatusCode::FORBIDDEN),
        ("/edsz?proxyID=cart-1.shop", Some("shop"), StatusCode::OK),
        ("/edsz?proxyID=cart-1.shop", Some("infra"), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(lab.status_from_elsewhere(path, token).await, expected, "{path} {token:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_dismissed_only_where_that_is_allowed() {
    let lab = Lab::open(&[]).await;
    lab.connect("cart-1", "shop");
    assert_eq!(lab.get("force_disconnect?proxyID=cart-1.shop").await.0, StatusCode::NOT_FOUND);

    let lab = Lab::open(&[("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true")]).await;
    let client = lab.connect("cart-1", "shop");
    assert_eq!(lab.get("force_disconnect?proxyID=cart-1.shop").await, (StatusCode::OK, "OK".to_owned()));
    assert!(client.is_dismissed());
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_objects_behind_a_cluster_and_no_others() {
    let lab = Lab::open(&[]).await;
    lab.connect("cart-1", "shop");
    let why = lab.json("why?proxyID=cart-1.shop&resource=outbound|80|v1|cart.shop.svc.cluster.local").await;
    let objects: Vec<&str> =
        why["objects"].as_array().unwrap().iter().filter_map(|entry| entry["object"].as_str()).collect();
    assert!(
        objects.contains(&"Service/shop/cart") && objects.contains(&"DestinationRule/shop/cart"),
        "{why:#}"
    );
    let (status, _) = lab.get("why?proxyID=cart-1.shop&resource=none-such").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(lab.get("why?proxyID=cart-1.shop").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_patches_that_applied() {
    let patch = "
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patience, namespace: shop}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: cart.shop.svc.cluster.local}}
    patch: {operation: MERGE, value: {connect_timeout: 3s}}
";
    let lab = Lab::with(&[], &format!("{SERVICE}{patch}")).await;
    lab.connect("cart-1", "shop");
    let why =
        lab.json("why?proxyID=cart-1.shop&resource=outbound|80||cart.shop.svc.cluster.local&type=CDS").await;
    let applied = json!([{
        "object": "EnvoyFilter/shop/patience", "cluster": "Kubernetes", "patch": 0,
        "applyTo": "CLUSTER", "operation": "MERGE",
    }]);
    assert_eq!(why["envoyFilters"], applied, "{why:#}");
    let why =
        lab.json("why?proxyID=cart-1.shop&resource=outbound|80||cart.shop.svc.cluster.local&type=EDS").await;
    assert_eq!(why["envoyFilters"], json!([]), "{why:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_told_by_how_far_they_can_be_trusted() {
    let lab = Lab::open(&[]).await;
    let with = |phases: &[Phase]| {
        let parts =
            phases.iter().map(|phase| PartStatus { part: SourcePart::Whole, phase: phase.clone() }).collect();
        let source = Arc::new(SourceInfo::new("kubernetes:Kubernetes", "Kubernetes", 0));
        lab.debug.sources.set(vec![SourceStatus { source, parts, problems: Vec::new() }]);
    };
    let synced = json!([{"id": "Kubernetes", "secretName": "", "syncStatus": "synced"}]);
    assert_eq!(lab.json("clusterz").await, synced);
    with(&[Phase::Live, Phase::Absent { reason: "no definition".into() }]);
    assert_eq!(lab.json("clusterz").await, synced);
    with(&[Phase::Live, Phase::Waiting { reason: None }]);
    assert_eq!(lab.json("clusterz").await[0]["syncStatus"], "syncing");
    with(&[Phase::Stale { reason: "connection refused".into() }]);
    let stale = lab.json("clusterz").await;
    assert_eq!(stale[0]["syncStatus"], "timeout");
    assert_eq!(stale[0]["behind"][0]["state"], "stale: connection refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_not_there_over_http_if_told_so() {
    let lab = Lab::open(&[("ENABLE_DEBUG_ON_HTTP", "false")]).await;
    assert_eq!(lab.get("syncz").await.0, StatusCode::NOT_FOUND);
    let system = lab.connect("istiod", "istio-system");
    let list = Interest::Names(Names::new(["list"]));
    assert!(lab.debug.answer_xds(&system, types::DEBUG, &list).is_ok(), "they are over xDS");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ztunnels_are_told_can_be_read() {
    let off = Lab::open(&[]).await.json("ambientz").await;
    assert_eq!(off, json!({"workloads": null, "services": null, "policies": null}));
    let lab = Lab::open(&[("PILOT_ENABLE_AMBIENT", "true")]).await;
    let told = lab.json("ambientz").await;
    let services = told["services"].as_array().unwrap();
    let cart = services.iter().find(|service| service["hostname"] == "cart.shop.svc.cluster.local").unwrap();
    // The text of the address, as proto-JSON writes bytes.
    assert_eq!(cart["addresses"][0]["address"], "MTAuMS4wLjE=", "{told:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn world_can_be_narrowed_to_what_a_proxy_sees_of_a_service() {
    let lab = Lab::open(&[]).await;
    lab.connect("cart-1", "shop");
    let all = lab.json("world").await;
    assert_eq!(all["services"].as_array().unwrap().len(), 2);
    let one = lab.json("world?proxyID=cart-1.shop&service=cart&namespace=shop").await;
    assert_eq!(one["services"].as_array().unwrap().len(), 1);
    assert!(one["proxy"].is_object(), "{one:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_and_convergence_name_objects_and_clients() {
    let lab = Lab::open(&[]).await;
    lab.connect("cart-1", "shop");
    let ledger = lab.json("ledger?object=Service/shop/cart").await;
    assert_eq!(ledger["pushes"].as_array().unwrap().len(), 1);
    assert_eq!(ledger["pushes"][0]["reasons"]["service"], 2);
    assert_eq!(lab.json("ledger?object=Service/shop/other").await["pushes"], json!([]));
    let convergence = lab.json("convergence").await;
    assert_eq!(convergence["converged"], true);
    assert_eq!(convergence["clients"][0]["connection"], "cart-1.shop-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_that_applies_to_nothing_is_seen_as_such() {
    let lab = Lab::open(&[]).await;
    lab.connect("cart-1", "shop");
    let effects = lab.json("envoyfilterz?proxyID=cart-1.shop").await;
    let patch = &effects["cart-1.shop"][0];
    assert_eq!(
        (&patch["name"], &patch["patch"], &patch["matched"]),
        (&json!("nothing"), &json!(0), &json!(0))
    );
    assert!(patch["unmatched"].as_u64() > Some(0), "{effects}");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_over_xds_need_an_identity_and_one_name() {
    let lab = Lab::open(&[]).await;
    let system = lab.connect("istiod", "istio-system");
    let names = |names: &[&str]| Interest::Names(Names::new(names.iter().copied()));
    let ask =
        |client: &Connection, type_url: &str, interest| lab.debug.answer_xds(client, type_url, &interest);

    let answer = ask(&system, types::DEBUG, names(&["list"])).unwrap();
    assert!(String::from_utf8_lossy(&answer[0].body).contains("\"syncz\""));
    let refused = ask(&system, types::DEBUG, names(&["list", "mesh"])).unwrap_err();
    assert_eq!(refused, Refusal::new(Code::InvalidArgument, "exactly one debug request is required"));

    let shop = lab.connect("cart-1", "shop");
    assert_eq!(ask(&shop, types::DEBUG, names(&["syncz"])).unwrap_err().code, Code::PermissionDenied);
    assert_eq!(ask(&shop, "istio.io/debug/config_dump", names(&["istiod.istio-system"])).unwrap().len(), 0);
    assert_eq!(ask(&shop, "istio.io/debug/config_dump", names(&["cart-1.shop"])).unwrap().len(), 7);

    let anonymous = Proxy::new(&Node { id: shop.proxy.node_id.clone(), ..Node::default() }, None).unwrap();
    let anonymous = lab.dispatcher.connect(anonymous);
    let refused = ask(&anonymous, types::DEBUG, names(&["list"])).unwrap_err();
    assert_eq!(refused, Refusal::new(Code::Unauthenticated, "authentication required"));
}

const ROUTE: &str =
    "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: shop}, spec: ";

#[tokio::test(flavor = "multi_thread")]
async fn change_that_is_tried_out_has_to_make_sense() {
    let lab = Lab::open(&[]).await;
    let revision = lab.dispatcher.engine().revision();
    let ask = async |path: &str, body: String| {
        let asked = http::request(Method::POST, lab.address, &format!("/debug/{path}")).body(body);
        let response = asked.send().await.unwrap();
        (response.status, response.body)
    };
    for (path, body, expected) in [
        ("what_if", String::new(), "the request has no objects"),
        ("what_if", format!("{ROUTE}{{hosts: [a], htpp: []}}}}"), "htpp"),
        ("what_if", "kind: [".to_owned(), ""),
        ("what_if?delete=VirtualService/shop/none", String::new(), "there is no such object"),
        ("what_if?delete=cart", String::new(), "expected Kind/namespace/name"),
    ] {
        let (status, body) = ask(path, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(body.contains(expected), "{body}");
    }
    let (status, _) = ask("what_if", " ".repeat(what_if::MAX_CHANGE_BYTES + 1)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // The webhook would refuse a VirtualService without hosts.
    let (status, body) = ask("what_if?delete=DestinationRule/shop/cart", format!("{ROUTE}{{}}}}")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert!(answer["refused"][0].as_str().unwrap().starts_with("VirtualService/shop/a"), "{answer}");
    assert_eq!(lab.dispatcher.engine().revision(), revision, "nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn activity_and_costs_are_told() {
    let lab = Lab::open(&[]).await;
    let client = lab.connect("cart-1", "shop");
    lab.exchange(&client, "n1", Some("bad cluster"));
    let activity = lab.json("activity").await;
    assert_eq!(activity["proxies"]["connected"], 1);
    assert_eq!(activity["proxies"]["rejecting"], 1);
    assert_eq!(activity["proxiesBehind"][0]["rejects"], "bad cluster");
    assert_eq!(activity["pushes"][0]["objectCount"], 4);
    assert_eq!(activity["windows"][0]["pushes"], 1);
    // Nobody was connected when the objects came, so they have cost nothing.
    assert_eq!(lab.json("costs").await, json!({"objects": []}));
    let one = lab.json("convergence?object=DestinationRule/shop/cart").await;
    assert_eq!((one["known"].as_array().unwrap().len(), &one["connected"]), (1, &json!(1)));
    assert_eq!(lab.json("convergence?object=DestinationRule/shop/none").await["known"], json!([]));
    assert_eq!(lab.get("convergence?object=none").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(lab.get("changes").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(lab.get("changes?from=yesterday").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(lab.json("changes?from=0").await["isWhole"], true);
}
