//! Private keys that sign certificates and tokens.
//!
//! A key never leaves this module but as PEM for the store, in a buffer that is zeroised. [`Debug`](fmt::Debug) shows its
//! kind alone.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use der::asn1::AnyRef;
use der::oid::ObjectIdentifier;
use der::oid::db::{rfc5912, rfc8410};
use pkcs8::PrivateKeyInfoRef;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_cert::spki::AlgorithmIdentifierRef;
use zeroize::Zeroizing;

use crate::pem;

/// The algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA with a modulus of so many bits.
    Rsa(usize),
    /// ECDSA on the NIST curve P-256.
    P256,
    /// ECDSA on the NIST curve P-384.
    P384,
    /// ECDSA on the NIST curve P-521.
    P521,
    /// Ed25519.
    Ed25519,
}

/// Why a key cannot be made, read or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is no private key.
    #[error("failed to parse private key PEM: {0}; expected PKCS#8, PKCS#1 (RSA) or SEC1 (EC)")]
    Pem(String),
    /// The key itself is not acceptable.
    #[error(
        "the private key is rejected: {0}; use RSA with 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, or Ed25519"
    )]
    Rejected(String),
    /// A key of this many bits cannot be generated.
    #[error("RSA keys of {0} bits cannot be generated; use 2048, 3072, 4096 or 8192")]
    Bits(usize),
    /// The cryptographic library failed.
    #[error("the cryptographic library failed to {0}")]
    Library(&'static str),
}

/// A private key with which certificates are signed.
pub struct SigningKey {
    pair: Pair,
    public: Box<[u8]>,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// The curves, in the order in which a key is tried on them.
const CURVES: [&EcdsaSigningAlgorithm; 3] =
    [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P521_SHA512_ASN1_SIGNING];

impl SigningKey {
    /// Makes a new key.
    pub fn generate(kind: KeyKind) -> Result<Self, KeyError> {
        let failed = |_: Unspecified| KeyError::Library("generate a key");
        let ecdsa = |curve| EcdsaKeyPair::generate(curve).map(Pair::Ecdsa).map_err(failed);
        Self::new(match kind {
            KeyKind::Rsa(bits) => Pair::Rsa(RsaKeyPair::generate(rsa_size(bits)?).map_err(failed)?),
            KeyKind::P256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING)?,
            KeyKind::P384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING)?,
            KeyKind::P521 => ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING)?,
            KeyKind::Ed25519 => Pair::Ed25519(Ed25519KeyPair::generate().map_err(failed)?),
        })
    }

    /// Reads the first private key of a PEM text: PKCS#8, PKCS#1 or SEC1.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let key = pem::private_key(text).map_err(|error| KeyError::Pem(error.to_string()))?;
        Self::new(Pair::from_der(&key)?)
    }

    /// Reads a PKCS#8 key.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        Self::new(Pair::from_der(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)))?)
    }

    fn new(pair: Pair) -> Result<Self, KeyError> {
        let failed = |_: Unspecified| KeyError::Library("encode the public key");
        let public: PublicKeyX509Der<'_> = match &pair {
            Pair::Rsa(pair) => pair.public_key().as_der().map_err(failed)?,
            Pair::Ecdsa(pair) => pair.public_key().as_der().map_err(failed)?,
            Pair::Ed25519(pair) => pair.public_key().as_der().map_err(failed)?,
        };
        Ok(Self { public: public.as_ref().into(), pair })
    }

    /// The algorithm.
    pub fn kind(&self) -> KeyKind {
        match &self.pair {
            Pair::Rsa(pair) => KeyKind::Rsa(pair.public_modulus_len() * 8),
            Pair::Ed25519(_) => KeyKind::Ed25519,
            Pair::Ecdsa(pair) if *pair.algorithm() == ECDSA_P256_SHA256_ASN1_SIGNING => KeyKind::P256,
            Pair::Ecdsa(pair) if *pair.algorithm() == ECDSA_P384_SHA384_ASN1_SIGNING => KeyKind::P384,
            Pair::Ecdsa(_) => KeyKind::P521,
        }
    }

    /// The public key as the DER of a SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public
    }

    /// The public key as the cryptographic library has it: PKCS#1 for RSA, a point for curves.
    pub fn raw_public_key(&self) -> &[u8] {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        }
    }

    /// Signs with the algorithm of [`signature_algorithm`](Self::signature_algorithm).
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let failed = |_: Unspecified| KeyError::Library("sign");
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => Ok(pair.sign(&random, message).map_err(failed)?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }

    /// The identifier of the algorithm it signs with.
    pub(crate) fn signature_algorithm(&self) -> AlgorithmIdentifierRef<'static> {
        let (oid, parameters): (ObjectIdentifier, _) = match self.kind() {
            KeyKind::Rsa(_) => (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Some(AnyRef::NULL)),
            KeyKind::P256 => (rfc5912::ECDSA_WITH_SHA_256, None),
            KeyKind::P384 => (rfc5912::ECDSA_WITH_SHA_384, None),
            KeyKind::P521 => (rfc5912::ECDSA_WITH_SHA_512, None),
            KeyKind::Ed25519 => (rfc8410::ID_ED_25519, None),
        };
        AlgorithmIdentifierRef { oid, parameters }
    }

    /// The key as PEM, for the store alone.
    ///
    /// Parity: RSA keys are written as PKCS#1 and ECDSA keys as SEC1, as istiod writes them.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, KeyError> {
        let failed = |_: Unspecified| KeyError::Library("encode the private key");
        let encode = |label, der: &[u8]| {
            pem::encode(label, der)
                .map(Zeroizing::new)
                .map_err(|_| KeyError::Library("encode the private key"))
        };
        match &self.pair {
            Pair::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
                let info = PrivateKeyInfoRef::try_from(der.as_ref());
                let info = info.map_err(|_| KeyError::Library("encode the private key"))?;
                encode("RSA PRIVATE KEY", info.private_key.as_bytes())
            }
            Pair::Ecdsa(pair) => {
                let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().map_err(failed)?;
                encode("EC PRIVATE KEY", der.as_ref())
            }
            Pair::Ed25519(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
                encode("PRIVATE KEY", der.as_ref())
            }
        }
    }

    /// The key as PEM in PKCS#8, whatever its kind, for those who ask for it.
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, KeyError> {
        let text = pem::encode("PRIVATE KEY", &self.to_pkcs8()?);
        text.map(Zeroizing::new).map_err(|_| KeyError::Library("encode the private key"))
    }

    /// The key as PKCS#8 DER, for libraries that sign with it themselves.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let failed = |_: Unspecified| KeyError::Library("encode the private key");
        let der = match &self.pair {
            Pair::Rsa(pair) => AsDer::<Pkcs8V1Der<'_>>::as_der(pair).map_err(failed)?.as_ref().to_vec(),
            Pair::Ecdsa(pair) => pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec(),
            Pair::Ed25519(pair) => AsDer::<Pkcs8V1Der<'_>>::as_der(pair).map_err(failed)?.as_ref().to_vec(),
        };
        Ok(Zeroizing::new(der))
    }
}

