//! What becomes of certificate requests, and when certificates of the authority expire.

use std::sync::Arc;

use canopus_identity::Certificate;
use canopus_identity::authority::{Authority, SignErrorKind};
use canopus_identity::service::Observer;
use canopus_runtime::metrics::catalogue::{
    CITADEL_SERVER_AUTHENTICATION_FAILURE_COUNT, CITADEL_SERVER_CERT_CHAIN_EXPIRY_SECONDS,
    CITADEL_SERVER_CERT_CHAIN_EXPIRY_TIMESTAMP, CITADEL_SERVER_CSR_COUNT, CITADEL_SERVER_CSR_SIGN_ERR_COUNT,
    CITADEL_SERVER_ROOT_CERT_EXPIRY_SECONDS, CITADEL_SERVER_ROOT_CERT_EXPIRY_TIMESTAMP,
    CITADEL_SERVER_SUCCESS_CERT_ISSUANCE_COUNT,
};
use canopus_runtime::metrics::{Counter, Family, Registry};
use rustls::pki_types::UnixTime;

/// Counts certificate requests.
pub struct IssuingMetrics {
    received: Family<Counter, 0>,
    unauthenticated: Family<Counter, 0>,
    failed: Family<Counter, 1>,
    issued: Family<Counter, 0>,
}

impl IssuingMetrics {
    /// Counts in this registry, and has it tell when the certificates of an authority expire.
    pub fn new(registry: &Registry, authority: &Arc<Authority>) -> Self {
        let authority = Arc::clone(authority);
        registry.collect(move |collected| {
            let Some(bundle) = authority.bundle() else { return };
            let left = |end: f64| end - UnixTime::now().as_secs() as f64;
            let end = |certificate: &Certificate| certificate.not_after().as_secs() as f64;
            if let Some(end) = bundle.roots().first().map(end) {
                collected.push(CITADEL_SERVER_ROOT_CERT_EXPIRY_TIMESTAMP, [], end);
                collected.push(CITADEL_SERVER_ROOT_CERT_EXPIRY_SECONDS, [], left(end));
            }
            if let Some(end) = bundle.chain().first().map(end) {
                collected.push(CITADEL_SERVER_CERT_CHAIN_EXPIRY_TIMESTAMP, [], end);
                collected.push(CITADEL_SERVER_CERT_CHAIN_EXPIRY_SECONDS, [], left(end));
            }
        });
        Self {
            received: registry.family(CITADEL_SERVER_CSR_COUNT),
            unauthenticated: registry.family(CITADEL_SERVER_AUTHENTICATION_FAILURE_COUNT),
            failed: registry.family(CITADEL_SERVER_CSR_SIGN_ERR_COUNT),
            issued: registry.family(CITADEL_SERVER_SUCCESS_CERT_ISSUANCE_COUNT),
        }
    }
}

impl Observer for IssuingMetrics {
    fn received(&self) {
        self.received.with([]).inc();
    }

    fn unauthenticated(&self) {
        self.unauthenticated.with([]).inc();
    }

    fn failed(&self, kind: SignErrorKind) {
        self.failed.with([kind.label()]).inc();
    }

    fn issued(&self) {
        self.issued.with([]).inc();
    }
}
