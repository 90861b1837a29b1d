//! Stock Envoys under traffic: hundreds of changes, several proxies at once, and a control plane that is killed.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

#[path = "../support/shop.rs"]
mod shop;
#[path = "../support/traffic.rs"]
mod traffic;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::eventually;
use shop::Shop;
use traffic::Traffic;

const PATIENCE: Duration = Duration::from_secs(60);

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
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
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
        assert_eq!(envoy.rejections().await?, BTreeMap::new());
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
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}
