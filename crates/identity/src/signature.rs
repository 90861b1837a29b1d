//! Verifying signatures of requests and revocation lists, whose keys are given beside them.
//!
//! Which algorithms count is the table of the verifier of TLS ([`webpki`]), with RSA keys below 2048 bits beside it.

use aws_lc_rs::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    UnparsedPublicKey,
};
use der::asn1::{BitStringRef, UintRef};
use der::oid::ObjectIdentifier;
use der::oid::db::{rfc5912, rfc8410};
use der::{Decode as _, Encode as _, Sequence};
use webpki::ALL_VERIFICATION_ALGS;
use x509_cert::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};

/// RSA keys with fewer bits are refused. Parity: Go's library draws the line here too.
const FEWEST_RSA_BITS: usize = 1024;

/// RSA keys with more bits are refused: verifying with them is a burden on everybody.
const MOST_RSA_BITS: usize = 8192;

/// Why a signature is refused. Parity: the texts are those that istiod's callers know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The key or the signature cannot be read.
    #[error("failed to parse the public key or the signature")]
    Syntax,
    /// An RSA key is too short.
    #[error("crypto/rsa: {0}-bit keys are insecure (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)")]
    ShortKey(usize),
    /// An RSA key is too long.
    #[error("crypto/rsa: {0}-bit keys are not accepted; use at most {MOST_RSA_BITS} bits")]
    LongKey(usize),
    /// The algorithm is not known, is broken, or is not one for this key.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Algorithm,
    /// The signature was not made with this key.
    #[error("{0}")]
    Mismatch(&'static str),
}

/// An RSAPublicKey (RFC 8017), to learn its size.
#[derive(Sequence)]
pub(crate) struct RsaPublicKey<'a> {
    pub(crate) modulus: UintRef<'a>,
    pub(crate) exponent: UintRef<'a>,
}

/// Verifies the signature of a message with a key, the DER of a SubjectPublicKeyInfo.
pub(crate) fn verify(
    public_key: &[u8],
    algorithm: AlgorithmIdentifierRef<'_>,
    message: &[u8],
    signature: BitStringRef<'_>,
) -> Result<(), SignatureError> {
    let info = SubjectPublicKeyInfoRef::from_der(public_key).map_err(|_| SignatureError::Syntax)?;
    let key = info.subject_public_key.as_bytes().ok_or(SignatureError::Syntax)?;
    let signature = signature.as_bytes().ok_or(SignatureError::Syntax)?;
    let mismatch = mismatch(info.algorithm.oid)?;
    if info.algorithm.oid == rfc5912::RSA_ENCRYPTION && checked_rsa_bits(key)? < 2048 {
        return verify_short_rsa(algorithm.oid, key, message, signature);
    }
    let of_key = contents(info.algorithm).map_err(|_| SignatureError::Syntax)?;
    let of_signature = contents(algorithm).map_err(|_| SignatureError::Syntax)?;
    let mut known = ALL_VERIFICATION_ALGS.iter().filter(|known| {
        known.public_key_alg_id().as_ref() == of_key && known.signature_alg_id().as_ref() == of_signature
    });
    let known = known.next().ok_or(SignatureError::Algorithm)?;
    known.verify_signature(key, message, signature).map_err(|_| SignatureError::Mismatch(mismatch))
}

/// What an AlgorithmIdentifier holds, without the header of the sequence.
fn contents(identifier: AlgorithmIdentifierRef<'_>) -> Result<Vec<u8>, der::Error> {
    let mut contents = identifier.oid.to_der()?;
    if let Some(parameters) = identifier.parameters {
        parameters.encode_to_vec(&mut contents)?;
    }
    Ok(contents)
}

/// Parity: keys of 1024 bits are accepted, as istiod accepts them.
fn verify_short_rsa(
    algorithm: ObjectIdentifier,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let parameters = match algorithm {
        rfc5912::SHA_256_WITH_RSA_ENCRYPTION => &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        rfc5912::SHA_512_WITH_RSA_ENCRYPTION => &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        _ => return Err(SignatureError::Algorithm),
    };
    let verified = UnparsedPublicKey::new(parameters, key).verify(message, signature);
    verified.map_err(|_| SignatureError::Mismatch(RSA_MISMATCH))
}

const RSA_MISMATCH: &str = "crypto/rsa: verification error";

/// What to say when a signature does not verify with a key of this algorithm.
fn mismatch(algorithm: ObjectIdentifier) -> Result<&'static str, SignatureError> {
    match algorithm {
        rfc5912::RSA_ENCRYPTION => Ok(RSA_MISMATCH),
        rfc5912::ID_EC_PUBLIC_KEY => Ok("x509: ECDSA verification failure"),
        rfc8410::ID_ED_25519 => Ok("x509: Ed25519 verification failure"),
        _ => Err(SignatureError::Algorithm),
    }
}

fn checked_rsa_bits(key: &[u8]) -> Result<usize, SignatureError> {
    let key = RsaPublicKey::from_der(key).map_err(|_| SignatureError::Syntax)?;
    // An even exponent belongs to no RSA key.
    let is_odd = key.exponent.as_bytes().last().is_some_and(|byte| byte & 1 == 1);
    let modulus = key.modulus.as_bytes();
    let leading = modulus.first().map_or(8, |byte| byte.leading_zeros() as usize);
    match (modulus.len() * 8).saturating_sub(leading) {
        _ if !is_odd => Err(SignatureError::Syntax),
        bits if bits < FEWEST_RSA_BITS => Err(SignatureError::ShortKey(bits)),
        bits if bits > MOST_RSA_BITS => Err(SignatureError::LongKey(bits)),
        bits => Ok(bits),
    }
}
