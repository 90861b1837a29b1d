//! Stock Envoys under traffic: hundreds of changes, several proxies at once, and a control plane that is killed.

#![allow(dead_code, reason = "the local mesh is shared with others")]
#![allow(clippy::print_stdout, reason = "how much was done is worth knowing")]

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

/// How many changes a test makes; `CANOPUS_CYCLES` sets another number.
#[allow(clippy::disallowed_methods, reason = "how much a test does is no flag of the product")]
fn cycles(usual: usize) -> usize {
    std::env::var("CANOPUS_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Some four hundred requests a second to the shop, on a machine that has the time.
fn dense_traffic(shop: &Shop) -> Vec<Traffic> {
    let to_shop = || Traffic::to(shop.gateway, "shop.example.com", Duration::from_millis(8));
    std::iter::repeat_with(to_shop).take(10).collect()
}

async fn stop_all(traffic: Vec<Traffic>) -> Result<usize> {
    let mut answered = 0;
    for each in traffic {
        answered += each.stop().await?;
    }
    Ok(answered)
}

/// Each change brings a subset, leads everybody to it, and takes the subset away that was used before.
async fn subsets_come_and_go(variant: &str) -> Result<()> {
    let shop = Shop::open().await?;
    let envoy = shop.mesh.gateway_over(variant).await?;
    let cycles = cycles(60);
    let started = std::time::Instant::now();
    let traffic = dense_traffic(&shop);
    for number in 0..cycles {
        shop.use_subset(number)?;
        tokio::time::sleep(Duration::from_millis(20 + 7 * (number as u64 % 5))).await;
    }
    let last = format!("outbound|80|v{}|shop.internal", cycles - 1);
    eventually("the last subset alone", PATIENCE, async || {
        let dump = envoy.config_dump().await?.to_string();
        ensure!(
            dump.contains(&format!("\"cluster\":\"{last}\"")),
            "no route to {last}:\n{}",
            shop.mesh.log()
        );
        let subsets = dump.matches("\"name\":\"outbound|80|v").count();
        ensure!(subsets == 1, "{subsets} clusters of subsets:\n{}", shop.mesh.log());
        Ok(())
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    let answered = stop_all(traffic).await?;
    println!("{cycles} subsets over {variant}: {answered} requests in {seconds:.0} s, none failed");
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn subsets_come_and_go_unnoticed_by_traffic_over_delta() -> Result<()> {
    subsets_come_and_go("DELTA_GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn subsets_come_and_go_unnoticed_by_traffic_over_state_of_the_world() -> Result<()> {
    subsets_come_and_go("GRPC").await
}

/// Changes of any size in any order that leave the shop a way to one of its upstreams.
async fn edits_go_unnoticed(variant: &str) -> Result<()> {
    let shop = Shop::open().await?;
    let envoy = shop.mesh.gateway_over(variant).await?;
    let edits = cycles(60);
    let traffic = dense_traffic(&shop);
    for number in 0..edits {
        let dice = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        match dice % 4 {
            0 => shop.change(number)?,
            1 => shop.use_subset(number)?,
            2 => shop.split(number, dice as usize % 5 + 1)?,
            _ => shop.write(u32::try_from(number)? + 1, "")?,
        }
        tokio::time::sleep(Duration::from_millis(dice / 4 % 40)).await;
    }
    shop.change(edits)?;
    shop.arrived(edits, &envoy).await?;
    let answered = stop_all(traffic).await?;
    println!("{edits} edits over {variant}: {answered} requests, none failed");
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_any_kind_go_unnoticed_by_traffic_over_delta() -> Result<()> {
    edits_go_unnoticed("DELTA_GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_any_kind_go_unnoticed_by_traffic_over_state_of_the_world() -> Result<()> {
    edits_go_unnoticed("GRPC").await
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
