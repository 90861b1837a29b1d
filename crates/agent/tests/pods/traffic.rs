//! Requests between applications that know nothing of the mesh.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::{eventually, http};

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(20);
const STRICT: &str = "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
";

/// Envoy tells the server's application who called and as whom it was called; both by certificate.
pub(crate) fn identities() -> Result<()> {
    let world = World::start("", &[], &[])?;
    let echoed = world.wait_answer()?;
    let certificate = &echoed.headers["x-forwarded-client-cert"];
    assert!(certificate.contains("URI=spiffe://cluster.local/ns/shop/sa/frontend"), "{certificate}");
    assert!(certificate.contains("By=spiffe://cluster.local/ns/shop/sa/reviews"), "{certificate}");
    for (pod, account) in [(&world.client, "frontend"), (&world.server, "reviews")] {
        let certificates = pod.admin("/certs")?;
        assert!(
            certificates.contains(&format!("spiffe://cluster.local/ns/shop/sa/{account}")),
            "{certificates}"
        );
    }
    Ok(())
}

/// A pod without a proxy speaks plain text, which the server takes until it is told not to.
pub(crate) fn strict() -> Result<()> {
    let mut world = World::start("", &[], &[])?;
    let stranger = world.network.pod(9)?;
    let server: SocketAddr = format!("{}:8080", world.server.workload.address()).parse()?;
    let plain = async || http::request(http::Method::GET, server, "/").host("reviews.shop.mesh").send().await;
    stranger
        .run(async || eventually("an answer to plain text", PATIENCE, async || plain().await?.ok()).await)?;
    world.plane.write("strict.yaml", STRICT)?;
    stranger.run(async || {
        eventually("no more plain text", PATIENCE, async || {
            let answer = plain().await;
            ensure!(answer.is_err(), "answered: {answer:?}");
            Ok(())
        })
        .await
    })?;
    let echoed = world.wait_answer()?;
    assert!(echoed.headers["x-forwarded-client-cert"].contains("sa/frontend"));
    Ok(())
}
