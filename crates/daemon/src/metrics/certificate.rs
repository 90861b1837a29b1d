//! Whether the certificates that proxies are given are of any use.

use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::data_source::Specifier;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// Whether the first certificate of an encoded secret can be read and counts today.
pub(super) fn is_usable(secret: Bytes) -> bool {
    let certificates = match Secret::decode(secret).ok().and_then(|secret| secret.r#type) {
        Some(Type::TlsCertificate(own)) => own.certificate_chain,
        Some(Type::ValidationContext(of_others)) => of_others.trusted_ca,
        _ => return false,
    };
    match certificates.and_then(|source| source.specifier) {
        Some(Specifier::InlineBytes(pem)) => counts(&pem, UnixTime::now()),
        _ => false,
    }
}

/// Whether the first certificate can be read and counts at this time.
fn counts(pem: &[u8], now: UnixTime) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pem) else { return false };
    let certificate = match EndEntityCert::try_from(&der) {
        Ok(certificate) => certificate,
        // Certificates of versions that the library does not understand are not judged.
        Err(error) => return matches!(error, Error::UnsupportedCertVersion),
    };
    // Verification without trust anchors always fails; the validity period is what it checks first.
    let verified =
        certificate.verify_for_usage(&[], &[], &[], now, KeyUsage::server_auth(), None, None).err();
    !matches!(verified, Some(Error::CertExpired { .. } | Error::CertNotValidYet { .. }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate that counts in the year 2026 alone.
    fn certificate() -> String {
        let mut params = CertificateParams::new(["shop.example.com".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn in_year(year: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 86_400))
    }

    #[test]
    fn certificate_counts_in_its_time() {
        let certificate = certificate();
        assert!(counts(certificate.as_bytes(), in_year(2026)));
        assert!(!counts(certificate.as_bytes(), in_year(2025)));
        assert!(!counts(certificate.as_bytes(), in_year(2028)));
    }

    #[test]
    fn what_is_no_certificate_does_not_count() {
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in ["", "a certificate", garbage] {
            assert!(!counts(text.as_bytes(), in_year(2026)), "{text}");
        }
        assert!(!is_usable(Bytes::from_static(b"\xff")));
    }
}
