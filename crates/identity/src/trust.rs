//! Trust bundles: whose roots vouch for which trust domain.
//!
//! The text is SPIFFE's (a JWK set whose keys have the use `x509-svid`), as bundle endpoints serve and poll it. A peer is
//! verified with the roots of its own trust domain and with no others: a root of one domain cannot speak for another.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_base::spiffe::Identity;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde::{Deserialize, Serialize};

use crate::bundle;
use crate::certificate::{Certificate, CertificateError};

/// Bundles beyond this size are refused before they are parsed.
pub const LARGEST: usize = 1 << 20;

/// The use of keys that certify workloads.
const X509_SVID: &str = "x509-svid";

/// Why a bundle cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The text is too large.
    #[error("the bundle has {0} bytes, more than the allowed {LARGEST}")]
    TooLarge(usize),
    /// The text is no bundle.
    #[error("failed to decode bundle: {0}")]
    Syntax(String),
    /// An entry has not exactly one certificate.
    #[error("expected 1 certificate in x509-svid entry {entry}; got {count}")]
    Count {
        /// Which entry.
        entry: usize,
        /// How many it has.
        count: usize,
    },
    /// A certificate cannot be read.
    #[error("x509-svid entry {entry}: {error}")]
    Certificate {
        /// Which entry.
        entry: usize,
        /// Why.
        error: CertificateError,
    },
    /// A certificate may not sign others.
    #[error("x509-svid entry {0}: certificate is not a CA certificate")]
    NotAuthority(usize),
    /// There are no roots to verify workloads with.
    #[error("the bundle does not provide a X509 SVID")]
    Empty,
}

/// Why a peer is not who it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A peer has one identity.
    #[error("peer certificate does not contain 1 URI type SAN, detected {0}")]
    Count(usize),
    /// The URI is no identity of a workload.
    #[error("{0:?} is not the identity of a workload")]
    Identity(String),
    /// No bundle is trusted for the trust domain.
    #[error("no cert pool found for trust domain {0}")]
    Domain(Box<str>),
    /// The chain does not lead to a root of the domain.
    #[error("{0}")]
    Chain(String),
}

#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(default)]
    keys: Vec<Key>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spiffe_sequence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spiffe_refresh_hint: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Key {
    #[serde(default)]
    kty: String,
    #[serde(default, rename = "use")]
    usage: String,
    #[serde(default)]
    x5c: Vec<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

/// Reads the roots of a bundle. Keys of other uses are skipped.
pub fn parse(text: &[u8]) -> Result<Vec<Certificate>, TrustError> {
    if text.len() > LARGEST {
        return Err(TrustError::TooLarge(text.len()));
    }
    let document: Document =
        serde_json::from_slice(text).map_err(|error| TrustError::Syntax(error.to_string()))?;
    let mut roots = Vec::new();
    for (entry, key) in document.keys.iter().enumerate().filter(|(_, key)| key.usage == X509_SVID) {
        let [encoded] = key.x5c.as_slice() else {
            return Err(TrustError::Count { entry, count: key.x5c.len() });
        };
        let der = BASE64_STANDARD.decode(encoded).map_err(|error| TrustError::Syntax(error.to_string()))?;
        let root =
            Certificate::from_der(der.into()).map_err(|error| TrustError::Certificate { entry, error })?;
        if !root.is_authority() {
            return Err(TrustError::NotAuthority(entry));
        }
        roots.push(root);
    }
    if roots.is_empty() { Err(TrustError::Empty) } else { Ok(roots) }
}

/// Writes roots as a bundle, to be read again after so many seconds.
pub fn write(roots: &[Certificate], sequence: u64, refresh_hint: u64) -> Result<String, TrustError> {
    let key = |root: &Certificate| {
        let (kty, rest) = parameters(root);
        Key { kty, usage: X509_SVID.to_owned(), x5c: vec![BASE64_STANDARD.encode(root.der())], rest }
    };
    let document = Document {
        keys: roots.iter().map(key).collect(),
        spiffe_sequence: Some(sequence),
        spiffe_refresh_hint: Some(refresh_hint),
    };
    serde_json::to_string(&document).map_err(|error| TrustError::Syntax(error.to_string()))
}

/// The type of a root's key and its parameters as a JWK has them.
fn parameters(root: &Certificate) -> (String, BTreeMap<String, serde_json::Value>) {
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use der::Decode as _;
    use x509_cert::spki::SubjectPublicKeyInfoRef;
    let info = SubjectPublicKeyInfoRef::from_der(root.public_key()).ok();
    let key = info.as_ref().and_then(|info| info.subject_public_key.as_bytes()).unwrap_or_default();
    let text = |bytes: &[u8]| serde_json::Value::from(BASE64_URL_SAFE_NO_PAD.encode(bytes));
    if let Ok(rsa) = crate::signature::RsaPublicKey::from_der(key) {
        let rest = [("n", rsa.modulus.as_bytes()), ("e", rsa.exponent.as_bytes())];
        return (
            "RSA".to_owned(),
            rest.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect(),
        );
    }
    let half = key.len().saturating_sub(1) / 2;
    let curve = match half {
        32 => "P-256",
        48 => "P-384",
        66 => "P-521",
        _ => {
            return (
                "OKP".to_owned(),
                [("crv".to_owned(), "Ed25519".into()), ("x".to_owned(), text(key))].into(),
            );
        }
    };
    let (x, y) = key[1..].split_at(half);
    let rest = [("crv", curve.into()), ("x", text(x)), ("y", text(y))];
    ("EC".to_owned(), rest.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The roots of each trust domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustDomains(BTreeMap<String, Vec<Certificate>>);

impl TrustDomains {
    /// Adds roots of a domain to those there are.
    pub fn add(&mut self, domain: &str, roots: impl IntoIterator<Item = Certificate>) {
        let known = self.0.entry(domain.to_owned()).or_default();
        for root in roots {
            if !known.contains(&root) {
                known.push(root);
            }
        }
    }

    /// The roots of a domain.
    pub fn roots(&self, domain: &str) -> &[Certificate] {
        self.0.get(domain).map(Vec::as_slice).unwrap_or_default()
    }

    /// Verifies the chain of a peer, leaf first; who the peer is.
    pub fn verify(&self, chain: &[CertificateDer<'static>], now: UnixTime) -> Result<Identity, PeerError> {
        let (leaf, intermediates) = chain.split_first().ok_or(PeerError::Count(0))?;
        let certificate = Certificate::from_der(leaf.clone())?;
        let [uri] = certificate.uris() else { return Err(PeerError::Count(certificate.uris().len())) };
        // What ends a text somewhere, or cannot be seen, makes one name look like another.
        let parsed = uri.parse::<Identity>().ok().filter(|_| uri.bytes().all(|byte| byte.is_ascii_graphic()));
        let identity = parsed.ok_or_else(|| PeerError::Identity(uri.escape_debug().to_string()))?;
        let roots = self.roots(&identity.trust_domain);
        if roots.is_empty() {
            return Err(PeerError::Domain(identity.trust_domain));
        }
        let timely = roots.iter().filter(|root| root.is_valid_at(now)).map(Certificate::der);
        bundle::verify(leaf, intermediates, timely, now)
            .map_err(|error| PeerError::Chain(error.to_string()))?;
        Ok(identity)
    }
}
