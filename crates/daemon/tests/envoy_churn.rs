//! Stock Envoys under traffic: hundreds of changes, several proxies at once, and a control plane that is killed.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/traffic.rs"]
mod traffic;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::{Echo, Envoy, eventually, free_port};
use local_mesh::LocalMesh;
use traffic::Traffic;

const PATIENCE: Duration = Duration::from_secs(60);

struct Shop {
    mesh: LocalMesh,
    gateway: SocketAddr,
    documents: String,
    _upstreams: [Echo; 2],
}

impl Shop {
    async fn open() -> Result<Self> {
        let upstreams = [Echo::start("stable").await?, Echo::start("canary").await?];
        let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let documents = include_str!("../support/shop.yaml")
            .replace("GATEWAY_PORT", &gateway.port().to_string())
            .replace("STABLE_PORT", &upstreams[0].address().port().to_string())
            .replace("CANARY_PORT", &upstreams[1].address().port().to_string());
        let canopusd = Path::new(env!("CARGO_BIN_EXE_canopusd"));
        let mesh = LocalMesh::start(canopusd, "shop.yaml", &documents).await?;
        Ok(Self { mesh, gateway, documents, _upstreams: upstreams })
    }

    /// Changes a route of the shop; every number gives another one, half of them to another upstream.
    fn change(&self, number: usize) -> Result<()> {
        let host = if number.is_multiple_of(2) { "shop.internal" } else { "canary.shop.internal" };
        let route = format!("name: everyone\n    timeout: {}s\n", number + 1);
        let documents = self.documents.replace("host: shop.internal", &format!("host: {host}"));
        self.mesh.write("shop.yaml", &documents.replace("name: everyone\n", &route))
    }

    /// Waits until an Envoy has the route of a change.
    async fn arrived(&self, number: usize, envoy: &Envoy) -> Result<()> {
        let route = format!("\"timeout\":\"{}s\"", number + 1);
        eventually("the last route", PATIENCE, async || {
            let dump = envoy.config_dump().await?.to_string();
            ensure!(dump.contains(&route), "no {route}:\n{}", self.mesh.log());
            Ok(())
        })
        .await
    }
}

async fn rejections(envoy: &Envoy) -> Result<u64> {
    let stats = envoy.stats().await?;
    Ok(stats.iter().filter(|(name, _)| name.ends_with("update_rejected")).map(|(_, count)| count).sum())
}

async fn changes_go_unnoticed_by_traffic(variant: &str) -> Result<()> {
    const CHANGES: usize = 200;
    let shop = Shop::open().await?;
    let envoy = shop.mesh.gateway_over(variant).await?;
    let traffic = Traffic::start(shop.gateway);
    for number in 0..CHANGES {
        shop.change(number)?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    shop.arrived(CHANGES - 1, &envoy).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    assert_eq!(rejections(&envoy).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_changes_go_unnoticed_by_traffic_over_delta() -> Result<()> {
    changes_go_unnoticed_by_traffic("DELTA_GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_changes_go_unnoticed_by_traffic_over_state_of_the_world() -> Result<()> {
    changes_go_unnoticed_by_traffic("GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn several_proxies_converge_on_the_same_change() -> Result<()> {
    let shop = Shop::open().await?;
    let mut envoys = Vec::new();
    // They share the port: the kernel spreads connections over all of them.
    for number in 0..8_u32 {
        let variant = if number.is_multiple_of(2) { "DELTA_GRPC" } else { "GRPC" };
        envoys.push(shop.mesh.gateway_over(variant).await?);
    }
    let traffic = Traffic::start(shop.gateway);
    for number in 0..20 {
        shop.change(number)?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for envoy in &envoys {
        shop.arrived(19, envoy).await?;
        assert_eq!(rejections(envoy).await?, 0);
    }
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_control_plane_is_not_missed_and_is_followed_again() -> Result<()> {
    let mut shop = Shop::open().await?;
    let envoy = shop.mesh.gateway().await?;
    let traffic = Traffic::start(shop.gateway);
    for _ in 0..2 {
        shop.mesh.kill();
        tokio::time::sleep(Duration::from_millis(300)).await;
        shop.mesh.restart().await?;
    }
    let connected = || async {
        let stats = envoy.stats().await?;
        ensure!(stats.get("control_plane.connected_state") == Some(&1), "not connected");
        Ok(())
    };
    eventually("the connection", PATIENCE, connected).await?;
    shop.change(7)?;
    shop.arrived(7, &envoy).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    assert_eq!(rejections(&envoy).await?, 0);
    Ok(())
}
