//! The authority: signs requests under the bundle of the time.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use canopus_base::duration::Duration as GoDuration;
use rustls_pki_types::UnixTime;
use tokio::sync::watch;

use crate::bundle::Bundle;
use crate::issue::{IssueError, Leaf};
use crate::pem;
use crate::request::{Request, RequestError};

/// How far back certificates become valid, for holders and verifiers whose clocks are late.
pub const CLOCK_SKEW: Duration = Duration::from_secs(120);

/// How long workload certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Where the request asks for nothing (`DEFAULT_WORKLOAD_CERT_TTL`).
    pub default: Duration,
    /// The most a request may ask for (`MAX_WORKLOAD_CERT_TTL`).
    pub longest: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { default: Duration::from_secs(24 * 3600), longest: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// What kind of failure keeps a request from being signed; metrics have it as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignErrorKind {
    /// The authority has nothing to sign with.
    NotReady,
    /// The request is at fault.
    Request,
    /// The lifetime that was asked for is too long.
    Lifetime,
    /// The certificate could not be made.
    Generation,
}

impl SignErrorKind {
    /// The value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotReady => "CA_NOT_READY",
            Self::Request => "CSR_ERROR",
            Self::Lifetime => "TTL_ERROR",
            Self::Generation => "CERT_GEN_ERROR",
        }
    }
}

/// Why a request is not signed. Parity: the texts are those that istiod's callers know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The authority has nothing to sign with, or does not know whether it still may.
    #[error("Istio CA is not ready")]
    NotReady,
    /// The request is at fault.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The lifetime that was asked for is too long.
    #[error("requested TTL {requested} is greater than the max allowed TTL {longest}")]
    Lifetime {
        /// What was asked for.
        requested: GoDuration,
        /// What is allowed.
        longest: GoDuration,
    },
    /// A registration authority does not hand on requests for other names than the caller's.
    #[error("unable to validate SAN Identities in CSR")]
    Names,
    /// The certificate could not be made.
    #[error(transparent)]
    Generation(#[from] IssueError),
    /// An authority elsewhere failed.
    #[error("{0}")]
    External(String),
}

impl SignError {
    /// What kind of failure it is.
    pub fn kind(&self) -> SignErrorKind {
        match self {
            Self::NotReady => SignErrorKind::NotReady,
            Self::Request(_) | Self::Names => SignErrorKind::Request,
            Self::Lifetime { .. } => SignErrorKind::Lifetime,
            Self::Generation(_) | Self::External(_) => SignErrorKind::Generation,
        }
    }
}

/// A request for a certificate from a caller who may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The certificate signing request, as PEM.
    pub request: String,
    /// The names the certificate is for.
    pub identities: Vec<String>,
    /// The lifetime asked for in seconds; zero and less for the default.
    pub seconds: i64,
    /// The signer asked for; empty for the default. Only registration authorities have several.
    pub signer: String,
}

/// Signs requests. The bundle can be exchanged at any time; each request sees one bundle from beginning to end.
#[derive(Debug)]
pub struct Authority {
    bundle: ArcSwapOption<Bundle>,
    lifetimes: Lifetimes,
    /// Counts the exchanges of the bundle.
    exchanges: watch::Sender<u64>,
}

impl Authority {
    /// An authority that waits for its first bundle.
    pub fn new(lifetimes: Lifetimes) -> Self {
        Self { bundle: ArcSwapOption::empty(), lifetimes, exchanges: watch::Sender::new(0) }
    }

    /// An authority with a bundle.
    pub fn with_bundle(lifetimes: Lifetimes, bundle: Arc<Bundle>) -> Self {
        Self { bundle: ArcSwapOption::new(Some(bundle)), ..Self::new(lifetimes) }
    }

    /// Signs under another bundle from now on; `None` signs nothing.
    pub fn replace(&self, bundle: Option<Arc<Bundle>>) {
        self.bundle.store(bundle);
        self.exchanges.send_modify(|count| *count += 1);
    }

    /// Tells when the bundle is exchanged.
    pub fn exchanges(&self) -> watch::Receiver<u64> {
        self.exchanges.subscribe()
    }

    /// The bundle of the time.
    pub fn bundle(&self) -> Option<Arc<Bundle>> {
        self.bundle.load_full()
    }

