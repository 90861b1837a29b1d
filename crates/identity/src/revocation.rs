//! Revocation lists: certificates of an authority that count no longer though their time is not over.
//!
//! Whoever plugs in an authority may plug in lists as well. They are handed out to proxies, which verify by them, and the
//! control plane itself refuses clients whose certificates they name.

use std::collections::BTreeSet;

use der::{Decode as _, Encode as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateRevocationListDer, UnixTime};
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::{CertificateList, RevokedCert};

use crate::certificate::{Certificate, CertificateError, is_signed_by};
use crate::pem;

/// One authority's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    der: CertificateRevocationListDer<'static>,
    issuer: Box<[u8]>,
    issuer_text: String,
    serials: BTreeSet<Box<[u8]>>,
    issued: UnixTime,
    next: Option<UnixTime>,
}

impl RevocationList {
    fn from_der(der: CertificateRevocationListDer<'static>) -> Result<Self, CertificateError> {
        let read = CertificateList::<Rfc5280>::from_der(&der)?.tbs_cert_list;
        let serial = |revoked: &RevokedCert<Rfc5280>| revoked.serial_number.as_bytes().into();
        Ok(Self {
            issuer: read.issuer.to_der()?.into(),
            issuer_text: read.issuer.to_string(),
            serials: read.revoked_certificates.iter().flatten().map(serial).collect(),
            issued: UnixTime::since_unix_epoch(read.this_update.to_unix_duration()),
            next: read.next_update.map(|time| UnixTime::since_unix_epoch(time.to_unix_duration())),
            der,
        })
    }

    /// The authority it is of, for people.
    pub fn issuer_text(&self) -> &str {
        &self.issuer_text
    }

    /// When it was issued.
    pub fn issued(&self) -> UnixTime {
        self.issued
    }

    /// When the next one is due at the latest, if it says so. From then on proxies refuse every certificate of the authority.
    pub fn next(&self) -> Option<UnixTime> {
        self.next
    }

    /// How many certificates it names.
    pub fn len(&self) -> usize {
        self.serials.len()
    }

    /// Whether it names no certificate.
    pub fn is_empty(&self) -> bool {
        self.serials.is_empty()
    }

    /// Whether an authority signed it.
    pub fn is_signed_by(&self, authority: &Certificate) -> bool {
        is_signed_by(&self.der, authority)
    }
}

/// The lists of all authorities of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationLists(Vec<RevocationList>);

impl RevocationLists {
    /// Reads every list of a PEM text. A text without any, and an empty one, is one in which nothing is revoked.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        pem::check_size(text)?;
        let ders = CertificateRevocationListDer::pem_slice_iter(text);
        let read = ders.map(|der| {
            let der = der.map_err(|error| pem::PemError::Invalid(error.to_string()))?;
            RevocationList::from_der(der)
        });
        read.collect::<Result<_, CertificateError>>().map(Self)
    }

    /// Each list.
    pub fn iter(&self) -> impl Iterator<Item = &RevocationList> {
        self.0.iter()
    }

    /// Whether there is no list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a certificate is named by the list of its issuer.
    pub fn contain(&self, certificate: &Certificate) -> bool {
        let names = |list: &RevocationList| {
            *list.issuer == *certificate.issuer() && list.serials.contains(certificate.serial_bytes())
        };
        self.0.iter().any(names)
    }
}
