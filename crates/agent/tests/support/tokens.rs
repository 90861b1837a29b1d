//! Tokens of service accounts that a control plane of a test believes, and the control plane itself.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use canopus_identity::key::{KeyKind, SigningKey};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

const ISSUER: &str = "https://tokens.test";

/// Signs tokens with a key made for the test.
pub(crate) struct TokenSigner(SigningKey);

impl TokenSigner {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(SigningKey::generate(KeyKind::P256)?))
    }

    /// A token of a service account that counts for this many seconds; a negative number makes it expired.
    pub(crate) fn token(&self, namespace: &str, account: &str, seconds: i64) -> Result<String> {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
        let claims = json!({
            "iss": ISSUER,
            "aud": ["istio-ca"],
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "exp": now + seconds,
        });
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some("test".to_owned());
        let key = EncodingKey::from_ec_der(&self.0.to_pkcs8()?);
        Ok(jsonwebtoken::encode(&header, &claims, &key)?)
    }

    /// The variable `JWT_RULE` of a control plane that believes the tokens.
    pub(crate) fn rule(&self) -> String {
        // An uncompressed point: a byte that says so, and two coordinates.
        let point = self.0.raw_public_key();
        let coordinate = |range| BASE64.encode(&point[range]);
        let key = json!({
            "kty": "EC", "crv": "P-256", "kid": "test", "alg": "ES256", "use": "sig",
            "x": coordinate(1..33), "y": coordinate(33..65),
        });
        let keys = json!({"keys": [key]}).to_string();
        json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks": keys}).to_string()
    }
}

/// The control plane that was built beside the agent, or else in the other profile.
pub(crate) fn canopusd() -> Result<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_canopus-agent")).with_file_name("canopusd");
    let profiles = beside.parent().and_then(Path::parent).context("the agent is in no directory")?;
    let candidates = [beside.clone(), profiles.join("release/canopusd"), profiles.join("debug/canopusd")];
    let built = candidates.iter().find(|path| path.exists());
    let built = built
        .with_context(|| format!("{} is missing; run `cargo build -p canopus-daemon`", beside.display()))?;
    built.canonicalize().context("canopusd")
}
