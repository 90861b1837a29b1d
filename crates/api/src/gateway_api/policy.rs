//! Policies about backends, and backends that no registry knows.

use canopus_base::labels::Labels;

use crate::decode::complete;
use crate::gateway_api::reference::{LocalObjectReference, PolicyTargetReference, SecretReference};
use crate::gateway_api::route::SessionPersistence;
use crate::gateway_api::status::{PolicyStatus, RouteStatus};
use crate::macros::object;
use crate::resource::Resource;

/// How a gateway speaks TLS to a backend.
pub type BackendTlsPolicy = Resource<BackendTlsPolicySpec, PolicyStatus>;
/// How traffic to a backend is retried and kept together.
pub type BackendTrafficPolicy = Resource<BackendTrafficPolicySpec, PolicyStatus>;
/// A backend that no registry knows.
pub type ExternalBackend = Resource<BackendSpec, RouteStatus>;

object! {
    /// How a gateway speaks TLS to a backend.
    BackendTlsPolicySpec {
        /// The backends.
        target_refs: Vec<PolicyTargetReference>,
        /// How their certificates are checked.
        validation: BackendTlsValidation,
        /// What implementations understand beyond.
        options: Labels,
    }

    /// How a backend's certificate is checked.
    BackendTlsValidation {
        /// The roots.
        ca_certificate_refs: Vec<LocalObjectReference>,
        /// Roots by name: `System`.
        #[serde(rename = "wellKnownCACertificates")]
        well_known_ca_certificates: Option<Box<str>>,
        /// The host that is asked for, and that the certificate must have unless names are given.
        hostname: Box<str>,
        /// Names of which the certificate must have one.
        subject_alt_names: Vec<SubjectAltName>,
    }

    /// A name of a certificate; the field of its type is set.
    SubjectAltName {
        /// `Hostname` or `URI`.
        r#type: Box<str>,
        /// A host.
        hostname: Option<Box<str>>,
        /// A URI.
        uri: Option<Box<str>>,
    }

    /// How traffic to a backend is retried and kept together.
    BackendTrafficPolicySpec {
        /// The backends.
        target_refs: Vec<LocalObjectReference>,
        /// When retries are too many.
        retry_constraint: Option<RetryConstraint>,
        /// How a client stays with one endpoint.
        session_persistence: Option<SessionPersistence>,
    }

    /// When retries are too many.
    RetryConstraint {
        /// Which share of all requests may be retries.
        budget: RetryBudget = RetryBudget::default(),
        /// How many retries are always allowed.
        min_retry_rate: RequestRate = RequestRate { count: Some(10), interval: Some("1s".into()) },
    }

    /// A share of requests over some time.
    RetryBudget {
        /// Share of active requests that may be retries, in percent.
        percent: i32 = 20,
        /// over this time.
        interval: Box<str> = "10s".into(),
    }

    /// A number of requests over some time.
    RequestRate {
        /// Number of requests per interval.
        count: Option<i32>,
        /// over this time.
        interval: Option<Box<str>>,
    }

    /// A backend that no registry knows.
    BackendSpec {
        /// What it is: `ExternalHostname`.
        r#type: Box<str>,
        /// The host.
        external_hostname: Option<ExternalHostname>,
        /// The port.
        port: BackendPort,
        /// What it speaks: `TCP`, `HTTP`, `HTTP2`, `HTTP11`, `H2C`, `MCP`.
        protocol: Option<Box<str>>,
        /// How TLS is spoken to it.
        tls: Option<BackendTls>,
    }

    /// A host outside.
    ExternalHostname {
        /// DNS name of the backend.
        hostname: Box<str>,
    }

    /// A port of a backend.
    BackendPort {
        /// Name of the port.
        name: Option<Box<str>>,
        /// Number of the port.
        port: u16,
    }

    /// How TLS is spoken to a backend.
    BackendTls {
        /// Which sides show certificates: `None`, `ServerOnly`, `ClientAndServer`.
        mode: Box<str>,
        /// The certificate that the backend is shown.
        client_certificate_ref: Option<SecretReference>,
        /// How the backend's is checked.
        validation: Option<BackendTlsValidation>,
    }
}

complete!(BackendTlsPolicySpec, BackendTrafficPolicySpec, BackendSpec);
