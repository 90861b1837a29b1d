//! Stock Envoys that reject what follows from an object, under traffic: the object is held, all else flows.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/traffic.rs"]
mod traffic;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Echo, Envoy, eventually, free_port, http};
use local_mesh::LocalMesh;
use serde_json::Value;
use traffic::Traffic;

const PATIENCE: Duration = Duration::from_secs(60);

/// A patch that Envoy takes only if the header has a name.
fn route_filter(header: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: sticky, namespace: demo}}
spec:
  workloadSelector: {{labels: {{istio: ingressgateway}}}}
  configPatches:
  - applyTo: HTTP_ROUTE
    match: {{context: GATEWAY}}
    patch:
      operation: MERGE
      value: {{route: {{hash_policy: [{{header: {{header_name: \"{header}\"}}}}]}}}}
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

struct Shop {
    mesh: LocalMesh,
    gateway: SocketAddr,
    monitoring: SocketAddr,
    documents: String,
    _upstreams: [Echo; 2],
}

impl Shop {
    /// Opens with these documents beside its own.
    async fn open(more: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let upstreams = [Echo::start("stable").await?, Echo::start("canary").await?];
        let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let documents = include_str!("../support/shop.yaml")
            .replace("GATEWAY_PORT", &gateway.port().to_string())
            .replace("STABLE_PORT", &upstreams[0].address().port().to_string())
            .replace("CANARY_PORT", &upstreams[1].address().port().to_string());
        let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
        let objects = directory.path().join("objects");
        fs::create_dir(&objects)?;
        fs::write(objects.join("shop.yaml"), format!("{documents}---\n{more}"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        command.arg("discovery").arg("--configDir").arg(&objects).args(["--registries=Mock", "--snapshot="]);
        let monitoring = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        command.arg(format!("--monitoringAddr={monitoring}")).envs(environment.iter().copied());
        let mesh = LocalMesh::launch(command, directory).await?;
        Ok(Self { mesh, gateway, monitoring, documents, _upstreams: upstreams })
    }

    /// Writes the shop with a route of this timeout and these documents, as one change.
    fn write(&self, timeout: u32, more: &str) -> Result<()> {
        let route = format!("name: everyone\n    timeout: {timeout}s\n");
        let documents = self.documents.replace("name: everyone\n", &route);
        self.mesh.write("shop.yaml", &format!("{documents}---\n{more}"))
    }

    /// Waits until Envoy's own account of its configuration has this text.
    async fn arrived(&self, envoy: &Envoy, text: &str) -> Result<()> {
        let arrived = eventually(text, PATIENCE, async || {
            let dump = envoy.config_dump().await?.to_string();
            ensure!(in_force(&dump).contains(text), "no {text} in Envoy");
            Ok(())
        });
        arrived.await.with_context(|| format!("the log of canopusd:\n{}", self.mesh.log()))
    }

    async fn debug(&self, page: &str) -> Result<Value> {
        Ok(serde_json::from_str(&http::get(self.mesh.http, &format!("/debug/{page}")).await?.body)?)
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
        held.await.with_context(|| format!("the log of canopusd:\n{}", self.mesh.log()))
    }

    async fn metric(&self, name: &str) -> Result<String> {
        let page = http::get(self.monitoring, "/metrics").await?.body;
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("no {name} in {page}"))?.trim().to_owned())
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
    let shop = Shop::open("", &[]).await?;
    let envoy = shop.mesh.gateway_over(variant).await?;
    let traffic = Traffic::start(shop.gateway);
    shop.write(3, "")?;
    shop.arrived(&envoy, "\"timeout\":\"3s\"").await?;

    shop.write(4, &route_filter(""))?;
    let all = shop.held(&["EnvoyFilter/demo/sticky"]).await?;
    shop.arrived(&envoy, "\"timeout\":\"4s\"").await?;
    let hold = &objects_of(&all)[0];
    assert_eq!(hold["served"], Value::Null, "{hold:#}");
    assert_eq!(hold["proxies"][0], "gateway.demo", "{hold:#}");
    ensure!(hold["reason"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{hold:#}");
    ensure!(hold["reason"]["field"].as_str().is_some_and(|field| field.contains("HeaderName")), "{hold:#}");
    let log = shop.mesh.log();
    ensure!(log.contains("EnvoyFilter demo/sticky") && log.contains("held"), "{log}");
    assert_eq!(shop.metric("canopus_quarantined_objects ").await?, "1");
    let convergence = shop.debug("convergence").await?;
    assert_eq!(convergence["quarantined"][0], "EnvoyFilter/demo/sticky", "{convergence:#}");
    let diagnostics = shop.debug("diagnostics").await?;
    let held = diagnostics.as_array().and_then(|all| all.iter().find(|one| one["code"] == "CAN0501"));
    ensure!(held.is_some_and(|one| one["object"]["name"] == "sticky"), "{diagnostics:#}");

    shop.write(5, &route_filter(""))?;
    shop.arrived(&envoy, "\"timeout\":\"5s\"").await?;
    shop.held(&["EnvoyFilter/demo/sticky"]).await?;

    shop.write(5, &route_filter("x-user"))?;
    shop.arrived(&envoy, "\"header_name\":\"x-user\"").await?;
    shop.held(&[]).await?;

    shop.write(6, &route_filter(""))?;
    shop.arrived(&envoy, "\"timeout\":\"6s\"").await?;
    let all = shop.held(&["EnvoyFilter/demo/sticky"]).await?;
    ensure!(objects_of(&all)[0]["served"].is_object(), "{all:#}");
    shop.arrived(&envoy, "\"header_name\":\"x-user\"").await?;
    assert_eq!(shop.metric("canopus_quarantine_total ").await?, "2");
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
    let shop = Shop::open(&cluster_filter("RANDOM"), &[]).await?;
    let envoy = shop.mesh.gateway().await?;
    shop.arrived(&envoy, "\"lb_policy\":\"RANDOM\"").await?;
    let traffic = Traffic::start(shop.gateway);
    shop.write(3, &cluster_filter("CLUSTER_PROVIDED"))?;
    let all = shop.held(&["EnvoyFilter/demo/balancer"]).await?;
    assert_eq!(objects_of(&all)[0]["resources"][0]["name"], "outbound|80||shop.internal", "{all:#}");
    shop.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    shop.arrived(&envoy, "\"lb_policy\":\"RANDOM\"").await?;
    shop.write(3, &cluster_filter("MAGLEV"))?;
    shop.arrived(&envoy, "\"lb_policy\":\"MAGLEV\"").await?;
    shop.held(&[]).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_is_bad_from_the_start_is_held_absent() -> Result<()> {
    let shop = Shop::open(&cluster_filter("CLUSTER_PROVIDED"), &[]).await?;
    let envoy = shop.mesh.gateway().await?;
    shop.held(&["EnvoyFilter/demo/balancer"]).await?;
    shop.arrived(&envoy, "outbound|80||shop.internal").await?;
    let answered = eventually("an answer", PATIENCE, async || {
        http::request(http::Method::GET, shop.gateway, "/").host("shop.example.com").send().await?.ok()
    });
    answered.await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_stay_at_their_last_good_state_when_quarantine_is_off() -> Result<()> {
    let shop = Shop::open("", &[("CANOPUS_QUARANTINE", "false")]).await?;
    let envoy = shop.mesh.gateway().await?;
    shop.write(3, "")?;
    shop.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    for timeout in [4, 5] {
        let before = rejections(&envoy).await?;
        shop.write(timeout, &route_filter(""))?;
        eventually("a rejection", PATIENCE, async || {
            ensure!(rejections(&envoy).await? > before, "not rejected");
            Ok(())
        })
        .await?;
    }
    shop.arrived(&envoy, "\"timeout\":\"3s\"").await?;
    let all = shop.quarantine().await?;
    assert_eq!((&all["enabled"], objects_of(&all).len()), (&Value::Bool(false), 0));
    ensure!(all["rejections"].as_array().is_some_and(|all| all.len() >= 2), "{all:#}");
    shop.write(6, &route_filter("x-user"))?;
    shop.arrived(&envoy, "\"timeout\":\"6s\"").await
}
