//! Callers who prove who they are by a token.
//!
//! Tokens of an API server are signed by it; here a key of the adapter signs tokens with the same claims, and the product
//! checks them by `JWT_RULE`. Headers, claims, signatures and what follows from them are the product's to judge. What
//! depends on which cluster reviews a token (`clusterid`), and on the port without TLS, is asked of a whole installation.

use std::collections::BTreeMap;

use anyhow::Context as _;
use axum::http::{HeaderMap, HeaderValue, header};
use canopus_base::tree::Node;
use canopus_daemon::authentication::{Authenticators, Door, Presented};
use canopus_engine::{Batch, Engine};
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::service::Caller;
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_runtime::flags::Flags;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};

use super::text;

/// The issuer and the audience of an API server's own tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

const HOUR: u64 = 3600;

/// Whether it takes a server to tell what is answered.
pub(super) fn needs_a_server(recorded: &Node) -> bool {
    let described = text(recorded, "/description");
    described.contains("clusterid metadata") || text(recorded, "/request/transport") == "plaintext"
}

/// The caller, as the product recognises it by the headers that a recording describes.
pub(super) fn caller(recorded: &Node) -> anyhow::Result<Caller> {
    let (ours, stranger) = (key()?, key()?);
    let described = text(recorded, "/description");
    let mut claims = json!({
        "iss": ISSUER,
        "sub": "system:serviceaccount:demo:web",
        "aud": ["istio-ca"],
        "exp": UnixTime::now().as_secs() + HOUR,
        "nbf": UnixTime::now().as_secs() - 1,
    });
    if described.contains("without explicit audience") {
        claims["aud"] = json!([ISSUER]);
    } else if described.contains("audience \"other\"") {
        claims["aud"] = json!(["other"]);
    } else if described.contains("istio-ca and other") {
        claims["aud"] = json!(["istio-ca", "other"]);
    } else if described.contains("exp is one hour ago") {
        claims["exp"] = json!(UnixTime::now().as_secs() - HOUR);
    } else if described.contains("nbf is one hour ahead") {
        claims["nbf"] = json!(UnixTime::now().as_secs() + HOUR);
    } else if described.contains("another issuer") {
        claims["iss"] = json!("https://elsewhere.example");
    }
    let signer = if described.contains("another key") { &stranger } else { &ours };
    let headers = headers(described, &sign(signer, &claims)?)?;
    recognise(&ours, &headers)
}

fn key() -> anyhow::Result<EncodingKey> {
    let key = SigningKey::generate(KeyKind::P256)?;
    Ok(EncodingKey::from_ec_der(&key.to_pkcs8()?))
}

fn sign(key: &EncodingKey, claims: &Value) -> anyhow::Result<String> {
    let header = Header { kid: Some("the key".to_owned()), ..Header::new(Algorithm::ES256) };
    Ok(encode(&header, claims, key)?)
}

/// The headers that a recording describes, with this token.
fn headers(described: &str, token: &str) -> anyhow::Result<HeaderMap> {
    let values = match described {
        _ if described.contains("Bearer followed by nothing") => vec!["Bearer ".to_owned()],
        _ if described.contains("Bearer garbage") => vec!["Bearer garbage".to_owned()],
        _ if described.contains("authorization: Istio") => vec![format!("Istio {token}")],
        _ if described.contains("authorization: bearer") => vec![format!("bearer {token}")],
        _ if described.contains("without the Bearer prefix") => vec![token.to_owned()],
        _ if described.contains("first garbage, second valid") => {
            vec!["Bearer garbage".to_owned(), format!("Bearer {token}")]
        }
        _ => vec![format!("Bearer {token}")],
    };
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(header::AUTHORIZATION, HeaderValue::try_from(value)?);
    }
    Ok(headers)
}

/// Who the product takes the sender of these headers for.
fn recognise(key: &EncodingKey, headers: &HeaderMap) -> anyhow::Result<Caller> {
    let mut public = Jwk::from_encoding_key(key, Algorithm::ES256)?;
    public.common.key_id = Some("the key".to_owned());
    let keys = serde_json::to_string(&JwkSet { keys: vec![public] })?;
    let rule = json!({"issuer": ISSUER, "jwks": keys, "audiences": ["istio-ca"]}).to_string();
    let flags = Flags::read(&BTreeMap::from([("JWT_RULE".to_owned(), rule)]));
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    engine.apply(batch);
    let authenticators = Authenticators::new(engine, &flags, None)?;
    let presented = Presented { address: None, certified: &[], headers, door: Door::Certificate };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let proof = runtime.context("a runtime")?.block_on(authenticators.prove(&presented));
    let identities = proof.map(|proof| proof.identities).unwrap_or_default();
    Ok(Caller { identities, ..Caller::default() })
}
