//! A stock Envoy takes its configuration from `canopusd`, serves traffic by it, and follows its changes.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/agent.rs"]
mod agent;
#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/shop.rs"]
mod shop;

use std::collections::BTreeMap;
use std::time::Duration;

use agent::Agent;
use anyhow::{Context as _, Result, ensure};
use canopus_api::{Options, decode_documents, mesh_config};
use canopus_engine::{Batch, Engine};
use canopus_envoy::bundle::Bundle;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::{Extension, Node};
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_testkit::{Authority, Envoy, eventually};
use shop::Shop;

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn requests_are_routed_as_the_virtual_service_says() -> Result<()> {
    let shop = Shop::open().await?;
    let envoy = shop.mesh.gateway().await?;
    assert_eq!(shop.answered_by(&[]).await?, "stable");
    assert_eq!(shop.answered_by(&[("x-tester", "yes")]).await?, "canary");
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test]
async fn a_changed_file_reaches_the_proxy() -> Result<()> {
    let shop = Shop::open().await?;
    let envoy = shop.mesh.gateway().await?;
    shop.rewrite("host: shop.internal", "host: canary.shop.internal")?;
    eventually("the new route", PATIENCE, async || {
        let upstream = shop.answered_by(&[]).await?;
        ensure!(upstream == "canary", "still answered by {upstream}");
        Ok(())
    })
    .await?;
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test]
async fn a_broken_document_is_reported_and_traffic_goes_on() -> Result<()> {
    let shop = Shop::open().await?;
    let _envoy = shop.mesh.gateway().await?;
    shop.rewrite("name: everyone", "name: [everyone")?;
    eventually("the report", PATIENCE, async || {
        let log = shop.mesh.log();
        ensure!(log.contains("shop.yaml") && log.contains("line"), "not reported yet:\n{log}");
        Ok(())
    })
    .await?;
    assert_eq!(shop.answered_by(&[]).await?, "stable");
    Ok(())
}

/// The bootstrap that the documentation gives.
fn documented_bootstrap() -> Result<String> {
    const FENCE: &str = "   ```yaml\n";
    let document = include_str!("../../../docs/stock-envoy.md");
    let start = document.find(FENCE).context("no YAML in the document")? + FENCE.len();
    let end = document[start..].find("   ```").context("the YAML does not end")? + start;
    Ok(document[start..end]
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line)))
        .collect())
}

