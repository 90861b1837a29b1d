//! A control plane without Kubernetes is an authority, and a join token is what a plain machine needs for a certificate.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tonic::Code;

use crate::plane::{CART, Plane};

fn openssl(arguments: &[&str]) -> Result<String> {
    let output = Command::new("openssl").args(arguments).output().context("openssl")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "openssl {arguments:?}: {}", text(&output.stderr));
    Ok(text(&output.stdout))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn join_token_is_exchanged_for_a_certificate_that_renews_itself() -> Result<()> {
    let authority = Plane::start().await?;
    let token = authority.token(true).await?;
    let own = authority.certify(Some(&token), None).await?;

    let directory = tempfile::tempdir()?;
    let leaf = write(directory.path(), "leaf.pem", &own.certificate)?;
    let roots = write(directory.path(), "roots.pem", &authority.roots()?)?;
    openssl(&["verify", "-CAfile", &roots, &leaf])?;
    let text = openssl(&["x509", "-in", &leaf, "-noout", "-ext", "subjectAltName"])?;
    assert!(text.contains(CART) && !text.contains("thief"), "{text}");

    // Used up; the certificate is what counts from now on.
    let again = authority.certify(Some(&token), None).await.unwrap_err();
    assert_eq!((again.code(), again.message()), (Code::Unauthenticated, "request authenticate failure"));
    authority.certify(None, Some(&own)).await?;
    let nobody = authority.certify(None, None).await.unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn join_token_is_refused_when_it_is_forged_or_was_used_before_a_restart() -> Result<()> {
    let mut authority = Plane::start().await?;
    let once = authority.token(true).await?;
    authority.certify(Some(&once), None).await?;
    authority.mesh.restart().await?;
    assert_eq!(authority.certify(Some(&once), None).await.unwrap_err().code(), Code::Unauthenticated);
    let reusable = authority.token(false).await?;
    authority.certify(Some(&reusable), None).await?;
    let (head, signature) = reusable.rsplit_once('.').context("three parts")?;
    for forged in [format!("{head}."), format!("{head}.{}", &signature[1..]), "a.b.c".to_owned()] {
        assert_eq!(authority.certify(Some(&forged), None).await.unwrap_err().code(), Code::Unauthenticated);
    }
    let keys = authority.mesh.ask("/openid/v1/jwks").await?;
    assert_eq!(keys["keys"][0]["crv"], "P-256");
    let bundle = authority.mesh.ask("/spiffe/bundle").await?;
    assert_eq!(bundle["keys"][0]["use"], "x509-svid");
    Ok(())
}
