//! What the authority has to know of a certificate.
//!
//! Names and keys are kept as the bytes they came in: an issuer field has to repeat the subject of the signing certificate to
//! the byte, or verifiers do not find it. [`x509_cert`] has the fields; its own certificate type can be built only with a
//! second cryptographic library at hand, so the outer sequence is declared here.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use der::asn1::{AnyRef, BitStringRef};
use der::{Decode as _, Encode as _, Sequence};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, KeyUsage, KeyUsages, SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::name::{Name, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierRef;
use x509_cert::time::Validity;

use crate::pem::{self, PemError};
use crate::signature;

/// A TBSCertificate (RFC 5280, section 4.1) whose names, key and extensions are bytes.
#[derive(Sequence)]
pub(crate) struct ToBeSigned<'a> {
    #[asn1(context_specific = "0", default = "Default::default")]
    pub(crate) version: Version,
    pub(crate) serial_number: SerialNumber,
    pub(crate) signature: AlgorithmIdentifierRef<'a>,
    pub(crate) issuer: AnyRef<'a>,
    pub(crate) validity: Validity,
    pub(crate) subject: AnyRef<'a>,
    pub(crate) public_key: AnyRef<'a>,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) issuer_unique_id: Option<BitStringRef<'a>>,
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT", optional = "true")]
    pub(crate) subject_unique_id: Option<BitStringRef<'a>>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) extensions: Option<Vec<AnyRef<'a>>>,
}

/// What certificates, requests and revocation lists have in common: content, and its signature.
#[derive(Sequence)]
pub(crate) struct Signed<'a> {
    pub(crate) content: AnyRef<'a>,
    pub(crate) algorithm: AlgorithmIdentifierRef<'a>,
    pub(crate) signature: BitStringRef<'a>,
}

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The PEM text is not usable.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The bytes are not a certificate.
    #[error("failed to parse X.509 certificate: {0}")]
    Der(String),
}

impl From<der::Error> for CertificateError {
    fn from(error: der::Error) -> Self {
        Self::Der(error.to_string())
    }
}

/// A certificate and the facts that decisions depend on.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    subject: Box<[u8]>,
    issuer: Box<[u8]>,
    public_key: Box<[u8]>,
    serial: Box<[u8]>,
    not_before: UnixTime,
    not_after: UnixTime,
    is_authority: bool,
    path_length: Option<u8>,
    may_sign: bool,
    may_revoke: bool,
    key_id: Option<Box<[u8]>>,
    authority_key_id: Option<Box<[u8]>>,
    uris: Vec<String>,
    dns_names: Vec<String>,
}

