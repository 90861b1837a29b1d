//! Join tokens: what an agent on a plain machine presents for its first certificate.
//!
//! A token is a JWT (ES256) with the claims of a service account's token, so that whoever accepts those accepts these. It is
//! short-lived and bound to one namespace and service account; one for a single use has a number that is taken once.

use std::collections::BTreeMap;
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use parking_lot::Mutex;
use rustls_pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use crate::certificate::hex;
use crate::key::{KeyError, KeyKind, SigningKey};

/// The longest life of a token.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The largest token that is looked at.
const LARGEST: usize = 16 << 10;

/// How many tokens of a single use are remembered; they are forgotten when they expire.
const MOST_USED: usize = 65_536;

/// Why a token is not issued or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A token has a namespace and a service account.
    #[error("a token needs a namespace and a service account, without `:` in them")]
    Account,
    /// The token would live too long.
    #[error("a token may live for {} seconds at most, and for one at least", LONGEST.as_secs())]
    Lifetime,
    /// The token is refused.
    #[error("the token is refused: {0}")]
    Refused(String),
    /// The token was for a single use.
    #[error("the token was for a single use, which it has had")]
    Used,
    /// Too many tokens of a single use are remembered.
    #[error("too many tokens of a single use are in use; try again later")]
    Busy,
}

/// Whom a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The namespace.
    pub namespace: String,
    /// The service account.
    pub service_account: String,
    /// How long it counts.
    pub lifetime: Duration,
    /// Whether it counts once.
    pub single_use: bool,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Vec<String>,
    iat: u64,
    exp: u64,
    jti: String,
    #[serde(default, rename = "canopus.io/single-use")]
    single_use: bool,
}

/// Issues and accepts join tokens.
pub struct TokenIssuer {
    issuer: String,
    audience: String,
    encoding: EncodingKey,
    public: Jwk,
    used: Mutex<BTreeMap<String, u64>>,
}

impl TokenIssuer {
    /// An issuer of this name, with a P-256 key, for an audience such as `istio-ca`.
    pub fn new(issuer: &str, audience: &str, key: &SigningKey) -> Result<Self, TokenError> {
        if key.kind() != KeyKind::P256 {
            return Err(KeyError::Rejected("tokens are signed with P-256".to_owned()).into());
        }
        let encoding = EncodingKey::from_ec_der(&key.to_pkcs8()?);
        let refused = |error: jsonwebtoken::errors::Error| TokenError::Refused(error.to_string());
        let mut public = Jwk::from_encoding_key(&encoding, Algorithm::ES256).map_err(refused)?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_key());
        public.common.key_id = Some(hex(&digest.as_ref()[..8]));
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        let (issuer, audience) = (issuer.to_owned(), audience.to_owned());
        Ok(Self { issuer, audience, encoding, public, used: Mutex::default() })
    }

    /// The public keys, for others who check tokens.
    pub fn jwks(&self) -> JwkSet {
        JwkSet { keys: vec![self.public.clone()] }
    }

    /// Issues a token.
    pub fn issue(&self, grant: &Grant, now: UnixTime) -> Result<String, TokenError> {
        let Grant { namespace, service_account, lifetime, single_use } = grant;
        let is_name = |text: &str| !text.is_empty() && !text.contains(':');
        if !is_name(namespace) || !is_name(service_account) {
            return Err(TokenError::Account);
        }
        if *lifetime > LONGEST || lifetime.as_secs() == 0 {
            return Err(TokenError::Lifetime);
        }
        let mut number = [0; 16];
        aws_lc_rs::rand::fill(&mut number).map_err(|_| KeyError::Library("make a random number"))?;
        let claims = Claims {
            iss: self.issuer.clone(),
            sub: format!("system:serviceaccount:{namespace}:{service_account}"),
            aud: vec![self.audience.clone()],
            iat: now.as_secs(),
            exp: now.as_secs().saturating_add(lifetime.as_secs()),
            jti: hex(&number),
            single_use: *single_use,
        };
        let header = Header { kid: self.public.common.key_id.clone(), ..Header::new(Algorithm::ES256) };
        encode(&header, &claims, &self.encoding).map_err(|error| TokenError::Refused(error.to_string()))
    }

    /// Accepts a token; the namespace and service account it is for. One of a single use is not accepted again.
    pub fn accept(&self, token: &str, now: UnixTime) -> Result<(String, String), TokenError> {
        let refused = |reason: &str| TokenError::Refused(reason.to_owned());
        if token.len() > LARGEST {
            return Err(refused("it is too long"));
        }
        let header = decode_header(token).map_err(|error| refused(&error.to_string()))?;
        if header.kid != self.public.common.key_id {
            return Err(refused("it is signed with another key"));
        }
        let key = DecodingKey::from_jwk(&self.public).map_err(|error| refused(&error.to_string()))?;
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        // The time is given, and there is no leeway: whoever issued the token checks it.
        validation.validate_exp = false;
        let claims: Claims =
            decode(token, &key, &validation).map_err(|error| refused(&error.to_string()))?.claims;
        if now.as_secs() >= claims.exp {
            return Err(refused("it has expired"));
        }
        let account = claims.sub.strip_prefix("system:serviceaccount:").and_then(|sub| sub.split_once(':'));
        let (namespace, account) = account.ok_or_else(|| refused("it is not for a service account"))?;
        if claims.single_use {
            self.take(&claims.jti, claims.exp, now.as_secs())?;
        }
        Ok((namespace.to_owned(), account.to_owned()))
    }

    fn take(&self, number: &str, expires: u64, now: u64) -> Result<(), TokenError> {
        let mut used = self.used.lock();
        used.retain(|_, expires| *expires > now);
        if used.contains_key(number) {
            return Err(TokenError::Used);
        }
        if used.len() >= MOST_USED {
            return Err(TokenError::Busy);
        }
        used.insert(number.to_owned(), expires);
        Ok(())
    }
}