    /// How long certificates live.
    pub fn lifetimes(&self) -> Lifetimes {
        self.lifetimes
    }

    /// Signs a request. The chain starts with the new certificate, goes on with each intermediate, and ends with all roots
    /// in one text.
    pub fn sign(&self, order: &Order, now: UnixTime) -> Result<Vec<String>, SignError> {
        let bundle = self.bundle().ok_or(SignError::NotReady)?;
        let request = Request::from_pem(&order.request)?;
        let lifetime = self.lifetime(order.seconds)?;
        let leaf = issue(&bundle, &request, &order.identities, lifetime, now)?;
        let mut chain = vec![leaf];
        chain.extend(bundle.chain_pem().iter().cloned());
        chain.push(bundle.roots_pem().to_owned());
        Ok(chain)
    }

    /// Parity: what is too long is an error and not cut, and it is judged after the request itself.
    fn lifetime(&self, seconds: i64) -> Result<Duration, SignError> {
        lifetime(self.lifetimes, seconds)
    }
}

/// The lifetime a request gets.
pub fn lifetime(lifetimes: Lifetimes, seconds: i64) -> Result<Duration, SignError> {
    let Some(requested) = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0) else {
        return Ok(lifetimes.default);
    };
    let requested = Duration::from_secs(requested);
    if requested > lifetimes.longest {
        let longest = GoDuration::try_from(lifetimes.longest).unwrap_or(GoDuration::from_nanos(i64::MAX));
        return Err(SignError::Lifetime { requested: GoDuration::from_secs(seconds), longest });
    }
    Ok(requested)
}

/// Issues a certificate for the key of a request; the PEM text.
fn issue(
    bundle: &Bundle,
    request: &Request,
    identities: &[String],
    lifetime: Duration,
    now: UnixTime,
) -> Result<String, SignError> {
    let end = bundle.signer().certificate().not_after();
    if now >= end {
        return Err(IssueError::Expired(end.as_secs()).into());
    }
    let now = Duration::from_secs(now.as_secs());
    let der = bundle.signer().issue(&Leaf {
        public_key: request.public_key(),
        names: identities,
        has_common_name: request.has_common_name(),
        not_before: UnixTime::since_unix_epoch(now.saturating_sub(CLOCK_SKEW)),
        not_after: UnixTime::since_unix_epoch(now.saturating_add(lifetime)),
    })?;
    pem::encode("CERTIFICATE", &der).map_err(|error| IssueError::Encoding(error.to_string()).into())
}

/// A key and a certificate for host names under a bundle, for servers of the control plane itself.
///
/// Parity: the key is of the kind the authority has (RSA 2048, or ECDSA on its curve), and the lifetime has no upper bound.
pub fn server_certificate(
    bundle: &Bundle,
    names: &[String],
    lifetime: Duration,
    now: UnixTime,
) -> Result<ServerCertificate, IssueError> {
    use crate::key::{KeyKind, SigningKey};
    let kind = match bundle.signer().key().kind() {
        KeyKind::P256 | KeyKind::P521 => KeyKind::P256,
        KeyKind::P384 => KeyKind::P384,
        KeyKind::Rsa(_) | KeyKind::Ed25519 => KeyKind::Rsa(2048),
    };
    let key = SigningKey::generate(kind)?;
    let now = Duration::from_secs(now.as_secs());
    let der = bundle.signer().issue(&Leaf {
        public_key: key.public_key(),
        names,
        has_common_name: false,
        not_before: UnixTime::since_unix_epoch(now.saturating_sub(CLOCK_SKEW)),
        not_after: UnixTime::since_unix_epoch(now.saturating_add(lifetime)),
    })?;
    let encoding = |error: pem::PemError| IssueError::Encoding(error.to_string());
    let mut chain = pem::encode("CERTIFICATE", &der).map_err(encoding)?;
    chain.extend(bundle.chain_pem().iter().map(String::as_str));
    Ok(ServerCertificate { chain, key: key.to_pem()?, roots: bundle.roots_pem().to_owned() })
}

/// What a server needs, as PEM.
pub struct ServerCertificate {
    /// PEM of the server certificate and the intermediates.
    pub chain: String,
    /// Private key of the server certificate.
    pub key: zeroize::Zeroizing<String>,
    /// The roots its clients are verified by.
    pub roots: String,
}
