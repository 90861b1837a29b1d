//! Writing and signing certificates.
//!
//! A leaf has the fields and the order of extensions that istiod's leaves have, to the byte where verifiers or scripts could
//! tell: no subject, critical alternative names, `digitalSignature` and `keyEncipherment` whatever the key, both TLS roles.

use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use canopus_base::spiffe;
use der::asn1::{
    Any, AnyRef, BitStringRef, Ia5String, OctetString, PrintableStringRef, SetOfVec, Utf8StringRef,
};
use der::flagset::FlagSet;
use der::oid::db::{rfc4519, rfc5280};
use der::oid::{AssociatedOid, ObjectIdentifier};
use der::{DateTime, Decode as _, Encode};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::SubjectPublicKeyInfoRef;
use x509_cert::time::{Time, Validity};

use crate::certificate::{Certificate, CertificateError, Signed, ToBeSigned};
use crate::key::{KeyError, SigningKey};

/// The longest common name (RFC 5280, `ub-common-name`).
const LONGEST_COMMON_NAME: usize = 64;

/// The longest alternative name: SPIFFE allows 2048 bytes in a URI.
const LONGEST_NAME: usize = 2048;

/// Bytes of a key identifier (RFC 7093, method 1).
const KEY_ID: usize = 20;

/// Why a certificate cannot be issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The signing certificate may not sign.
    #[error("certificate is not authorized to sign other certificates")]
    NotAuthority,
    /// The signing certificate belongs to another key.
    #[error("the cert does not match the key")]
    OtherKey,
    /// The signing certificate has expired.
    #[error("signing certificate has expired at {0} (seconds since 1970)")]
    Expired(u64),
    /// A name has no place in a certificate.
    #[error("SAN extension building failure ({name:?}: {reason})")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The certificate cannot be encoded.
    #[error("cert generation fails at X509 cert creation ({0})")]
    Encoding(String),
    /// The key cannot sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// What was written cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl From<der::Error> for IssueError {
    fn from(error: der::Error) -> Self {
        Self::Encoding(error.to_string())
    }
}

/// What a leaf certificate says.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// The holder's public key, the DER of a SubjectPublicKeyInfo.
    pub public_key: &'a [u8],
    /// The alternative names: addresses, SPIFFE URIs, and DNS names otherwise.
    pub names: &'a [String],
    /// Whether the first name is the common name as well, where it fits.
    pub has_common_name: bool,
    /// When it becomes valid.
    pub not_before: UnixTime,
    /// When it expires.
    pub not_after: UnixTime,
}

/// A certificate and its key, which sign others.
#[derive(Debug)]
pub struct Signer {
    certificate: Certificate,
    key: SigningKey,
    /// Extensions that all leaves of this signer have before their names, as DER.
    of_every_leaf: Vec<Vec<u8>>,
}

impl Signer {
    /// Checks that the certificate may sign and belongs to the key.
    pub fn new(certificate: Certificate, key: SigningKey) -> Result<Self, IssueError> {
        if !certificate.is_authority() {
            return Err(IssueError::NotAuthority);
        }
        if !is_same_key(certificate.public_key(), key.public_key())? {
            return Err(IssueError::OtherKey);
        }
        let mut of_every_leaf = vec![
            extension(true, &KeyUsage(KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment))?,
            extension(
                false,
                &ExtendedKeyUsage(vec![rfc5280::ID_KP_SERVER_AUTH, rfc5280::ID_KP_CLIENT_AUTH]),
            )?,
            extension(true, &BasicConstraints { ca: false, path_len_constraint: None })?,
        ];
        if let Some(id) = certificate.key_id() {
            let key_identifier = Some(OctetString::new(id)?);
            let id = AuthorityKeyIdentifier {
                key_identifier,
                authority_cert_issuer: None,
                authority_cert_serial_number: None,
            };
            of_every_leaf.push(extension(false, &id)?);
        }
        Ok(Self { certificate, key, of_every_leaf })
    }

    /// The signing certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The key that certificates are signed with.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Issues a leaf certificate. It never outlives the signer.
    pub fn issue(&self, leaf: &Leaf<'_>) -> Result<CertificateDer<'static>, IssueError> {
        let names = alternative_names(leaf.names)?;
        let subject = match leaf.names.first() {
            Some(name) if leaf.has_common_name && name.len() <= LONGEST_COMMON_NAME => {
                named(rfc4519::CN, name)?
            }
            _ => RdnSequence::default().to_der()?,
        };
        let names = if names.0.is_empty() { None } else { Some(extension(true, &names)?) };
        let not_after = leaf.not_after.min(self.certificate.not_after());
        let fields = Fields {
            issuer: self.certificate.subject(),
            subject: &subject,
            public_key: leaf.public_key,
            validity: validity(leaf.not_before, not_after)?,
            extensions: self.of_every_leaf.iter().chain(&names).map(Vec::as_slice).collect(),
        };
        fields.sign(&self.key)
    }
}

/// Signs a root certificate with its own key.
///
/// Parity: an organization and nothing else as its subject, `keyCertSign` as its one usage, no path length.
pub fn self_sign(
    organization: &str,
    key: &SigningKey,
    not_before: UnixTime,
    lifetime: Duration,
) -> Result<Certificate, IssueError> {
    let subject = named(rfc4519::O, organization)?;
    let not_after = Duration::from_secs(not_before.as_secs()).saturating_add(lifetime);
    let id = SubjectKeyIdentifier(OctetString::new(key_id(key.public_key())?)?);
    let extensions = [
        extension(true, &KeyUsage(FlagSet::from(KeyUsages::KeyCertSign)))?,
        extension(true, &BasicConstraints { ca: true, path_len_constraint: None })?,
        extension(false, &id)?,
    ];
    let fields = Fields {
        issuer: &subject,
        subject: &subject,
        public_key: key.public_key(),
        validity: validity(not_before, UnixTime::since_unix_epoch(not_after))?,
        extensions: extensions.iter().map(Vec::as_slice).collect(),
    };
    Ok(Certificate::from_der(fields.sign(key)?)?)
}

/// What differs between certificates.
struct Fields<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    public_key: &'a [u8],
    validity: Validity,
    /// As DER.
    extensions: Vec<&'a [u8]>,
}

