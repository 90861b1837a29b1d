//! Stock Envoys that reject what follows from an object, under traffic: the object is held, all else flows.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/shop.rs"]
mod shop;
#[path = "../support/traffic.rs"]
mod traffic;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value as Field};
use canopus_proto::google::rpc::Status as Rejection;
use canopus_testkit::{Envoy, eventually, http};
use canopus_xds::client::{AdsStream, Update};
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types;
use serde_json::Value;
use shop::Shop;
use traffic::Traffic;

const PATIENCE: Duration = Duration::from_secs(60);

/// A patch that Envoy takes only if the header has a name.
fn route_filter(header: &str) -> String {
    patch_of_routes(
        "sticky",
        &format!("{{route: {{hash_policy: [{{header: {{header_name: \"{header}\"}}}}]}}}}"),
    )
}

/// Another patch of routes that Envoy takes only if the header has a name.
fn header_filter(header: &str) -> String {
    let header = format!("{{key: \"{header}\", value: tagged}}");
    patch_of_routes("tagged", &format!("{{request_headers_to_add: [{{header: {header}}}]}}"))
}

fn patch_of_routes(name: &str, value: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: {name}, namespace: demo}}
spec:
  workloadSelector: {{labels: {{istio: ingressgateway}}}}
  configPatches:
  - applyTo: HTTP_ROUTE
    match: {{context: GATEWAY}}
    patch:
      operation: MERGE
      value: {value}
"
    )
}

/// A patch of one cluster; there is no such thing as a provided load balancer for it.
fn cluster_filter(policy: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: balancer, namespace: demo}}
spec:
  workloadSelector: {{labels: {{istio: ingressgateway}}}}
  configPatches:
  - applyTo: CLUSTER
    match: {{context: GATEWAY, cluster: {{service: shop.internal}}}}
    patch: {{operation: MERGE, value: {{lb_policy: {policy}}}}}
"
    )
}

/// A shop, with what its control plane says of rejections.
struct Lab {
    shop: Shop,
}

impl Lab {
    /// Opens with these documents beside the shop's own.
    async fn open(more: &str, environment: &[(&str, &str)]) -> Result<Self> {
        Ok(Self { shop: Shop::open_secure(more, environment).await? })
    }

    /// Writes the shop with a route of this timeout and these documents, as one change.
    fn write(&self, timeout: u32, more: &str) -> Result<()> {
        self.shop.write(timeout, more)
    }

    async fn gateway(&self) -> Result<Envoy> {
        self.shop.mesh.gateway().await
    }

    /// Waits until Envoy's own account of its configuration has this text.
    async fn arrived(&self, envoy: &Envoy, text: &str) -> Result<()> {
        let arrived = eventually(text, PATIENCE, async || {
            let dump = envoy.config_dump().await?.to_string();
            ensure!(in_force(&dump).contains(text), "no {text} in Envoy");
            Ok(())
        });
        arrived.await.with_context(|| format!("the log of canopusd:\n{}", self.shop.mesh.log()))
    }

    async fn debug(&self, page: &str) -> Result<Value> {
        self.shop.mesh.ask(&format!("/debug/{page}")).await
    }

    async fn quarantine(&self) -> Result<Value> {
        self.debug("quarantine").await
    }

    /// Waits until exactly these objects are held.
    async fn held(&self, objects: &[&str]) -> Result<Value> {
        let held = eventually("the hold", PATIENCE, async || {
            let all = self.quarantine().await?;
            let names: Vec<&str> = objects_of(&all).iter().filter_map(|one| one["object"].as_str()).collect();
            let decided = objects_of(&all).iter().all(|one| one["state"] == "held");
            ensure!(names == objects && decided, "{all:#}");
            Ok(all)
        });
        held.await.with_context(|| format!("the log of canopusd:\n{}", self.shop.mesh.log()))
    }
}

fn objects_of(all: &Value) -> &[Value] {
    all["objects"].as_array().map_or(&[], Vec::as_slice)
}

/// A dump without what Envoy rejected, which it keeps beside what is in force.
fn in_force(dump: &str) -> String {
    let Ok(mut tree) = serde_json::from_str::<Value>(dump) else { return dump.to_owned() };
    drop_rejected(&mut tree);
    tree.to_string()
}

fn drop_rejected(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("error_state");
            fields.values_mut().for_each(drop_rejected);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_rejected),
        _ => {}
    }
}

async fn rejections(envoy: &Envoy) -> Result<u64> {
    let stats = envoy.stats().await?;
    Ok(stats.iter().filter(|(name, _)| name.ends_with("update_rejected")).map(|(_, count)| count).sum())
}

