//! Certificate signing requests: the one thing a caller sends that is parsed before its key is signed.
//!
//! A request contributes its public key and the mere presence of a common name, nothing else. Its own signature has to
//! verify, which proves that the caller has the private key.

use der::oid::db::{rfc4519, rfc5912};
use der::{Decode as _, Encode as _};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::RelativeDistinguishedName;
use x509_cert::request::{CertReqInfo, ExtensionReq};

use crate::certificate::Signed;
use crate::pem;
use crate::signature::{self, SignatureError};

/// Requests beyond this size are refused before they are parsed: one with an RSA key of 8192 bits has 3 KiB.
pub const LARGEST: usize = 64 << 10;

/// Why a request is refused. Parity: the texts are those that istiod's callers know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The text is not PEM.
    #[error("certificate signing request is not properly encoded")]
    Encoding,
    /// The PEM does not hold a request.
    #[error("failed to parse X.509 certificate signing request")]
    Syntax,
    /// The request is too large to be looked at.
    #[error("certificate signing request has {0} bytes, more than the allowed {LARGEST}")]
    TooLarge(usize),
    /// The request is not signed with its own key, or with one that is not acceptable.
    #[error(transparent)]
    Signature(SignatureError),
}

impl From<der::Error> for RequestError {
    fn from(_: der::Error) -> Self {
        Self::Syntax
    }
}

impl From<SignatureError> for RequestError {
    fn from(error: SignatureError) -> Self {
        match error {
            SignatureError::Syntax => Self::Syntax,
            error => Self::Signature(error),
        }
    }
}

/// A request whose signature verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    public_key: Box<[u8]>,
    info: CertReqInfo,
}

impl Request {
    /// Reads a PEM text and verifies it. What follows the first section is ignored.
    pub fn from_pem(text: &str) -> Result<Self, RequestError> {
        if text.len() > LARGEST {
            return Err(RequestError::TooLarge(text.len()));
        }
        // Parity: a section of another kind is a request that does not parse.
        let (_, der) = pem::first(text.as_bytes()).ok_or(RequestError::Encoding)?;
        Self::from_der(&der)
    }

    /// Reads DER and verifies it.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        let signed = Signed::from_der(der)?;
        let message = signed.content.to_der()?;
        let info = CertReqInfo::from_der(&message)?;
        let public_key = info.public_key.to_der()?;
        signature::verify(&public_key, signed.algorithm, &message, signed.signature)?;
        Ok(Self { public_key: public_key.into(), info })
    }

    /// The public key as the DER of a SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// Whether the subject has a common name, which asks for one in the certificate.
    pub fn has_common_name(&self) -> bool {
        let is_common =
            |name: &AttributeTypeAndValue| name.oid == rfc4519::CN && !name.value.value().is_empty();
        self.info.subject.iter_rdn().flat_map(RelativeDistinguishedName::iter).any(is_common)
    }

    /// Whether a registration authority may hand the request on as it is for a caller with these identities. The signer
    /// copies names from the request, so it must not ask for more than they are.
    ///
    /// Parity: one URI at most, no extension but alternative names, no subject but an empty organization.
    pub fn asks_only_for(&self, identities: &[String]) -> bool {
        let Some(extensions) = self.requested_extensions() else { return false };
        let names: Option<Vec<GeneralName>> =
            extensions.iter().try_fold(Vec::new(), |mut names, extension| {
                let is_names = extension.extn_id == rfc5912::ID_CE_SUBJECT_ALT_NAME;
                let read =
                    SubjectAltName::from_der(extension.extn_value.as_bytes()).ok().filter(|_| is_names)?;
                names.extend(read.0);
                Some(names)
            });
        let is_own = |name: &GeneralName| match name {
            GeneralName::UniformResourceIdentifier(uri) => identities.iter().any(|own| own == uri.as_str()),
            _ => false,
        };
        names.is_some_and(|names| names.len() == 1 && names.iter().all(is_own)) && self.has_bare_subject()
    }

    /// The extensions it asks for; `None` if they cannot be read.
    fn requested_extensions(&self) -> Option<Vec<Extension>> {
        let mut extensions = Vec::new();
        for attribute in self.info.attributes.iter().filter(|one| one.oid == rfc5912::ID_EXTENSION_REQ) {
            for value in attribute.values.iter() {
                let der = value.to_der().ok()?;
                extensions.extend(ExtensionReq::from_der(&der).ok()?.0);
            }
        }
        Some(extensions)
    }

    fn has_bare_subject(&self) -> bool {
        let mut names = self.info.subject.iter_rdn().flat_map(RelativeDistinguishedName::iter);
        names.all(|name| name.oid == rfc4519::O && name.value.value().is_empty())
    }
}
