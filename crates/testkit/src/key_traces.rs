//! What a private key looks like wherever it could leak: a test that looks for the text of its file alone would miss a key that
//! was printed in hexadecimal, or that is in base64 once more inside a Secret.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

/// How long a line of PEM is.
const LINE: usize = 64;

/// The forms in which a key is recognised.
pub struct KeyTraces {
    name: String,
    /// A part of the key that is secret.
    pub(crate) secret: Vec<u8>,
    pub(crate) forms: Vec<String>,
}

impl KeyTraces {
    /// The traces of a key in PEM, by a name for messages.
    pub fn from_pem(name: &str, pem: &str) -> Result<Self> {
        let key =
            PrivateKeyDer::from_pem_slice(pem.as_bytes()).with_context(|| format!("{name} is no key"))?;
        let der = key.secret_der();
        let (start, end) = secret_part(der).with_context(|| format!("{name} is of no kind that is known"))?;
        let mut forms = encodings(&der[start..end]);
        // In a Secret, what is in base64 is the text of the file, with its lines.
        let text = BASE64_STANDARD.encode(der);
        let (first, last) = (start.div_ceil(3) * 4, end / 3 * 4);
        let pieces = (first / LINE..=last / LINE).map(|line| {
            let (from, to) = (first.max(line * LINE), last.min((line + 1) * LINE));
            text.get(from..to).unwrap_or_default()
        });
        let longest = pieces.max_by_key(|piece| piece.len()).unwrap_or_default();
        ensure!(longest.len() >= 20, "{name}: too little of it is secret");
        forms.extend(encodings(longest.as_bytes()));
        Ok(Self { name: name.to_owned(), secret: der[start..end].to_vec(), forms })
    }

    /// Fails if a text has the key in any form. What it is called is told, and not the key.
    pub fn check_absent(&self, place: &str, text: &str) -> Result<()> {
        let squeezed = squeeze(text);
        let found = self.forms.iter().any(|form| squeezed.contains(form));
        ensure!(!found, "{} is in {place}", self.name);
        Ok(())
    }
}

/// A text without what lists and lines put between the parts of a key.
fn squeeze(text: &str) -> String {
    text.replace("\\n", "").chars().filter(|character| !character.is_whitespace()).collect()
}

/// Where the secret of a key is: the number of a key on a curve, or primes of RSA.
fn secret_part(der: &[u8]) -> Option<(usize, usize)> {
    if der.len() > 500 {
        let middle = der.len() / 2;
        return Some((middle, middle + 48));
    }
    // An octet string of 32 bytes; 48 and 66 are those of longer curves.
    [0x20, 0x30, 0x42].into_iter().find_map(|length| {
        let at = der.windows(2).position(|pair| pair == [0x04, length])?;
        let end = at + 2 + usize::from(length);
        (end <= der.len()).then_some((at + 2, end))
    })
}

/// Bytes in hexadecimal, as a list of numbers, and in base64 wherever in a longer text they begin.
fn encodings(bytes: &[u8]) -> Vec<String> {
    let mut lower = String::new();
    for byte in bytes {
        let _ = write!(lower, "{byte:02x}");
    }
    let numbers: Vec<String> = bytes.iter().map(ToString::to_string).collect();
    let mut forms = vec![lower.to_uppercase(), lower, numbers.join(",")];
    for shift in 0..3 {
        let mut shifted = vec![0; shift];
        shifted.extend(bytes);
        shifted.truncate(shifted.len() / 3 * 3);
        // The first group has what stands before the key.
        let skipped = if shift == 0 { 0 } else { 4 };
        forms.push(BASE64_STANDARD.encode(&shifted)[skipped..].to_owned());
        forms.push(BASE64_URL_SAFE_NO_PAD.encode(&shifted)[skipped..].to_owned());
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_found_in_whatever_form_it_leaks() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ED25519] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let pem = key.serialize_pem();
            let traces = KeyTraces::from_pem("the key", &pem).unwrap();
            let der = key.serialize_der();
            let hex: String = der.iter().map(|byte| format!("{byte:02X}")).collect();
            for leak in [
                pem.clone(),
                serde_json::json!({"key": pem}).to_string(),
                BASE64_STANDARD.encode(&pem),
                BASE64_STANDARD.encode(format!("{{\"a\": \"{pem}")),
                BASE64_URL_SAFE_NO_PAD.encode(&der),
                format!("{der:?}"),
                format!("{der:#?}"),
                hex,
            ] {
                let error = traces.check_absent("a log", &leak).unwrap_err().to_string();
                assert_eq!(error, "the key is in a log");
            }
            let other = rcgen::KeyPair::generate_for(algorithm).unwrap();
            traces.check_absent("a log", &other.serialize_pem()).unwrap();
            traces.check_absent("a log", &key.public_key_pem()).unwrap();
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(KeyTraces::from_pem("it", "nonsense").is_err());
    }
}
