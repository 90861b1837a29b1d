//! Revocation lists beside a plugged-in authority: a client whose certificate they name is refused, from the moment they come
//! until the moment they go.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_identity::Certificate;
use canopus_testkit::{Certified, PluggedAuthority, channel, eventually};
use serde_json::Value;

use crate::memory::plugged;
use crate::plane::{CART, NAME, Plane, certify};

const PATIENCE: Duration = Duration::from_secs(30);

fn serial(certified: &Certified) -> Result<String> {
    Ok(Certificate::from_pem(certified.certificate.as_bytes())?.serial())
}

/// Whether a workload can renew by its certificate.
async fn renews(plane: &Plane, authority: &PluggedAuthority, own: &Certified) -> Result<()> {
    let channel = channel(&authority.root(), plane.secure, NAME, Some(own)).await?;
    Ok(certify(channel, CART, None).await.map(drop)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_refused_while_a_list_names_its_certificate() -> Result<()> {
    let authority = PluggedAuthority::new(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let (plane, files) = plugged(&authority).await?;
    let lists = files.join("ca-crl.pem");
    let connect = async || channel(&authority.root(), plane.secure, NAME, None).await;
    let (lost, kept) = (plane.token_of("shop", "lost", false).await?, plane.token(false).await?);
    let lost = certify(connect().await?, CART, Some(&lost)).await?;
    let kept = certify(connect().await?, CART, Some(&kept)).await?;
    for own in [&lost, &kept] {
        renews(&plane, &authority, own).await?;
    }
    let held = || plane.mesh.ask("/debug/certificates?role=revocationList");
    assert_eq!(held().await?["certificates"], Value::Array(Vec::new()));

    let is_lost = async |is_lost: bool| {
        eventually("what becomes of the client", PATIENCE, async || {
            renews(&plane, &authority, &kept).await.context("the other client")?;
            let renewed = renews(&plane, &authority, &lost).await;
            ensure!(renewed.is_err() == is_lost, "{renewed:?}: {}", plane.mesh.log());
            Ok(())
        })
        .await
    };
    fs::write(&lists, authority.revocations(&[&serial(&lost)?])?)?;
    is_lost(true).await?;
    ensure!(plane.mesh.log().contains("a client certificate is revoked"), "{}", plane.mesh.log());
    let told = held().await?;
    assert_eq!(told["certificates"].as_array().map(Vec::len), Some(2), "{told}");
    assert_eq!(told["certificates"][0]["verdict"], "fine", "{told}");

    // A list that lacks the one of the root, and one that is cut off, would break every handshake of the mesh.
    let whole = authority.revocations(&[])?;
    let alone = whole.split_inclusive("-----END X509 CRL-----\n").next().context("a list")?;
    for broken in [alone, &whole[..whole.len() - 30]] {
        let refusals =
            || plane.mesh.log().matches("the plugged-in CA stays as it was: revocation list").count();
        let before = refusals();
        fs::write(&lists, broken)?;
        eventually("the refusal", PATIENCE, async || {
            ensure!(refusals() > before, "{}", plane.mesh.log());
            Ok(())
        })
        .await?;
        is_lost(true).await?;
    }

    fs::write(&lists, whole)?;
    is_lost(false).await?;
    fs::write(&lists, authority.revocations(&[&serial(&lost)?])?)?;
    is_lost(true).await?;
    // Withdrawn: the file is emptied, or it is removed.
    fs::write(&lists, "")?;
    is_lost(false).await?;
    fs::write(&lists, authority.revocations(&[&serial(&lost)?])?)?;
    is_lost(true).await?;
    fs::remove_file(&lists)?;
    is_lost(false).await
}
