//! Tokens that are really signed: RequestAuthentication and what AuthorizationPolicies make of claims.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use canopus_testkit::http;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::sidecars::Sidecars;

const ISSUER: &str = "https://issuer.example";

/// Who signs tokens.
struct Issuer {
    key: KeyPair,
    id: &'static str,
}

impl Issuer {
    fn new(id: &'static str) -> Result<Self> {
        Ok(Self { key: KeyPair::generate_for(&PKCS_ED25519)?, id })
    }

    /// The public key, as servers of keys publish it.
    fn jwks(&self) -> String {
        let x = BASE64_URL_SAFE_NO_PAD.encode(self.key.der_bytes());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id, "x": x}]})
            .to_string()
    }

    /// A signed token with these claims that expires this many seconds from now.
    fn token(&self, claims: Value, lifetime: i64) -> Result<String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let mut payload = json!({"iss": ISSUER, "sub": "tester", "exp": now.cast_signed() + lifetime});
        if let (Some(payload), Some(claims)) = (payload.as_object_mut(), claims.as_object()) {
            payload.extend(claims.clone());
        }
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed =
            format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": self.id, "typ": "JWT"})), part(&payload));
        let signature = self.key.sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Tokens of the issuer are checked by `keys`, a field of the rule, and one with the claim `group: staff` is required.
fn policy(keys: &str) -> String {
    format!(
        "
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata:
  name: tokens
  namespace: shop
spec:
  selector:
    matchLabels: {{app: reviews}}
  jwtRules:
  - issuer: {ISSUER}
    {keys}
    outputClaimToHeaders:
    - header: x-subject
      claim: sub
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: staff
  namespace: shop
spec:
  selector:
    matchLabels: {{app: reviews}}
  rules:
  - from:
    - source:
        requestPrincipals: [\"{ISSUER}/*\"]
    when:
    - key: request.auth.claims[group]
      values: [staff]
"
    )
}

fn with_token(sidecars: &Sidecars, token: &str) -> http::Request {
    sidecars.request(&sidecars.client, "/items").header("authorization", &format!("Bearer {token}"))
}

#[tokio::test]
async fn tokens_are_accepted_when_they_are_signed_and_say_what_is_asked() -> Result<()> {
    let (issuer, impostor) = (Issuer::new("one")?, Issuer::new("one")?);
    let sidecars = Sidecars::start(&policy(&format!("jwks: '{}'", issuer.jwks())), "").await?;
    let staff = json!({"group": "staff"});
    let good = issuer.token(staff.clone(), 600)?;
    let answer = sidecars.answered_to(|| with_token(&sidecars, &good), 200).await?;
    assert!(answer.body.contains(r#""x-subject":"tester""#), "{}", answer.body);
    assert!(!answer.body.contains("Bearer"), "the token is not passed on: {}", answer.body);

    sidecars.answered("/items", 403).await?;
    let guest = issuer.token(json!({"group": "guests"}), 600)?;
    sidecars.answered_to(|| with_token(&sidecars, &guest), 403).await?;
    for refused in [issuer.token(staff.clone(), -600)?, impostor.token(staff, 600)?, "no.token".into()] {
        sidecars.answered_to(|| with_token(&sidecars, &refused), 401).await?;
    }
    sidecars.check_accepted().await
}

/// A server of keys, whose answer can be changed.
struct KeyServer {
    uri: String,
    keys: watch::Sender<Arc<str>>,
    server: JoinHandle<()>,
}

impl KeyServer {
    async fn start(keys: &str) -> Result<Self> {
        let keys = watch::Sender::new(Arc::<str>::from(keys));
        let current = keys.subscribe();
        let answer = get(move || {
            let text = current.borrow().to_string();
            async move { text }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let uri = format!("http://{}/keys", listener.local_addr()?);
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, Router::new().route("/keys", answer)).await;
        });
        Ok(Self { uri, keys, server })
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test]
async fn keys_are_fetched_by_the_control_plane_and_followed_when_they_change() -> Result<()> {
    let (old, new) = (Issuer::new("old")?, Issuer::new("new")?);
    let keys = KeyServer::start(&old.jwks()).await?;
    let environment = [("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "1s"), ("CANOPUS_ALLOW_LOCAL_JWKS", "true")];
    let documents = policy(&format!("jwksUri: {}", keys.uri));
    let sidecars = Sidecars::start_with(&documents, "", &environment).await?;
    let staff = json!({"group": "staff"});
    let (of_old, of_new) = (old.token(staff.clone(), 600)?, new.token(staff, 600)?);
    sidecars.answered_to(|| with_token(&sidecars, &of_old), 200).await?;
    sidecars.answered_to(|| with_token(&sidecars, &of_new), 401).await?;

    keys.keys.send_replace(new.jwks().into());
    sidecars.answered_to(|| with_token(&sidecars, &of_new), 200).await?;
    sidecars.answered_to(|| with_token(&sidecars, &of_old), 401).await?;

    // What is no set of keys, or too long for one, changes nothing.
    for broken in ["gone".to_owned(), format!("{{\"keys\": [\"{}\"]}}", "x".repeat(2 << 20))] {
        keys.keys.send_replace(broken.into());
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(with_token(&sidecars, &of_new).send().await?.status, 200);
    }
    sidecars.check_accepted().await
}

#[tokio::test]
async fn tokens_are_refused_when_their_keys_cannot_be_had() -> Result<()> {
    let issuer = Issuer::new("one")?;
    let keys = KeyServer::start(&issuer.jwks()).await?;
    let environment = [("BLOCKED_CIDRS_IN_JWKS_URIS", "127.0.0.0/8")];
    let documents = policy(&format!("jwksUri: {}", keys.uri));
    let sidecars = Sidecars::start_with(&documents, "", &environment).await?;
    let token = issuer.token(json!({"group": "staff"}), 600)?;
    sidecars.answered_to(|| with_token(&sidecars, &token), 401).await?;
    sidecars.answered("/items", 403).await?;
    assert!(sidecars.mesh.log().contains("is blocked"), "{}", sidecars.mesh.log());
    sidecars.check_accepted().await
}
