//! Two meshes that trust each other by their SPIFFE bundle endpoints, over HTTPS.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Certified, channel, eventually};

use crate::plane::{self, NAME, Plane, certify, has_cluster_of, service};

const PATIENCE: Duration = Duration::from_secs(30);

async fn start(mesh_config: &str) -> Result<Plane> {
    Plane::start_with(|directory, command| {
        let file = directory.join("mesh.yaml");
        fs::write(&file, mesh_config)?;
        command.arg("--meshConfig").arg(&file);
        // The endpoint is on this machine, and its certificate is of an authority that nobody knows yet.
        command.envs([("CANOPUS_ALLOW_LOCAL_JWKS", "true"), ("JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "true")]);
        Ok(())
    })
    .await
}

fn trusting(endpoint: SocketAddr, domain: &str) -> String {
    format!(
        "trustDomainAliases: [partner.example]\ncaCertificates:\n\
         - spiffeBundleUrl: https://localhost:{}/spiffe/bundle\n  trustDomains: [{domain}]\n",
        endpoint.port()
    )
}

/// Whether a proxy with this certificate gets its configuration.
async fn is_served(plane: &Plane, own: &Certified, host: &str) -> Result<()> {
    let channel = channel(&plane.roots()?, plane.secure, NAME, Some(own)).await?;
    has_cluster_of(&mut plane::proxy(channel), host).await
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_another_mesh_vouches_for_its_domain_for_as_long_as_it_is_listed() -> Result<()> {
    let partner = start("trustDomain: partner.example\n").await?;
    let endpoint = partner.webhooks;
    let own = partner.cart().await?;
    let plane = start(&trusting(endpoint, "partner.example")).await?;
    plane.mesh.write("one.yaml", &service("one.example.com"))?;
    eventually("the partner's bundle", PATIENCE, async || {
        ensure!(plane.mesh.log().contains("a SPIFFE bundle was fetched"), "{}", plane.mesh.log());
        Ok(())
    })
    .await?;
    is_served(&plane, &own, "one.example.com").await.with_context(|| plane.mesh.log())?;
    // It gets certificates of its own identity too, and of no other domain's.
    let channel = channel(&plane.roots()?, plane.secure, NAME, Some(&own)).await?;
    let renewed = certify(channel, "spiffe://cluster.local/ns/shop/sa/cart", None).await?;
    let leaf = canopus_identity::certificate::Certificate::from_pem(renewed.certificate.as_bytes())?;
    assert_eq!(leaf.uris(), ["spiffe://partner.example/ns/shop/sa/cart"]);

    // What it published last stays in force when it is away.
    drop(partner);
    is_served(&plane, &own, "one.example.com").await?;

    // An entry that vouches for another domain, and none at all.
    let file = plane.mesh.objects().with_file_name("mesh.yaml");
    for config in
        [trusting(endpoint, "elsewhere.example"), "trustDomainAliases: [partner.example]\n".to_owned()]
    {
        fs::write(&file, config)?;
        eventually("the end of trust", PATIENCE, async || {
            let served =
                tokio::time::timeout(Duration::from_secs(3), is_served(&plane, &own, "one.example.com"));
            ensure!(!matches!(served.await, Ok(Ok(()))), "the partner's certificates still count");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
