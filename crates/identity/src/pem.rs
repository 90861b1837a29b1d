//! PEM texts in and out.

use der::pem::{LineEnding, encode_string};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{PemObject as _, SectionKind};

/// Files of certificates and keys beyond this size are refused before they are parsed.
pub const LARGEST_FILE: usize = 1 << 20;

/// Why a PEM text cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// The text is not PEM, or is damaged.
    #[error("invalid PEM: {0}")]
    Invalid(String),
    /// The text has no section of the expected kind.
    #[error("there is no {0} in it")]
    Missing(&'static str),
    /// The text is larger than any sensible file of its kind.
    #[error("it has {0} bytes, more than the {LARGEST_FILE} that are read")]
    TooLarge(usize),
}

/// Writes one section. The text ends with a newline.
pub fn encode(label: &str, der: &[u8]) -> Result<String, PemError> {
    encode_string(label, LineEnding::LF, der).map_err(|error| PemError::Invalid(error.to_string()))
}

/// The certificates of a text, in its order; sections of other kinds are skipped.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    check_size(text)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    read.map_err(|error| PemError::Invalid(error.to_string()))
}

/// The first section of a text, whatever it is.
pub fn first(text: &[u8]) -> Option<(SectionKind, Vec<u8>)> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text).next()?.ok()
}

pub(crate) fn check_size(text: &[u8]) -> Result<(), PemError> {
    if text.len() > LARGEST_FILE { Err(PemError::TooLarge(text.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_survives_text_and_back() {
        let text = encode("CERTIFICATE", &[7; 100]).unwrap();
        assert!(
            text.starts_with("-----BEGIN CERTIFICATE-----\n")
                && text.ends_with("-----END CERTIFICATE-----\n")
        );
        assert_eq!(certificates(text.as_bytes()).unwrap()[0].as_ref(), [7; 100]);
    }

    #[test]
    fn text_is_refused_when_it_is_larger_than_any_bundle() {
        let text = vec![b'\n'; LARGEST_FILE + 1];
        assert_eq!(certificates(&text), Err(PemError::TooLarge(text.len())));
    }

    #[test]
    fn text_is_refused_when_a_section_does_not_end() {
        let error = certificates(b"-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap_err();
        assert!(matches!(error, PemError::Invalid(_)), "{error}");
    }
}
