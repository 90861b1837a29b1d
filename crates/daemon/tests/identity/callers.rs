//! Callers that neither a certificate of the mesh nor its own tokens prove: those of an outside issuer, and those for whom a
//! gateway vouches.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use canopus_identity::certificate::Certificate;
use canopus_testkit::channel;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::plane::{CART, NAME, Plane, certify_with};

const ISSUER: &str = "https://issuer.example";

/// An issuer of tokens with one key.
struct Issuer {
    key: KeyPair,
}

impl Issuer {
    fn new() -> Result<Self> {
        Ok(Self { key: KeyPair::generate()? })
    }

    /// The rule by which its tokens for `istio-ca` count.
    fn rule(&self) -> String {
        // An uncompressed point: one byte, then both coordinates.
        let (x, y) = self.key.der_bytes()[1..].split_at(32);
        let [x, y] = [x, y].map(|number| BASE64_URL_SAFE_NO_PAD.encode(number));
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "a", "x": x, "y": y}]});
        json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks": keys.to_string()}).to_string()
    }

    fn token(&self, claims: &Value) -> Result<String> {
        let header = Header { kid: Some("a".to_owned()), ..Header::new(Algorithm::ES256) };
        Ok(jsonwebtoken::encode(&header, claims, &EncodingKey::from_ec_der(&self.key.serialize_der()))?)
    }
}

fn claims() -> Result<Value> {
    let end = (SystemTime::now() + Duration::from_secs(600)).duration_since(UNIX_EPOCH)?.as_secs();
    let subject = "system:serviceaccount:shop:cart";
    Ok(json!({"iss": ISSUER, "aud": ["istio-ca"], "exp": end, "sub": subject}))
}

/// The names in the certificate that a client without a certificate gets for these headers.
async fn certified(plane: &Plane, headers: &[(&'static str, String)]) -> Result<Vec<String>, Status> {
    let failed = |error: anyhow::Error| Status::internal(format!("{error:#}"));
    let roots = plane.roots().map_err(failed)?;
    let channel = channel(&roots, plane.secure, NAME, None).await.map_err(failed)?;
    let own = certify_with(channel, "spiffe://thief.example.com", headers).await?;
    let leaf = Certificate::from_pem(own.certificate.as_bytes());
    Ok(leaf.map_err(|error| failed(error.into()))?.uris().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_an_outside_issuer_is_exchanged_for_a_certificate_of_its_subject() -> Result<()> {
    let issuer = Issuer::new()?;
    let rule = issuer.rule();
    let plane = Plane::start_with(|_, command| {
        command.env("JWT_RULE", rule);
        Ok(())
    })
    .await?;
    let bearer = |token: String| vec![("authorization", format!("Bearer {token}"))];
    let names = certified(&plane, &bearer(issuer.token(&claims()?)?)).await;
    ensure!(names.context("the token counts")? == [CART], "names come from the subject");

    let mut expired = claims()?;
    expired["exp"] = json!(1);
    let mut elsewhere = claims()?;
    elsewhere["aud"] = json!("vault");
    let refused = [issuer.token(&expired)?, issuer.token(&elsewhere)?, Issuer::new()?.token(&claims()?)?];
    for (token, fault) in refused.into_iter().zip(["expired", "of another audience", "of another key"]) {
        let status = certified(&plane, &bearer(token)).await.err().context(fault)?;
        ensure!(status.code() == Code::Unauthenticated, "{fault}: {status}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_is_who_a_trusted_gateway_says_and_nobody_without_one() -> Result<()> {
    let header = vec![("x-forwarded-client-cert", format!("By=gateway;URI={CART}"))];
    let trusting = Plane::start_with(|_, command| {
        command.env("TRUSTED_GATEWAY_CIDR", "127.0.0.0/8");
        Ok(())
    })
    .await?;
    ensure!(certified(&trusting, &header).await.context("the gateway is trusted")? == [CART]);
    let nobody = certified(&trusting, &[]).await.err().context("nobody was named")?;
    ensure!(nobody.code() == Code::Unauthenticated, "{nobody}");

    // Without ranges of gateways the header is what anybody may write.
    let wary = Plane::start().await?;
    let refused = certified(&wary, &header).await.err().context("the header was believed")?;
    ensure!(refused.code() == Code::Unauthenticated, "{refused}");
    Ok(())
}
