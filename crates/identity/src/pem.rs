//! PEM texts in and out.

use std::mem;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use der::pem::{LineEnding, encode_string};
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

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

/// Says what the bytes of a section are.
type AsKey = fn(Vec<u8>) -> PrivateKeyDer<'static>;

/// Labels of private keys, and what their sections hold.
const KEYS: [(&[u8], AsKey); 3] = [
    (b"PRIVATE KEY-----", |der| PrivateKeyDer::Pkcs8(der.into())),
    (b"RSA PRIVATE KEY-----", |der| PrivateKeyDer::Pkcs1(der.into())),
    (b"EC PRIVATE KEY-----", |der| PrivateKeyDer::Sec1(der.into())),
];

/// The first private key of a text: PKCS#8, PKCS#1 or SEC1. Sections of other kinds are skipped.
///
/// The reader that certificates are read with leaves the text of a key behind in memory it has given back. Here every copy is
/// overwritten, and errors never repeat a part of the text.
pub fn private_key(text: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, PemError> {
    check_size(text)?;
    let invalid = |reason: &str| PemError::Invalid(reason.to_owned());
    let mut section = None;
    // Room for all of it, so that no part is left behind in a buffer that was outgrown.
    let mut encoded = Zeroizing::new(Vec::with_capacity(text.len()));
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii) {
        let Some((label, key)) = section else {
            let begun = line.strip_prefix(b"-----BEGIN ");
            if begun.is_some_and(|label| label.ends_with(b"ENCRYPTED PRIVATE KEY-----")) {
                return Err(invalid("the key is encrypted; decrypt it first"));
            }
            section = begun.and_then(|begun| KEYS.into_iter().find(|(label, _)| *label == begun));
            continue;
        };
        if line.contains(&b':') {
            return Err(invalid("the section has headers, as encrypted keys do; decrypt the key first"));
        }
        if !line.starts_with(b"-----") {
            encoded.extend_from_slice(line);
            continue;
        }
        if line.strip_prefix(b"-----END ") != Some(label) {
            break;
        }
        let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(encoded.len())]);
        let decoded = BASE64_STANDARD.decode_slice(&*encoded, &mut der);
        let length = decoded.map_err(|_| invalid("what is in the section is not base64"))?;
        der.truncate(length);
        return Ok(Zeroizing::new(key(mem::take(&mut *der))));
    }
    Err(section.map_or(PemError::Missing("private key"), |_| invalid("the section of the key does not end")))
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
    fn private_key_is_found_among_other_sections() {
        let certificate = encode("CERTIFICATE", &[1; 90]).unwrap();
        for (label, _) in KEYS {
            let label = std::str::from_utf8(label).unwrap().trim_end_matches('-');
            let key = encode(label, &[7; 100]).unwrap();
            for text in [
                key.clone(),
                format!("Bag Attributes\n  friendlyName: own\n{certificate}{key}{certificate}"),
                key.replace('\n', "\r\n"),
                key.lines().map(|line| format!("  {line}\n")).collect(),
            ] {
                let read = private_key(text.as_bytes()).unwrap();
                assert_eq!(read.secret_der(), [7; 100], "{text}");
                let as_others_read_it = PrivateKeyDer::from_pem_slice(text.trim().as_bytes());
                assert!(as_others_read_it.is_err() || as_others_read_it.is_ok_and(|other| other == *read));
            }
        }
    }

    #[test]
    fn private_key_is_refused_with_the_reason_and_without_its_text() {
        let key = encode("RSA PRIVATE KEY", &[7; 100]).unwrap();
        for (text, reason) in [
            (String::new(), "there is no private key in it"),
            (key.replace("PRIVATE", "PUBLIC"), "there is no private key in it"),
            (key.replace("-----END RSA", "-----END EC"), "does not end"),
            (key[..80].to_owned(), "does not end"),
            (key.replace("Bwc", "B?c"), "not base64"),
            (key.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n"), "decrypt the key first"),
            (key.replace("RSA PRIVATE", "ENCRYPTED PRIVATE"), "decrypt it first"),
        ] {
            let error = private_key(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("Bwc"), "{error}");
        }
    }

    #[test]
    fn text_is_refused_when_a_section_does_not_end() {
        let error = certificates(b"-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap_err();
        assert!(matches!(error, PemError::Invalid(_)), "{error}");
    }
}
