//! Join tokens: what an agent on a plain machine presents for its first certificate.
//!
//! A token is a JWT (ES256) with the claims of a service account's token, so that whoever accepts those accepts these. It is
//! short-lived and bound to one namespace and service account; one for a single use has a number that is taken once
//! ([`uses`]), by whichever process comes first.
//!
//! Whoever can read the key can issue tokens. It is kept in a directory that only its owner may enter ([`open_directory`]),
//! so `canopus ca token` needs no server to ask and no right but that of reading the file.

mod uses;

use std::path::Path;
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use rustls_pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use crate::certificate::hex;
use crate::key::{KeyError, KeyKind, SigningKey};
use crate::store::{DirectoryStore, Record, RootStore as _, StoreError};

pub use uses::{DirectoryUses, MemoryUses, Uses};

/// The longest life of a token.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The largest token that is looked at.
const LARGEST: usize = 16 << 10;

/// The directory of the key, inside that of the authority.
pub const DIRECTORY: &str = "join-tokens";

/// The name of the issuer in tokens. The key tells one mesh from another.
const ISSUER: &str = "canopus-join-token";

/// The file of the key.
const KEY_FILE: &str = "token-key.pem";

/// Why a token is not issued or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A token has a namespace and a service account.
    #[error("a token needs a namespace and a service account, in lower-case letters, digits, `-` and `.`")]
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
    /// Too many used single-use tokens are remembered.
    #[error("too many tokens of a single use are in use; try again later")]
    Busy,
    /// The record of used single-use tokens cannot be read or written.
    #[error("it cannot be told whether the token was used: {0}")]
    Uses(String),
    /// The key cannot be read or stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Identity that a token admits, and its conditions.
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

/// What a token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The namespace it is for.
    pub namespace: String,
    /// The service account it is for.
    pub service_account: String,
    /// Whether it counts once.
    pub single_use: bool,
    number: String,
    expires: u64,
}

/// Issues and accepts join tokens.
pub struct TokenIssuer {
    audience: String,
    encoding: EncodingKey,
    public: Jwk,
    uses: Box<dyn Uses>,
}

/// The issuer whose key is kept inside the directory of an authority; the key is made if there is none.
///
/// Processes that open the same directory accept each other's tokens, and a single use counts in all of them.
pub async fn open_directory(authority: &Path, audience: &str) -> Result<TokenIssuer, TokenError> {
    let directory = authority.join(DIRECTORY);
    let store = DirectoryStore::open(&directory)?;
    let stored = match store.load().await? {
        Some(stored) => stored,
        None => {
            let mut record = Record::default();
            record.set(KEY_FILE, SigningKey::generate(KeyKind::P256)?.to_pem()?.as_bytes());
            store.create_if_absent(&record).await?
        }
    };
    let missing =
        || StoreError { place: directory.display().to_string(), reason: format!("{KEY_FILE} is missing") };
    let key = SigningKey::from_pem(stored.record.get(KEY_FILE).ok_or_else(missing)?)?;
    let uses = DirectoryUses::open(&directory.join("used"))
        .map_err(|error| StoreError { place: directory.display().to_string(), reason: error.to_string() })?;
    TokenIssuer::new(audience, &key, Box::new(uses))
}

impl TokenIssuer {
    /// An issuer with a P-256 key, for an audience such as `istio-ca`.
    pub fn new(audience: &str, key: &SigningKey, uses: Box<dyn Uses>) -> Result<Self, TokenError> {
        if key.kind() != KeyKind::P256 {
            return Err(KeyError::Rejected("tokens are signed with P-256".to_owned()).into());
        }
        let encoding = EncodingKey::from_ec_der(&key.to_pkcs8()?);
        let refused = |error: jsonwebtoken::errors::Error| TokenError::Refused(error.to_string());
        let mut public = Jwk::from_encoding_key(&encoding, Algorithm::ES256).map_err(refused)?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_key());
        public.common.key_id = Some(hex(&digest.as_ref()[..8]));
        public.common.public_key_use = Some(PublicKeyUse::Signature);
        Ok(Self { audience: audience.to_owned(), encoding, public, uses })
    }

    /// The public keys, for others who check tokens.
    pub fn jwks(&self) -> JwkSet {
        JwkSet { keys: vec![self.public.clone()] }
    }

    /// Issues a token.
    pub fn issue(&self, grant: &Grant, now: UnixTime) -> Result<String, TokenError> {
        let Grant { namespace, service_account, lifetime, single_use } = grant;
        if !is_name(namespace) || !is_name(service_account) {
            return Err(TokenError::Account);
        }
        if *lifetime > LONGEST || lifetime.as_secs() == 0 {
            return Err(TokenError::Lifetime);
        }
        let mut number = [0; 16];
        aws_lc_rs::rand::fill(&mut number).map_err(|_| KeyError::Library("make a random number"))?;
        let claims = Claims {
            iss: ISSUER.to_owned(),
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

    /// Whether a token was issued with this key, going by its header alone: others need not be verified to be refused.
    pub fn is_own(&self, token: &str) -> bool {
        token.len() <= LARGEST
            && decode_header(token).is_ok_and(|header| header.kid == self.public.common.key_id)
    }

    /// Verifies a token, without using it up.
    pub fn verify(&self, token: &str, now: UnixTime) -> Result<Verified, TokenError> {
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
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[&self.audience]);
        // The time is given, and there is no leeway: whoever issued the token checks it.
        validation.validate_exp = false;
        let claims: Claims =
            decode(token, &key, &validation).map_err(|error| refused(&error.to_string()))?.claims;
        if now.as_secs() >= claims.exp {
            return Err(refused("it has expired"));
        }
        let account = claims.sub.strip_prefix("system:serviceaccount:").and_then(|sub| sub.split_once(':'));
        let (namespace, account) = account
            .filter(|(namespace, account)| is_name(namespace) && is_name(account))
            .ok_or_else(|| refused("it is not for a service account"))?;
        Ok(Verified {
            namespace: namespace.to_owned(),
            service_account: account.to_owned(),
            single_use: claims.single_use,
            number: claims.jti,
            expires: claims.exp,
        })
    }

    /// Uses a token up, if it counts once.
    pub fn consume(&self, token: &Verified, now: UnixTime) -> Result<(), TokenError> {
        if token.single_use { self.uses.take(&token.number, token.expires, now.as_secs()) } else { Ok(()) }
    }

    /// Verifies a token and uses it up; the namespace and service account it is for.
    pub fn accept(&self, token: &str, now: UnixTime) -> Result<(String, String), TokenError> {
        let verified = self.verify(token, now)?;
        self.consume(&verified, now)?;
        Ok((verified.namespace, verified.service_account))
    }
}

/// Whether a text can be a namespace or an account: labels of DNS, or several joined by dots.
fn is_name(text: &str) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(is_letter)
}