impl Pair {
    fn from_der(key: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        let der = key.secret_der();
        let rsa = match key {
            PrivateKeyDer::Pkcs1(_) => RsaKeyPair::from_der(der),
            PrivateKeyDer::Pkcs8(_) => RsaKeyPair::from_pkcs8(der),
            PrivateKeyDer::Sec1(_) => return Self::on_some_curve(der),
            _ => return Err(KeyError::Pem("its encoding is not known".to_owned())),
        };
        match rsa {
            Ok(pair) => Ok(Self::Rsa(pair)),
            Err(error) if matches!(key, PrivateKeyDer::Pkcs1(_)) => {
                Err(KeyError::Rejected(error.to_string()))
            }
            Err(error) => {
                let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Self::Ed25519);
                let other = Self::on_some_curve(der).ok().or_else(ed25519);
                other.ok_or_else(|| KeyError::Rejected(error.to_string()))
            }
        }
    }

    fn on_some_curve(der: &[u8]) -> Result<Self, KeyError> {
        let pair = CURVES.iter().find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok());
        pair.map(Self::Ecdsa)
            .ok_or_else(|| KeyError::Rejected("it is on no curve that is supported".to_owned()))
    }
}

fn rsa_size(bits: usize) -> Result<KeySize, KeyError> {
    match bits {
        2048 => Ok(KeySize::Rsa2048),
        3072 => Ok(KeySize::Rsa3072),
        4096 => Ok(KeySize::Rsa4096),
        8192 => Ok(KeySize::Rsa8192),
        other => Err(KeyError::Bits(other)),
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?})", self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [KeyKind; 5] =
        [KeyKind::Rsa(2048), KeyKind::P256, KeyKind::P384, KeyKind::P521, KeyKind::Ed25519];

    #[test]
    fn key_survives_text_and_back() {
        for kind in ALL {
            let key = SigningKey::generate(kind).unwrap();
            let again = SigningKey::from_pem(key.to_pem().unwrap().as_bytes()).unwrap();
            let packed = SigningKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
            assert_eq!((again.kind(), again.public_key()), (kind, key.public_key()));
            assert_eq!((packed.kind(), packed.public_key()), (kind, key.public_key()));
        }
    }

    #[test]
    fn debug_shows_the_kind_alone() {
        let key = SigningKey::generate(KeyKind::P256).unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey(P256)");
    }

    #[test]
    fn text_is_labelled_as_istiod_labels_it() {
        let label = |kind| {
            let text = SigningKey::generate(kind).unwrap().to_pem().unwrap();
            text.lines().next().unwrap().to_owned()
        };
        assert_eq!(label(KeyKind::Rsa(2048)), "-----BEGIN RSA PRIVATE KEY-----");
        assert_eq!(label(KeyKind::P384), "-----BEGIN EC PRIVATE KEY-----");
        assert_eq!(label(KeyKind::Ed25519), "-----BEGIN PRIVATE KEY-----");
    }

    #[test]
    fn key_is_refused_when_the_size_is_not_offered() {
        assert_eq!(SigningKey::generate(KeyKind::Rsa(1024)).unwrap_err(), KeyError::Bits(1024));
    }

    #[test]
    fn errors_never_repeat_the_text() {
        let error =
            SigningKey::from_pem(b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n");
        let text = error.unwrap_err().to_string();
        assert!(!text.contains("secret") && !text.contains("c2VjcmV0"), "{text}");
    }
}