impl Certificate {
    /// Reads DER.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, CertificateError> {
        let signed = Signed::from_der(&der)?;
        let content = signed.content.to_der()?;
        let read = ToBeSigned::from_der(&content)?;
        let extensions = read.extensions.into_iter().flatten().map(AnyRef::decode_as);
        let extensions: Vec<Extension> = extensions.collect::<Result<_, _>>()?;
        let constraints: Option<BasicConstraints> = extension(&extensions)?;
        let usage: Option<KeyUsage> = extension(&extensions)?;
        let key_id: Option<SubjectKeyIdentifier> = extension(&extensions)?;
        let authority: Option<AuthorityKeyIdentifier> = extension(&extensions)?;
        let names: Option<SubjectAltName> = extension(&extensions)?;
        Ok(Self {
            subject: read.subject.to_der()?.into(),
            issuer: read.issuer.to_der()?.into(),
            public_key: read.public_key.to_der()?.into(),
            serial: read.serial_number.as_bytes().into(),
            not_before: UnixTime::since_unix_epoch(read.validity.not_before.to_unix_duration()),
            not_after: UnixTime::since_unix_epoch(read.validity.not_after.to_unix_duration()),
            is_authority: constraints.as_ref().is_some_and(|constraints| constraints.ca),
            path_length: constraints.and_then(|constraints| constraints.path_len_constraint),
            may_sign: usage.as_ref().is_none_or(|usage| usage.0.contains(KeyUsages::KeyCertSign)),
            may_revoke: usage.is_none_or(|usage| usage.0.contains(KeyUsages::CRLSign)),
            key_id: key_id.map(|id| id.0.as_bytes().into()),
            authority_key_id: authority.and_then(|id| id.key_identifier).map(|id| id.as_bytes().into()),
            uris: names.as_ref().map(uris).unwrap_or_default(),
            dns_names: names.as_ref().map(dns_names).unwrap_or_default(),
            der,
        })
    }

    /// Reads every certificate of a PEM text.
    pub fn all_from_pem(text: &[u8]) -> Result<Vec<Self>, CertificateError> {
        pem::certificates(text)?.into_iter().map(Self::from_der).collect()
    }

    /// Reads the first certificate of a PEM text.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        let first = pem::certificates(text)?.into_iter().next();
        Self::from_der(first.ok_or(PemError::Missing("certificate"))?)
    }

    /// The certificate as PEM, ending with a newline.
    pub fn to_pem(&self) -> Result<String, PemError> {
        pem::encode("CERTIFICATE", &self.der)
    }

    /// The bytes.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The subject, as DER.
    pub fn subject(&self) -> &[u8] {
        &self.subject
    }

    /// The subject as RFC 4514 writes it.
    pub fn subject_text(&self) -> String {
        text_of(&self.subject)
    }

    /// The issuer, as DER.
    pub fn issuer(&self) -> &[u8] {
        &self.issuer
    }

    /// The issuer as RFC 4514 writes it.
    pub fn issuer_text(&self) -> String {
        text_of(&self.issuer)
    }

    /// The first organization of the subject.
    pub fn organization(&self) -> Option<String> {
        let name = Name::from_der(&self.subject).ok()?;
        name.iter_rdn().flat_map(RelativeDistinguishedName::iter).find_map(|attribute| {
            let is_organization = attribute.oid == der::oid::db::rfc4519::O;
            let text = std::str::from_utf8(attribute.value.value()).ok()?;
            is_organization.then(|| text.to_owned())
        })
    }

    /// The public key as the DER of a SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// The serial number in hexadecimal.
    pub fn serial(&self) -> String {
        hex(&self.serial)
    }

    /// The bytes of the serial number.
    pub(crate) fn serial_bytes(&self) -> &[u8] {
        &self.serial
    }

    /// When it becomes valid.
    pub fn not_before(&self) -> UnixTime {
        self.not_before
    }

    /// When it expires.
    pub fn not_after(&self) -> UnixTime {
        self.not_after
    }

    /// How long it is valid.
    pub fn lifetime(&self) -> Duration {
        Duration::from_secs(self.not_after.as_secs().saturating_sub(self.not_before.as_secs()))
    }

    /// Whether its time has come and is not over.
    pub fn is_valid_at(&self, now: UnixTime) -> bool {
        self.not_before.as_secs() <= now.as_secs() && now.as_secs() < self.not_after.as_secs()
    }

    /// Whether it may sign certificates.
    pub fn is_authority(&self) -> bool {
        self.is_authority && self.may_sign
    }

    /// Whether it may sign revocation lists.
    pub fn may_revoke(&self) -> bool {
        self.may_revoke
    }

    /// How many authorities may stand between it and a leaf, if that is bounded.
    pub fn path_length(&self) -> Option<u8> {
        self.path_length
    }

    /// Whether it names itself as its issuer.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether an authority's key signed it.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        is_signed_by(&self.der, authority)
    }

    /// The subject key identifier.
    pub fn key_id(&self) -> Option<&[u8]> {
        self.key_id.as_deref()
    }

    /// The key identifier of the certificate that signed it.
    pub fn authority_key_id(&self) -> Option<&[u8]> {
        self.authority_key_id.as_deref()
    }

    /// The DNS names among its alternative names.
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// The URIs among its alternative names.
    pub fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The SHA-256 digest of its bytes in hexadecimal, by which it is known.
    pub fn fingerprint(&self) -> String {
        hex(digest(&SHA256, &self.der).as_ref())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, issuer) = (self.subject_text(), self.issuer_text());
        write!(f, "Certificate({subject:?} by {issuer:?}, until {})", self.not_after.as_secs())
    }
}

/// Whether an authority's key signed a certificate or a revocation list.
pub(crate) fn is_signed_by(der: &[u8], authority: &Certificate) -> bool {
    let verify = || {
        let signed = Signed::from_der(der).ok()?;
        let content = signed.content.to_der().ok()?;
        signature::verify(authority.public_key(), signed.algorithm, &content, signed.signature).ok()
    };
    verify().is_some()
}

/// An extension of its type, if there is one.
fn extension<'a, T>(extensions: &'a [Extension]) -> Result<Option<T>, der::Error>
where
    T: der::Decode<'a, Error = der::Error> + der::oid::AssociatedOid,
{
    let mut found = extensions.iter().filter(|extension| extension.extn_id == T::OID);
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(extension), None) => T::from_der(extension.extn_value.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(der::ErrorKind::Failed.into()),
    }
}

fn uris(names: &SubjectAltName) -> Vec<String> {
    let uri = |name: &GeneralName| match name {
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str().to_owned()),
        _ => None,
    };
    names.0.iter().filter_map(uri).collect()
}

fn dns_names(names: &SubjectAltName) -> Vec<String> {
    let dns = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
        _ => None,
    };
    names.0.iter().filter_map(dns).collect()
}

fn text_of(name: &[u8]) -> String {
    Name::from_der(name).map(|name| name.to_string()).unwrap_or_default()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
