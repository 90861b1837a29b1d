//! TLS on the ports that have it: certificates, who may connect, and handshakes that never hold up others.

mod incoming;
mod material;
mod verifier;

use std::sync::Arc;

use canopus_engine::Engine;
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;

pub use incoming::{TlsConnection, incoming};
pub use material::{Material, MaterialError};
use verifier::SpiffeVerifier;

/// Versions of TLS a port may insist on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 or later.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Standards that restrict versions, cipher suites and key exchange (`COMPLIANCE_POLICY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compliance {
    /// No restriction.
    #[default]
    None,
    /// TLS 1.2, AES-GCM, P-256.
    Fips140Dash2,
    /// TLS 1.2 and 1.3, AES-GCM, P-256 and P-384.
    Fips140Dash3,
    /// TLS 1.3 with a key exchange that quantum computers do not break.
    PostQuantum,
}

impl Compliance {
    /// The standard that a flag names.
    pub fn parse(name: &str) -> Result<Self, UnknownCompliance> {
        match name {
            "" => Ok(Self::None),
            "fips-140-2" => Ok(Self::Fips140Dash2),
            "fips-140-3" => Ok(Self::Fips140Dash3),
            "pqc" => Ok(Self::PostQuantum),
            other => Err(UnknownCompliance(other.to_owned())),
        }
    }
}

/// A standard nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("COMPLIANCE_POLICY: {0:?} is none of fips-140-2, fips-140-3 and pqc")]
pub struct UnknownCompliance(String);

/// How a port shakes hands.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The standard it keeps to, over whatever else is allowed.
    pub compliance: Compliance,
    /// The oldest version that is spoken.
    pub min_version: MinVersion,
    /// Cipher suites by their names in Go; empty for all that are safe.
    pub cipher_suites: Vec<String>,
}

/// Shakes hands by whatever the material is at the time.
#[derive(Clone)]
pub struct Acceptor {
    config: watch::Receiver<Arc<ServerConfig>>,
}

impl Acceptor {
    /// An acceptor that follows `config`.
    pub fn new(config: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self { config }
    }

    /// An acceptor that never changes.
    pub fn fixed(config: ServerConfig) -> Self {
        Self { config: watch::Sender::new(Arc::new(config)).subscribe() }
    }

    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.borrow())
    }
}

/// How the xDS port shakes hands: HTTP/2, and client certificates are verified if there are any.
///
/// A certificate counts if it names one SPIFFE identity of a trust domain that the mesh of `engine` trusts, and nothing in its
/// chain is revoked.
pub fn for_proxies(
    material: &Material,
    policy: &Policy,
    engine: &Engine,
) -> Result<ServerConfig, MaterialError> {
    // Without roots there is nothing to verify a certificate by, so none is asked for: clients need tokens.
    let verifier = match material.roots() {
        [] => None,
        roots => {
            let verifier = SpiffeVerifier::new(roots, material.revocations().clone(), engine.clone())?;
            Some(Arc::new(verifier) as Arc<dyn ClientCertVerifier>)
        }
    };
    let mut config = material.server(policy, verifier)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// How the port of the webhooks shakes hands: nobody has to prove who they are.
pub fn for_webhooks(material: &Material, policy: &Policy) -> Result<ServerConfig, MaterialError> {
    let mut config = material.server(policy, None)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