impl Fields<'_> {
    fn sign(self, key: &SigningKey) -> Result<CertificateDer<'static>, IssueError> {
        let algorithm = key.signature_algorithm();
        let content = ToBeSigned {
            version: Version::V3,
            serial_number: serial_number()?,
            signature: algorithm,
            issuer: AnyRef::from_der(self.issuer)?,
            validity: self.validity,
            subject: AnyRef::from_der(self.subject)?,
            public_key: AnyRef::from_der(self.public_key)?,
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(self.extensions.into_iter().map(AnyRef::from_der).collect::<Result<_, _>>()?),
        };
        let content = content.to_der()?;
        let signature = key.sign(&content)?;
        let signed = Signed {
            content: AnyRef::from_der(&content)?,
            algorithm,
            signature: BitStringRef::from_bytes(&signature)?,
        };
        Ok(signed.to_der()?.into())
    }
}

/// The DER of an extension.
fn extension<T: Encode + AssociatedOid>(critical: bool, value: &T) -> Result<Vec<u8>, IssueError> {
    let extension = Extension { extn_id: T::OID, critical, extn_value: OctetString::new(value.to_der()?)? };
    Ok(extension.to_der()?)
}

/// The names a certificate is valid for, each checked: what is signed here is believed by everybody.
fn alternative_names(names: &[String]) -> Result<SubjectAltName, IssueError> {
    names.iter().map(|name| alternative_name(name)).collect::<Result<_, _>>().map(SubjectAltName)
}

fn alternative_name(name: &str) -> Result<GeneralName, IssueError> {
    let refused = |reason| IssueError::Name { name: name.escape_debug().to_string(), reason };
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(refused("it is empty or longer than 2048 bytes"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) || name.contains(',') {
        return Err(refused("only printable ASCII without spaces and commas can be certified"));
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        let bytes = match address.to_canonical() {
            IpAddr::V4(address) => OctetString::new(address.octets())?,
            IpAddr::V6(address) => OctetString::new(address.octets())?,
        };
        return Ok(GeneralName::IpAddress(bytes));
    }
    let text = Ia5String::new(name)?;
    Ok(match name.starts_with(spiffe::SCHEME) {
        true => GeneralName::UniformResourceIdentifier(text),
        false => GeneralName::DnsName(text),
    })
}

/// A name of one attribute. Parity: as a PrintableString where its letters allow, else in UTF-8.
fn named(attribute: ObjectIdentifier, text: &str) -> Result<Vec<u8>, IssueError> {
    let value = match PrintableStringRef::new(text) {
        Ok(printable) => Any::encode_from(&printable)?,
        Err(_) => Any::encode_from(&Utf8StringRef::new(text)?)?,
    };
    let mut attributes = SetOfVec::new();
    attributes.insert(AttributeTypeAndValue { oid: attribute, value })?;
    Ok(RdnSequence::from(vec![RelativeDistinguishedName::from(attributes)]).to_der()?)
}

fn validity(not_before: UnixTime, not_after: UnixTime) -> Result<Validity, IssueError> {
    let time = |at: UnixTime| {
        let at = DateTime::from_unix_duration(Duration::from_secs(at.as_secs()))?;
        Ok::<_, IssueError>(Time::from(at))
    };
    Ok(Validity::new(time(not_before)?, time(not_after)?))
}

/// Parity: 128 random bits.
fn serial_number() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError::Library("make a random number"))?;
    // Zero is no serial number, and nobody would live to see it.
    bytes[15] |= u8::from(bytes == [0; 16]);
    Ok(SerialNumber::new(&bytes)?)
}

/// The identifier of a public key: the head of the digest of its bits.
fn key_id(public_key: &[u8]) -> Result<Vec<u8>, IssueError> {
    let info = SubjectPublicKeyInfoRef::from_der(public_key)?;
    Ok(digest(&SHA256, info.subject_public_key.raw_bytes()).as_ref()[..KEY_ID].to_vec())
}

/// Whether two SubjectPublicKeyInfos hold the same key; parameters of algorithms may be written in several ways.
fn is_same_key(one: &[u8], other: &[u8]) -> Result<bool, IssueError> {
    let (one, other) = (SubjectPublicKeyInfoRef::from_der(one)?, SubjectPublicKeyInfoRef::from_der(other)?);
    let same = one.subject_public_key == other.subject_public_key;
    Ok(same && one.algorithm.oid == other.algorithm.oid)
}
