//! `ENABLE_CA_SERVER=false`: configuration, and no certificates.

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Authority, channel, http};
use tonic::Code;

use crate::plane::{self, CART, NAME, Plane, certify, has_cluster_of, service};

#[tokio::test(flavor = "multi_thread")]
async fn plane_without_an_authority_serves_configuration_and_signs_nothing() -> Result<()> {
    let authority = Authority::new()?;
    let plane = Plane::start_with(|directory, command| {
        let server = authority.server(NAME)?;
        for (flag, text) in [
            ("caCertFile", authority.root()),
            ("tlsCertFile", server.certificate),
            ("tlsKeyFile", server.key),
        ] {
            std::fs::write(directory.join(flag), text)?;
            command.arg(format!("--{flag}={}", directory.join(flag).display()));
        }
        command.env("ENABLE_CA_SERVER", "false");
        Ok(())
    })
    .await?;
    let own = authority.workload(&[CART])?;
    let channel = channel(&authority.root(), plane.secure, NAME, Some(&own)).await?;

    // Parity: there is no such service, whoever asks.
    let refused = certify(channel.clone(), CART, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    assert_eq!(refused.message(), "unknown service istio.v1.auth.IstioCertificateService");

    plane.mesh.write("services.yaml", &service("reviews.example.com"))?;
    let mut proxy = plane::proxy(channel);
    has_cluster_of(&mut proxy, "reviews.example.com").await.with_context(|| plane.mesh.log())?;

    // No root is made, nobody could join, and there are no keys that anybody could check tokens by.
    ensure!(!plane.directory().exists(), "{} was made", plane.directory().display());
    let keys = http::get(plane.mesh.http, "/openid/v1/jwks").await?;
    ensure!(keys.status == http::StatusCode::NOT_FOUND || !keys.body.contains("\"x\""), "{keys:?}");
    let metrics = http::get(plane.mesh.monitoring(), "/metrics").await?.ok()?;
    ensure!(!metrics.contains("citadel_server_root_cert_expiry"), "an authority's root is counted");
    ensure!(plane.mesh.log().contains("this process signs no certificates"), "{}", plane.mesh.log());
    Ok(())
}
