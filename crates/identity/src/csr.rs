//! Making certificate signing requests: of workloads, and for the control plane's own ports. [`request`](crate::request) reads them.

use rcgen::{CertificateParams, Error, PublicKeyData, SignatureAlgorithm};

use crate::key::{KeyKind, SigningKey};

/// Writes a request as PEM and signs it.
pub fn write(params: &CertificateParams, key: &SigningKey) -> Result<String, Error> {
    params.serialize_request(&Requester(key))?.pem()
}

/// A key as the library wants it. Its own kind of key would keep a copy that nobody overwrites.
struct Requester<'a>(&'a SigningKey);

impl PublicKeyData for Requester<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.raw_public_key()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.0.kind() {
            KeyKind::Rsa(_) => &rcgen::PKCS_RSA_SHA256,
            KeyKind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            KeyKind::P521 => &rcgen::PKCS_ECDSA_P521_SHA512,
            KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        }
    }
}

impl rcgen::SigningKey for Requester<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.0.sign(message).map_err(|_| Error::RingUnspecified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    #[test]
    fn request_of_every_kind_of_key_verifies() {
        for kind in [KeyKind::Rsa(2048), KeyKind::P256, KeyKind::P384, KeyKind::P521, KeyKind::Ed25519] {
            let key = SigningKey::generate(kind).unwrap();
            let text = write(&CertificateParams::default(), &key).unwrap();
            assert_eq!(Request::from_pem(&text).unwrap().public_key(), key.public_key(), "{kind:?}");
        }
    }
}
