//! A stock Envoy takes its configuration from `canopusd`, serves traffic by it, and follows its changes.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/shop.rs"]
mod shop;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::eventually;
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