/// Something with mutual TLS, so that the gateway needs a certificate.
const MUTUAL_TLS: &str = "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: canary, namespace: demo}
spec: {host: canary.shop.internal, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
";

#[tokio::test]
async fn documented_bootstrap_takes_everything_a_mesh_with_tunnels_and_mutual_tls_has() -> Result<()> {
    let shop = Shop::open_with(MUTUAL_TLS, &[("PILOT_ENABLE_AMBIENT", "true")]).await?;
    let authority = Authority::new()?;
    let sockets = tempfile::tempdir()?;
    let spiffe = "spiffe://cluster.local/ns/demo/sa/gateway";
    let agent = Agent::start(sockets.path(), "gateway", &authority, spiffe)?;
    let socket = agent.socket().display().to_string();
    let bootstrap = documented_bootstrap()?
        .replace("/var/run/secrets/workload-spiffe-uds/socket", &socket)
        .replace("port_value: 15010", &format!("port_value: {}", shop.mesh.xds.port()))
        .replace("port_value: 15000", "port_value: 0");
    let envoy = Envoy::start(&bootstrap).await?;
    assert_eq!(shop.answered_by(&[]).await?, "stable");
    eventually("all clusters", PATIENCE, async || {
        let stats = envoy.stats().await?;
        let warming = stats.get("cluster_manager.warming_clusters").copied().unwrap_or_default();
        ensure!(warming == 0, "{warming} clusters are warming");
        Ok(())
    })
    .await?;
    let dump = envoy.config_dump().await?.to_string();
    ensure!(dump.contains("connect_originate"), "there are no tunnels");
    ensure!(dump.contains("outbound|80||canary.shop.internal"), "no cluster with mutual TLS");
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

/// A service whose spans go to Datadog, with a filter of its own whose configuration another patch has.
const TRACED: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: datadog, namespace: ops}, spec: {clusterIP: 10.96.0.60, selector: {app: datadog}, ports: [{name: http, port: 8126}]}}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: trace, namespace: shop}
spec: {tracing: [{providers: [{name: dogs}], randomSamplingPercentage: 10}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: by-header, namespace: shop}
spec:
  configPatches:
  - applyTo: EXTENSION_CONFIG
    patch:
      operation: ADD
      value:
        name: by-header
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
          request_rules: [{header: x-tenant, on_header_present: {metadata_namespace: shop, key: tenant}}]
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: INSERT_FIRST
      value:
        name: by-header
        config_discovery:
          config_source: {ads: {}, resource_api_version: V3}
          type_urls: [type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config]
"#;

/// What a build of Envoy can run, by its own account.
async fn extensions() -> Result<Vec<Extension>> {
    let info: serde_json::Value =
        serde_json::from_str(&Envoy::launch("{}").await?.ask("/server_info").await?)?;
    let all = info["node"]["extensions"].as_array().context("no extensions")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let extension = |one: &serde_json::Value| Extension {
        name: text(&one["name"]),
        category: text(&one["category"]),
        type_urls: one["type_urls"].as_array().into_iter().flatten().map(text).collect(),
        ..Extension::default()
    };
    Ok(all.iter().map(extension).collect())
}

/// The configuration file of a sidecar in the mesh of [`TRACED`].
fn standalone(extensions: Vec<Extension>) -> Result<String> {
    let mut settings = MeshSettings::default();
    let mesh =
        "extensionProviders: [{name: dogs, datadog: {service: datadog.ops.svc.cluster.local, port: 8126}}]";
    settings.mesh = mesh_config::apply_usable(mesh, &settings.mesh)?.value;
    let mut batch = Batch::new();
    for outcome in decode_documents(TRACED, &Default::default(), Options::strict()) {
        let object = outcome?.value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    batch.set::<Settings>((), settings);
    let engine = Engine::new();
    engine.apply(batch);
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let labels = Struct { fields: [("app".to_owned(), text("web"))].into() };
    let fields = [
        ("CLUSTER_ID".to_owned(), text("Kubernetes")),
        ("NAMESPACE".to_owned(), text("shop")),
        ("LABELS".to_owned(), Value { kind: Some(Kind::StructValue(labels)) }),
    ];
    let node = Node {
        id: "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local".to_owned(),
        cluster: "web.shop".to_owned(),
        metadata: Some(Struct { fields: fields.into() }),
        extensions,
        ..Node::default()
    };
    let bundle = Bundle::generate(&engine.snapshot(), &Proxy::new(&node, None)?)?;
    Ok(bundle.standalone(&node)?.to_json().to_string())
}

#[tokio::test]
async fn tracers_and_inserted_extensions_are_taken_by_a_stock_envoy() -> Result<()> {
    let extensions = extensions().await?;
    let file = standalone(extensions.clone())?;
    for wanted in ["envoy.tracers.datadog", "outbound|8126||datadog.ops.svc.cluster.local", "x-tenant"] {
        ensure!(file.contains(wanted), "no {wanted} in {file}");
    }
    ensure!(!file.contains("configDiscovery"), "an extension is left to be asked for");
    Envoy::validate(&file).await?;
    let (without, with): (Vec<Extension>, Vec<Extension>) =
        extensions.into_iter().partition(|one| one.name != "envoy.tracers.datadog");
    ensure!(!with.is_empty(), "this Envoy has no such tracer");
    let file = standalone(without)?;
    ensure!(!file.contains("envoy.tracers.datadog"), "it is told to use what it was built without");
    Envoy::validate(&file).await
}
