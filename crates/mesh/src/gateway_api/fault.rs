//! Faults: why an object or part of it cannot be used.

/// Why an object or part of it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason of the status condition.
    pub reason: &'static str,
    /// The message of the status condition.
    pub message: String,
}

impl Fault {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Joins two faults: the first reason and both messages.
    pub(super) fn join(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(mut first), Some(second)) => {
                first.message.push_str("; ");
                first.message.push_str(&second.message);
                Some(first)
            }
            (first, second) => first.or(second),
        }
    }
}

/// The reasons of conditions, as the Gateway API and Istio name them.
pub(super) mod reason {
    pub(in super::super) const INVALID_DESTINATION: &str = "InvalidDestination";
    pub(in super::super) const UNSUPPORTED_ADDRESS: &str = "UnsupportedAddress";
    pub(in super::super) const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    pub(in super::super) const INVALID_KIND: &str = "InvalidKind";
    pub(in super::super) const BACKEND_NOT_FOUND: &str = "BackendNotFound";
    pub(in super::super) const INVALID_FILTER: &str = "InvalidFilter";
    pub(in super::super) const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
    pub(in super::super) const INVALID_CERTIFICATE_REF: &str = "InvalidCertificateRef";
    pub(in super::super) const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
    pub(in super::super) const INVALID_CA_CERTIFICATE_KIND: &str = "InvalidCACertificateKind";
    pub(in super::super) const NO_VALID_CA_CERTIFICATE: &str = "NoValidCACertificate";
    pub(in super::super) const DEPRECATED_FIELD: &str = "DeprecatedField";
    pub(in super::super) const NO_MATCHING_PARENT: &str = "NoMatchingParent";
    pub(in super::super) const NOT_ALLOWED_BY_LISTENERS: &str = "NotAllowedByListeners";
    pub(in super::super) const NO_MATCHING_LISTENER_HOSTNAME: &str = "NoMatchingListenerHostname";
    pub(in super::super) const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
    pub(in super::super) const INVALID: &str = "Invalid";
    pub(in super::super) const HOSTNAME_CONFLICT: &str = "HostnameConflict";
    pub(in super::super) const PROTOCOL_CONFLICT: &str = "ProtocolConflict";
    pub(in super::super) const CONFLICTED: &str = "Conflicted";
    pub(in super::super) const TARGET_NOT_FOUND: &str = "TargetNotFound";
    pub(in super::super) const LISTENERS_NOT_VALID: &str = "ListenersNotValid";
    pub(in super::super) const NOT_ALLOWED: &str = "NotAllowed";
    pub(in super::super) const ADDRESS_NOT_ASSIGNED: &str = "AddressNotAssigned";
    pub(in super::super) const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";
    pub(in super::super) const INVALID_PARAMETERS: &str = "InvalidParameters";
    pub(in super::super) const INVALID_CLIENT_CERTIFICATE_REF: &str = "InvalidClientCertificateRef";
    pub(in super::super) const IGNORED: &str = "IgnoredByIstio";
}
