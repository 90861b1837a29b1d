//! `istio.v1.auth.IstioCertificateService/CreateCertificate`, without the wire.
//!
//! [`CertificateService::admit`] decides who the certificate is for, which is quick and may look at facts of the mesh;
//! signing itself ([`Authority::sign`]) is slow and is done wherever the server has threads for it;
//! [`CertificateService::answer`] says what became of it. Codes, texts and counts are istiod's.

use std::sync::Arc;

use canopus_base::spiffe::Identity;
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use rustls_pki_types::UnixTime;
use tracing::{debug, warn};

use crate::authority::{Authority, Order, SignError, SignErrorKind};

/// The key of the request's metadata that names another identity to be certified.
const IMPERSONATED: &str = "ImpersonatedIdentity";

/// The key of the request's metadata that names a signer.
const SIGNER: &str = "CertSigner";

/// Codes of gRPC that the service answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request is at fault.
    InvalidArgument,
    /// The authority is at fault.
    Internal,
    /// The caller has not proved that it may have the certificate.
    Unauthenticated,
}

/// Why a caller gets no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// What the caller is told.
    pub message: String,
}

impl Refusal {
    /// Parity: whoever proves nothing is not told why.
    fn unauthenticated(message: &str) -> Self {
        Self { code: Code::Unauthenticated, message: message.to_owned() }
    }
}

impl From<SignError> for Refusal {
    fn from(error: SignError) -> Self {
        let code = match error.kind() {
            SignErrorKind::Request | SignErrorKind::Lifetime => Code::InvalidArgument,
            SignErrorKind::NotReady | SignErrorKind::Generation => Code::Internal,
        };
        Self { code, message: format!("CSR signing error ({error})") }
    }
}

/// The pod that a caller's token was issued to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod; empty if the token is not bound to one.
    pub name: String,
    /// UID of the pod, which tells it from a later one of the same name.
    pub uid: String,
    /// Service account that the pod runs as.
    pub service_account: String,
}

/// The authenticated client that asks for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The identities it has proved; none if it has proved nothing.
    pub identities: Vec<String>,
    /// What its token says of where it runs.
    pub pod: Option<Pod>,
    /// The cluster it says it is in.
    pub cluster: Option<String>,
}

/// Decides whether a node's proxy may have certificates of the workloads on its node.
pub trait NodeAuthorizer: Send + Sync {
    /// Whether the caller may have a certificate for this identity; the reason if not, for the log.
    fn authorize(&self, caller: &Caller, requested: &Identity) -> Result<(), String>;
}

/// Counts what becomes of requests.
pub trait Observer: Send + Sync {
    /// A request came (`citadel_server_csr_count`).
    fn received(&self) {}
    /// A signing request was refused because its caller is not authenticated (`citadel_server_authentication_failure_count`).
    fn unauthenticated(&self) {}
    /// The certificate could not be signed (`citadel_server_csr_sign_err_count`).
    fn failed(&self, _kind: SignErrorKind) {}
    /// A certificate was issued (`citadel_server_success_cert_issuance_count`).
    fn issued(&self) {}
}

/// Counts nothing.
impl Observer for () {}

/// The certificate service.
#[derive(Clone)]
pub struct CertificateService {
    nodes: Option<Arc<dyn NodeAuthorizer>>,
    observer: Arc<dyn Observer>,
}

impl CertificateService {
    /// A service in which nobody gets certificates of others.
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self { nodes: None, observer }
    }

    /// The same, with nodes that may ask for their workloads (`CA_TRUSTED_NODE_ACCOUNTS`).
    #[must_use]
    pub fn with_nodes(self, nodes: Arc<dyn NodeAuthorizer>) -> Self {
        Self { nodes: Some(nodes), ..self }
    }

    /// Answers a request on the spot.
    pub fn create_certificate(
        &self,
        caller: &Caller,
        request: &IstioCertificateRequest,
        authority: &Authority,
        now: UnixTime,
    ) -> Result<Vec<String>, Refusal> {
        let order = self.admit(caller, request)?;
        self.answer(authority.sign(&order, now))
    }

    /// Decides who the certificate is for.
    pub fn admit(&self, caller: &Caller, request: &IstioCertificateRequest) -> Result<Order, Refusal> {
        self.observer.received();
        if caller.identities.is_empty() {
            self.observer.unauthenticated();
            return Err(Refusal::unauthenticated("request authenticate failure"));
        }
        let mut identities = caller.identities.clone();
        if let Some(requested) = text(request, IMPERSONATED) {
            if let Err(reason) = self.check_node(caller, requested) {
                self.observer.unauthenticated();
                warn!(?caller, requested = %requested.escape_debug(), reason, "impersonation is refused");
                return Err(Refusal::unauthenticated("request impersonation authentication failure"));
            }
            identities = vec![requested.to_owned()];
        }
        debug!(?identities, seconds = request.validity_duration, "a certificate is requested");
        Ok(Order {
            request: request.csr.clone(),
            identities,
            seconds: request.validity_duration,
            signer: text(request, SIGNER).unwrap_or_default().to_owned(),
        })
    }

    /// Says what became of an order.
    pub fn answer(&self, signed: Result<Vec<String>, SignError>) -> Result<Vec<String>, Refusal> {
        match signed {
            Ok(chain) => {
                self.observer.issued();
                Ok(chain)
            }
            Err(error) => {
                self.observer.failed(error.kind());
                warn!(%error, "a certificate request could not be signed");
                Err(error.into())
            }
        }
    }

    fn check_node(&self, caller: &Caller, requested: &str) -> Result<(), String> {
        let Some(nodes) = &self.nodes else {
            return Err("CA_TRUSTED_NODE_ACCOUNTS names no account".to_owned());
        };
        let identity: Identity =
            requested.parse().map_err(|_| "what is requested is no identity of a workload".to_owned())?;
        // istiod certifies identities of any trust domain here. A node vouches for its workloads, and those are of its own.
        let is_own =
            |own: &String| own.parse::<Identity>().is_ok_and(|own| own.trust_domain == identity.trust_domain);
        if !caller.identities.iter().any(is_own) {
            return Err(format!("trust domain {} is not the caller's", identity.trust_domain));
        }
        nodes.authorize(caller, &identity)
    }
}

/// A text of the request's metadata. Parity: what is no text, or empty, is not there.
fn text<'a>(request: &'a IstioCertificateRequest, key: &str) -> Option<&'a str> {
    match request.metadata.as_ref()?.fields.get(key)?.kind.as_ref()? {
        Kind::StringValue(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}
