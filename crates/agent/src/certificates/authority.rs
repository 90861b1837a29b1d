//! Asking a certificate authority with Istio's `CreateCertificate`.

use std::sync::Arc;
use std::time::Duration;

use canopus_identity::csr;
use canopus_identity::key::{KeyError, KeyKind, SigningKey};
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use rcgen::{CertificateParams, DistinguishedName, SanType};
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use zeroize::Zeroizing;

use crate::upstream::{self, ConnectError, Connector, Upstream};

/// Parity: how long pilot-agent waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A chain may not have more certificates.
const MAX_CHAIN: usize = 32;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The key cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificate request cannot be made.
    #[error(
        "the certificate request cannot be made for {identity:?}: {error}; check TRUST_DOMAIN, POD_NAMESPACE and SERVICE_ACCOUNT"
    )]
    Request {
        /// The identity.
        identity: String,
        /// Why.
        error: rcgen::Error,
    },
    /// The authority cannot be connected to.
    #[error("certificate authority: {0}")]
    Connect(#[from] ConnectError),
    /// The connection has no usable HTTP/2 channel.
    #[error("certificate authority {address}: {reason}")]
    Transport {
        /// Where.
        address: String,
        /// Why.
        reason: String,
    },
    /// Refused.
    #[error("certificate authority {address} refuses: {code:?}: {message}{hint}")]
    Refused {
        /// Where.
        address: String,
        /// The gRPC code.
        code: tonic::Code,
        /// What it says.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// An answer without use.
    #[error("the certificate authority's answer has no usable certificate: {0}")]
    Answer(String),
}

/// Sends certificate requests to an authority.
pub trait Issuer {
    /// The chain for a request, the leaf first and the root last.
    fn sign(
        &self,
        request: &str,
        lifetime: Duration,
    ) -> impl Future<Output = Result<Vec<String>, AuthorityError>> + Send;
}

/// Asks one authority.
#[derive(Clone, Debug)]
pub struct AuthorityClient {
    upstream: Arc<Upstream>,
    cluster: String,
    signer: String,
    headers: Vec<(String, String)>,
}

impl AuthorityClient {
    /// Asks `upstream` on behalf of a workload of `cluster`, with these headers (`CA_HEADER_*`).
    pub fn new(upstream: Upstream, cluster: String, signer: String, headers: Vec<(String, String)>) -> Self {
        Self { upstream: Arc::new(upstream), cluster, signer, headers }
    }

    fn request_metadata(&self) -> Struct {
        let signer = Value { kind: Some(Kind::StringValue(self.signer.clone())) };
        Struct { fields: [("CertSigner".to_owned(), signer)].into() }
    }

    fn headers(&self) -> Result<MetadataMap, AuthorityError> {
        let mut headers = MetadataMap::new();
        let token =
            self.upstream.token()?.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        let cluster = Some(("clusterid".to_owned(), self.cluster.clone()));
        for (name, text) in self.headers.iter().cloned().chain(cluster).chain(token) {
            let key = MetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes());
            let value = MetadataValue::try_from(text.as_str());
            if let (Ok(key), Ok(value)) = (key, value) {
                headers.insert(key, value);
            }
        }
        Ok(headers)
    }
}

impl Issuer for AuthorityClient {
    /// Every call has a connection of its own: they are half a day apart, and token and roots may be new.
    async fn sign(&self, request: &str, lifetime: Duration) -> Result<Vec<String>, AuthorityError> {
        let host = &self.upstream.address;
        let address = format!("{}:{}", host.host, host.port);
        let transport = |error: tonic::transport::Error| AuthorityError::Transport {
            address: address.clone(),
            reason: root_cause(&error),
        };
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).map_err(transport)?.timeout(TIMEOUT);
        let channel = endpoint.connect_with_connector(Connector(Arc::clone(&self.upstream))).await;
        let mut client = IstioCertificateServiceClient::new(channel.map_err(transport)?);
        let message = IstioCertificateRequest {
            csr: request.to_owned(),
            validity_duration: i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX),
            metadata: Some(self.request_metadata()),
        };
        let request = Request::from_parts(self.headers()?, Default::default(), message);
        let answer = client.create_certificate(request).await;
        let chain = answer.map_err(|status| refused(address.clone(), &status))?.into_inner().cert_chain;
        if chain.len() < 2 || chain.len() > MAX_CHAIN {
            let count = chain.len();
            return Err(AuthorityError::Answer(format!(
                "{count} certificates; expected the leaf and its root"
            )));
        }
        Ok(chain)
    }
}

/// What is at the bottom of an error: what is above it says no more than that there is one.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

fn refused(address: String, status: &Status) -> AuthorityError {
    let (code, message) = (status.code(), status.message().to_owned());
    AuthorityError::Refused { address, code, message, hint: upstream::hint(code) }
}

/// A new key, in the form Envoy reads, and a request for a certificate of it.
pub(super) fn key_and_request(
    kind: KeyKind,
    pkcs8: bool,
    identity: &str,
) -> Result<(Zeroizing<String>, String), AuthorityError> {
    let failed = |error| AuthorityError::Request { identity: identity.to_owned(), error };
    let key = SigningKey::generate(kind)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(identity.try_into().map_err(failed)?)];
    let request = csr::write(&params, &key).map_err(failed)?;
    let pem = if pkcs8 { key.to_pkcs8_pem()? } else { key.to_pem()? };
    Ok((pem, request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_has_the_form_that_was_asked_for() {
        for (kind, pkcs8, label) in [
            (KeyKind::Rsa(2048), false, "BEGIN RSA PRIVATE KEY"),
            (KeyKind::P256, false, "BEGIN EC PRIVATE KEY"),
            (KeyKind::P256, true, "BEGIN PRIVATE KEY"),
        ] {
            let (key, request) = key_and_request(kind, pkcs8, "spiffe://td/ns/shop/sa/cart").unwrap();
            assert!(key.contains(label), "{label}");
            assert!(request.contains("CERTIFICATE REQUEST"));
        }
    }

    #[test]
    fn error_names_the_identity_when_it_cannot_be_asked_for() {
        let error = key_and_request(KeyKind::P256, false, "spiffe://td/é").unwrap_err().to_string();
        assert!(error.contains("spiffe://td/é") && error.contains("SERVICE_ACCOUNT"), "{error}");
    }
}
