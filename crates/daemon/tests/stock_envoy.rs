//! A stock Envoy takes its configuration from `canopusd`, serves traffic by it, and follows its changes.

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::{Echo, Echoed, Envoy, eventually, free_port, http};
use local_mesh::LocalMesh;

const PATIENCE: Duration = Duration::from_secs(10);

struct Shop {
    mesh: LocalMesh,
    envoy: Envoy,
    gateway: SocketAddr,
    _upstreams: [Echo; 2],
    documents: String,
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
        let envoy = mesh.gateway().await?;
        Ok(Self { mesh, envoy, gateway, _upstreams: upstreams, documents })
    }

    /// Which upstream answers a request.
    async fn answered_by(&self, headers: &[(&str, &str)]) -> Result<String> {
        let mut request = http::request(::http::Method::GET, self.gateway, "/items").host("shop.example.com");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Ok(Echoed::from_body(&request.send().await?.ok()?)?.upstream)
    }

    async fn rejections(&self) -> Result<u64> {
        let stats = self.envoy.stats().await?;
        Ok(stats.iter().filter(|(name, _)| name.ends_with("update_rejected")).map(|(_, count)| count).sum())
    }
}

#[tokio::test]
async fn requests_are_routed_as_the_virtual_service_says() -> Result<()> {
    let shop = Shop::open().await?;
    assert_eq!(shop.answered_by(&[]).await?, "stable");
    assert_eq!(shop.answered_by(&[("x-tester", "yes")]).await?, "canary");
    assert_eq!(shop.rejections().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_changed_file_reaches_the_proxy() -> Result<()> {
    let shop = Shop::open().await?;
    shop.mesh
        .write("shop.yaml", &shop.documents.replace("host: shop.internal", "host: canary.shop.internal"))?;
    eventually("the new route", PATIENCE, async || {
        let upstream = shop.answered_by(&[]).await?;
        ensure!(upstream == "canary", "still answered by {upstream}");
        Ok(())
    })
    .await?;
    assert_eq!(shop.rejections().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_broken_document_is_reported_and_traffic_goes_on() -> Result<()> {
    let shop = Shop::open().await?;
    shop.mesh.write("shop.yaml", &shop.documents.replace("name: everyone", "name: [everyone"))?;
    eventually("the report", PATIENCE, async || {
        let log = shop.mesh.log();
        ensure!(log.contains("shop.yaml") && log.contains("line"), "not reported yet:\n{log}");
        Ok(())
    })
    .await?;
    assert_eq!(shop.answered_by(&[]).await?, "stable");
    Ok(())
}