async fn rejected_route_is_held(variant: &str) -> Result<()> {
    let lab = Lab::open("", &[]).await?;
    let envoy = lab.shop.mesh.gateway_over(variant).await?;
    let traffic = Traffic::start(lab.shop.gateway);
    lab.write(3, "")?;
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;

    lab.write(4, &route_filter(""))?;
    let all = lab.held(&["EnvoyFilter/demo/sticky"]).await?;
    lab.arrived(&envoy, "\"timeout\":\"4s\"").await?;
    let hold = &objects_of(&all)[0];
    assert_eq!(hold["served"], Value::Null, "{hold:#}");
    assert_eq!(hold["proxies"][0], "gateway.demo", "{hold:#}");
    ensure!(hold["reason"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{hold:#}");
    ensure!(hold["reason"]["field"].as_str().is_some_and(|field| field.contains("HeaderName")), "{hold:#}");
    let log = lab.shop.mesh.log();
    ensure!(log.contains("EnvoyFilter demo/sticky") && log.contains("held"), "{log}");
    assert_eq!(lab.shop.mesh.metric("canopus_quarantined_objects").await?, "1");
    let convergence = lab.debug("convergence").await?;
    assert_eq!(convergence["quarantined"][0], "EnvoyFilter/demo/sticky", "{convergence:#}");
    let diagnostics = lab.debug("diagnostics").await?;
    let held = diagnostics.as_array().and_then(|all| all.iter().find(|one| one["code"] == "CAN0501"));
    ensure!(held.is_some_and(|one| one["object"]["name"] == "sticky"), "{diagnostics:#}");

    lab.write(5, &route_filter(""))?;
    lab.arrived(&envoy, "\"timeout\":\"5s\"").await?;
    lab.held(&["EnvoyFilter/demo/sticky"]).await?;

    lab.write(5, &route_filter("x-user"))?;
    lab.arrived(&envoy, "\"header_name\":\"x-user\"").await?;
    lab.held(&[]).await?;

    lab.write(6, &route_filter(""))?;
    lab.arrived(&envoy, "\"timeout\":\"6s\"").await?;
    let all = lab.held(&["EnvoyFilter/demo/sticky"]).await?;
    ensure!(objects_of(&all)[0]["served"].is_object(), "{all:#}");
    lab.arrived(&envoy, "\"header_name\":\"x-user\"").await?;
    assert_eq!(lab.shop.mesh.metric("canopus_quarantine_total").await?, "2");
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_route_is_held_and_the_rest_flows_over_delta() -> Result<()> {
    rejected_route_is_held("DELTA_GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_route_is_held_and_the_rest_flows_over_state_of_the_world() -> Result<()> {
    rejected_route_is_held("GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_cluster_is_held_at_what_was_accepted() -> Result<()> {
    let lab = Lab::open(&cluster_filter("RANDOM"), &[]).await?;
    let envoy = lab.gateway().await?;
    lab.arrived(&envoy, "\"lb_policy\":\"RANDOM\"").await?;
    let traffic = Traffic::start(lab.shop.gateway);
    lab.write(3, &cluster_filter("CLUSTER_PROVIDED"))?;
    let all = lab.held(&["EnvoyFilter/demo/balancer"]).await?;
    assert_eq!(objects_of(&all)[0]["resources"][0]["name"], "outbound|80||shop.internal", "{all:#}");
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    lab.arrived(&envoy, "\"lb_policy\":\"RANDOM\"").await?;
    lab.write(3, &cluster_filter("MAGLEV"))?;
    lab.arrived(&envoy, "\"lb_policy\":\"MAGLEV\"").await?;
    lab.held(&[]).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_is_bad_from_the_start_is_held_absent() -> Result<()> {
    let lab = Lab::open(&cluster_filter("CLUSTER_PROVIDED"), &[]).await?;
    let envoy = lab.gateway().await?;
    lab.held(&["EnvoyFilter/demo/balancer"]).await?;
    lab.arrived(&envoy, "outbound|80||shop.internal").await?;
    let answered = eventually("an answer", PATIENCE, async || {
        http::request(http::Method::GET, lab.shop.gateway, "/").host("shop.example.com").send().await?.ok()
    });
    answered.await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_stay_at_their_last_good_state_when_quarantine_is_off() -> Result<()> {
    let lab = Lab::open("", &[("CANOPUS_QUARANTINE", "false")]).await?;
    let envoy = lab.gateway().await?;
    lab.write(3, "")?;
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    for timeout in [4, 5] {
        let before = rejections(&envoy).await?;
        lab.write(timeout, &route_filter(""))?;
        eventually("a rejection", PATIENCE, async || {
            ensure!(rejections(&envoy).await? > before, "not rejected");
            Ok(())
        })
        .await?;
    }
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    let all = lab.quarantine().await?;
    assert_eq!((&all["enabled"], objects_of(&all).len()), (&Value::Bool(false), 0));
    ensure!(all["rejections"].as_array().is_some_and(|all| all.len() >= 2), "{all:#}");
    lab.write(6, &route_filter("x-user"))?;
    lab.arrived(&envoy, "\"timeout\":\"6s\"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_bad_objects_at_once_are_both_held_and_the_rest_flows() -> Result<()> {
    let lab = Lab::open("", &[]).await?;
    let envoy = lab.gateway().await?;
    let traffic = Traffic::start(lab.shop.gateway);
    lab.write(3, "")?;
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;

    let all = [route_filter(""), header_filter(""), cluster_filter("CLUSTER_PROVIDED")].join("---");
    lab.write(4, &all)?;
    let (balancer, sticky, tagged) =
        ("EnvoyFilter/demo/balancer", "EnvoyFilter/demo/sticky", "EnvoyFilter/demo/tagged");
    lab.held(&[balancer, sticky, tagged]).await?;
    lab.arrived(&envoy, "\"timeout\":\"4s\"").await?;

    lab.write(5, "")?;
    lab.held(&[]).await?;
    lab.arrived(&envoy, "\"timeout\":\"5s\"").await?;
    let before = rejections(&envoy).await?;
    lab.write(6, &route_filter(""))?;
    eventually("a rejection", PATIENCE, async || {
        ensure!(rejections(&envoy).await? > before, "not rejected");
        Ok(())
    })
    .await?;
    // The second comes while the first is looked into.
    lab.write(7, &[route_filter(""), header_filter("")].join("---"))?;
    lab.held(&[sticky, tagged]).await?;
    lab.arrived(&envoy, "\"timeout\":\"7s\"").await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    Ok(())
}

/// An access log in a directory that only some gateways have.
fn log_to(path: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: log, namespace: demo}}
spec:
  workloadSelector: {{labels: {{istio: ingressgateway}}}}
  configPatches:
  - applyTo: NETWORK_FILTER
    match: {{context: GATEWAY, listener: {{filterChain: {{filter: {{name: envoy.filters.network.http_connection_manager}}}}}}}}
    patch:
      operation: MERGE
      value:
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          access_log:
          - name: envoy.access_loggers.file
            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {path}}}
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_ends_when_the_gateway_is_repaired_and_the_object_is_not_touched() -> Result<()> {
    let lab = Lab::open("", &[]).await?;
    let files = tempfile::tempdir()?;
    let missing = files.path().join("logs");
    let envoy = lab.gateway().await?;
    lab.write(3, "")?;
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    lab.write(4, &log_to(&missing.join("access.log").display().to_string()))?;
    lab.held(&["EnvoyFilter/demo/log"]).await?;
    lab.arrived(&envoy, "\"timeout\":\"4s\"").await?;
    drop(envoy);
    std::fs::create_dir(&missing)?;
    let envoy = lab.gateway().await?;
    lab.held(&[]).await?;
    lab.arrived(&envoy, "access.log").await
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_envoy_gets_nothing_held() -> Result<()> {
    let lab = Lab { shop: Shop::open_with("", &[]).await? };
    let envoy = lab.gateway().await?;
    lab.write(3, "")?;
    lab.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    lab.write(4, &route_filter(""))?;
    let rejected = eventually("the rejection", PATIENCE, async || {
        let all = lab.quarantine().await?;
        let first = all["rejections"][0]["outcome"].as_str().unwrap_or_default().to_owned();
        ensure!(first.contains("proved no identity"), "{all:#}");
        Ok(all)
    });
    ensure!(objects_of(&rejected.await?).is_empty(), "something is held");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_that_lacks_a_directory_is_alone_and_the_other_logs_to_it() -> Result<()> {
    let lab = Lab::open("", &[]).await?;
    let (first, second) = (lab.gateway().await?, lab.shop.mesh.gateway_as("second", "DELTA_GRPC").await?);
    lab.write(3, "")?;
    lab.arrived(&first, "\"timeout\":\"3s\"").await?;
    lab.arrived(&second, "\"timeout\":\"3s\"").await?;
    // The path leads through the process that opens it to a file beside its bootstrap, which the first alone has.
    let directory = first.directory().join("logs");
    std::fs::create_dir(&directory)?;
    lab.write(4, &log_to("/proc/self/cwd/logs/access.log"))?;
    lab.arrived(&first, "access.log").await?;
    let rejected = eventually("the rejection", PATIENCE, async || {
        let all = lab.quarantine().await?;
        let outcome = all["rejections"][0]["outcome"].as_str().unwrap_or_default().to_owned();
        ensure!(outcome.contains("alone"), "{all:#}");
        Ok(all)
    });
    let all = rejected.await?;
    ensure!(objects_of(&all).is_empty(), "something is held: {all:#}");
    lab.arrived(&second, "\"timeout\":\"4s\"").await?;
    ensure!(rejections(&first).await? == 0, "the first rejects it too");
    lab.arrived(&first, "access.log").await
}

/// A gateway of some service account that answers as it is told.
struct Client {
    stream: AdsStream,
    last: Option<Update>,
}

impl Client {
    async fn connect(lab: &Lab, account: &str) -> Result<Self> {
        let text = |text: &str| Field { kind: Some(Kind::StringValue(text.to_owned())) };
        let labels = Struct { fields: [("istio".to_owned(), text("ingressgateway"))].into() };
        let fields = [
            ("CLUSTER_ID".to_owned(), text("local")),
            ("SERVICE_ACCOUNT".to_owned(), text(account)),
            ("LABELS".to_owned(), Field { kind: Some(Kind::StructValue(labels)) }),
        ];
        let node = Node {
            id: format!("router~10.0.0.9~{account}.demo~demo.svc.cluster.local"),
            metadata: Some(Struct { fields: fields.into() }),
            ..Node::default()
        };
        let channel =
            lab.shop.mesh.channel_as(&format!("spiffe://cluster.local/ns/demo/sa/{account}")).await?;
        let first = Self::request(Some(node), String::new(), None);
        let stream = AdsStream::open(channel, Protocol::Sotw, Default::default(), first).await?;
        Ok(Self { stream, last: None })
    }

    fn request(node: Option<Node>, nonce: String, error: Option<Rejection>) -> Request {
        let wish = Wish::Exactly { names: Vec::new(), version: String::new() };
        Request { type_url: types::LISTENER.to_owned(), node, nonce, error, wish }
    }

    /// The next message, answered; whether there is a policy of this name in it.
    async fn answer(&mut self, policy: &str, accepts: bool) -> Result<bool> {
        let update =
            tokio::time::timeout(PATIENCE, self.stream.next()).await??.context("the stream ended")?;
        let error =
            (!accepts).then(|| Rejection { code: 13, message: "no".to_owned(), ..Rejection::default() });
        let nonce = update.nonce.clone();
        let mut answer = Self::request(None, nonce, error);
        if accepts {
            answer.wish = Wish::Exactly { names: Vec::new(), version: update.version.clone() };
        }
        self.stream.send(answer).await?;
        let bodies = update.resources.iter().map(|resource| resource.body.value.clone());
        let has = bodies.into_iter().any(|body| String::from_utf8_lossy(&body).contains(policy));
        self.last = Some(update);
        Ok(has)
    }
}

/// A policy that lets nobody in.
const LOCKED: &str = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: locked, namespace: demo}
spec: {action: DENY, rules: [{}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn authorization_policy_that_a_client_rejects_stays_in_force() -> Result<()> {
    const POLICY: &str = "policy[locked]";
    let lab = Lab::open("", &[]).await?;
    let mut hostile = Client::connect(&lab, "hostile").await?;
    let mut honest = Client::connect(&lab, "honest").await?;
    ensure!(
        !hostile.answer(POLICY, true).await? && !honest.answer(POLICY, true).await?,
        "it is there already"
    );
    lab.write(3, LOCKED)?;
    ensure!(hostile.answer(POLICY, false).await?, "the hostile client is not told of it");
    ensure!(honest.answer(POLICY, true).await?, "the honest client is not told of it");
    // Others reject it together, and there is nobody else.
    drop(honest);
    let mut accomplice = Client::connect(&lab, "accomplice").await?;
    ensure!(accomplice.answer(POLICY, false).await?, "who connects is not told of it");
    let concluded = eventually("what becomes of the rejections", PATIENCE, async || {
        let all = lab.quarantine().await?;
        let nacks = all["rejections"].as_array().cloned().unwrap_or_default();
        let is_decided = nacks.len() >= 2 && nacks.iter().all(|nack| nack["outcome"].is_string());
        ensure!(is_decided, "{all:#}");
        Ok(all)
    });
    let all = concluded.await?;
    ensure!(objects_of(&all).is_empty(), "it is held: {all:#}");
    let mut late = Client::connect(&lab, "late").await?;
    ensure!(late.answer(POLICY, true).await?, "it is no longer in force");
    Ok(())
}
