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
