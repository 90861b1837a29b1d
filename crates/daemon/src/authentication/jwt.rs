//! Signed tokens: what they say, and whether a key has signed it.
//!
//! By hand on aws-lc-rs, as `jsonwebtoken` has no ES512, by which Istio lets issuers sign, and reads a key set as a whole: one key
//! of a kind that it does not know would make all others of the issuer unusable.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

/// What is not a token in three parts, each of them readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a signed token")]
pub(super) struct Malformed;

/// A token, read and not yet believed.
#[derive(Debug)]
pub(super) struct Jwt<'a> {
    algorithm: String,
    key_id: Option<String>,
    /// What it says.
    pub(super) claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Jwt<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, Malformed> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Malformed)?;
        let header = object(header)?;
        Ok(Self {
            algorithm: header["alg"].as_str().ok_or(Malformed)?.to_owned(),
            key_id: header["kid"].as_str().map(str::to_owned),
            claims: object(claims)?,
            signed,
            signature: BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| Malformed)?,
        })
    }

    /// Whether one of these keys has signed it.
    pub(super) fn is_signed_by_any(&self, keys: &[Key]) -> bool {
        keys.iter().any(|key| self.may_be_signed_by(key) && self.is_signed_by(key))
    }

    fn may_be_signed_by(&self, key: &Key) -> bool {
        let same_id = match (&self.key_id, &key.id) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        same_id && key.algorithm.as_ref().is_none_or(|algorithm| *algorithm == self.algorithm)
    }

    /// Which algorithms count is for the kind of the key to say, and not for the token.
    fn is_signed_by(&self, key: &Key) -> bool {
        let rsa = |n: &Vec<u8>, e: &Vec<u8>, parameters: &RsaParameters| {
            let key = RsaPublicKeyComponents { n, e };
            key.verify(parameters, self.signed.as_bytes(), &self.signature).is_ok()
        };
        let plain = |algorithm: &'static dyn VerificationAlgorithm, bytes: &[u8]| {
            let key = UnparsedPublicKey::new(algorithm, bytes);
            key.verify(self.signed.as_bytes(), &self.signature).is_ok()
        };
        match (&key.material, self.algorithm.as_str()) {
            (Material::Rsa { n, e }, "RS256") => rsa(n, e, &RSA_PKCS1_2048_8192_SHA256),
            (Material::Rsa { n, e }, "RS384") => rsa(n, e, &RSA_PKCS1_2048_8192_SHA384),
            (Material::Rsa { n, e }, "RS512") => rsa(n, e, &RSA_PKCS1_2048_8192_SHA512),
            (Material::Rsa { n, e }, "PS256") => rsa(n, e, &RSA_PSS_2048_8192_SHA256),
            (Material::Rsa { n, e }, "PS384") => rsa(n, e, &RSA_PSS_2048_8192_SHA384),
            (Material::Rsa { n, e }, "PS512") => rsa(n, e, &RSA_PSS_2048_8192_SHA512),
            (Material::P256(point), "ES256") => plain(&ECDSA_P256_SHA256_FIXED, point),
            (Material::P384(point), "ES384") => plain(&ECDSA_P384_SHA384_FIXED, point),
            (Material::P521(point), "ES512") => plain(&ECDSA_P521_SHA512_FIXED, point),
            (Material::Ed25519(bytes), "EdDSA") => plain(&ED25519, bytes),
            _ => false,
        }
    }
}

/// When a token says that it expires; `None` if it does not, or is none that can be read.
pub(super) fn expiry(token: &str) -> Option<SystemTime> {
    moment(&Jwt::parse(token).ok()?.claims["exp"])
}

/// The moment a claim names: seconds, perhaps with a fraction.
pub(super) fn moment(claim: &Value) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(claim.as_f64()?).ok()?;
    UNIX_EPOCH.checked_add(since)
}

fn object(part: &str) -> Result<Value, Malformed> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Malformed)?;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object).ok_or(Malformed)
}

/// A key that tokens may be signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Option<String>,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    P521(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Key {
    /// The keys of a set that can check a signature. Others are passed over: a set may have keys for other ends.
    pub(super) fn read_set(text: &str) -> Option<Vec<Self>> {
        let set: Value = serde_json::from_str(text).ok()?;
        Some(set["keys"].as_array()?.iter().filter_map(Self::read).collect())
    }

    fn read(key: &Value) -> Option<Self> {
        if key["use"].as_str().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let number = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(key[name].as_str()?).ok();
        let point = |size: usize| {
            let (x, y) = (number("x")?, number("y")?);
            (x.len() == size && y.len() == size).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
        };
        let material = match (key["kty"].as_str()?, key["crv"].as_str()) {
            ("RSA", _) => Material::Rsa { n: unpadded(number("n")?), e: unpadded(number("e")?) },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("EC", Some("P-521")) => Material::P521(point(66)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(number("x")?),
            _ => return None,
        };
        let text = |name: &str| key[name].as_str().map(str::to_owned);
        Some(Self { id: text("kid"), algorithm: text("alg"), material })
    }
}

/// Some issuers write numbers with leading zeros.
fn unpadded(number: Vec<u8>) -> Vec<u8> {
    number.into_iter().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
        RSA_PSS_SHA512, RsaKeyPair,
    };
    use serde_json::json;

    use super::*;

    pub(in crate::authentication) fn encode(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// A token with these claims, signed by `sign`.
    pub(in crate::authentication) fn token(
        header: &Value,
        claims: &Value,
        sign: impl Fn(&[u8]) -> Vec<u8>,
    ) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = encode(sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// A key on the curve that most issuers use, its public part, and how it signs.
    pub(in crate::authentication) fn p256(id: &str) -> (Value, impl Fn(&[u8]) -> Vec<u8> + use<>) {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let key =
            json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256", "x": x, "y": y});
        (key, move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec())
    }

    fn keys(keys: &[&Value]) -> Vec<Key> {
        Key::read_set(&json!({ "keys": keys }).to_string()).unwrap()
    }

    #[test]
    fn signatures_of_each_kind_of_key_are_checked() {
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        // A sequence of two numbers in DER: the modulus, with a zero before it, and the exponent.
        let numbers = rsa.public_key().as_ref();
        let (n, e) = (encode(&numbers[8..265]), encode(&numbers[267..]));
        let rsa_key = json!({"kty": "RSA", "kid": "r", "n": n, "e": e});
        let rsa_sign = |padding: &'static dyn aws_lc_rs::signature::RsaEncoding, message: &[u8]| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(padding, &SystemRandom::new(), message, &mut signature).unwrap();
            signature
        };
        let ed = Ed25519KeyPair::generate().unwrap();
        let ed_key =
            json!({"kty": "OKP", "crv": "Ed25519", "kid": "o", "x": encode(ed.public_key().as_ref())});
        let (ec_key, ec_sign) = p256("e");
        let all = keys(&[&rsa_key, &ec_key, &ed_key]);
        assert_eq!(all.len(), 3);

        let claims = json!({"sub": "somebody"});
        for token in [
            token(&json!({"alg": "RS256", "kid": "r"}), &claims, |m| rsa_sign(&RSA_PKCS1_SHA256, m)),
            token(&json!({"alg": "PS512"}), &claims, |m| rsa_sign(&RSA_PSS_SHA512, m)),
            token(&json!({"alg": "ES256", "kid": "e"}), &claims, &ec_sign),
            token(&json!({"alg": "EdDSA"}), &claims, |m| ed.sign(m).as_ref().to_vec()),
        ] {
            assert!(Jwt::parse(&token).unwrap().is_signed_by_any(&all), "{token}");
            let (signed, signature) = token.rsplit_once('.').unwrap();
            let (header, _) = signed.split_once('.').unwrap();
            let forged = format!("{header}.{}.{signature}", encode(r#"{"sub":"admin"}"#));
            assert!(!Jwt::parse(&forged).unwrap().is_signed_by_any(&all), "{forged}");
        }
    }

    #[test]
    fn token_cannot_choose_how_it_is_checked() {
        let (key, sign) = p256("e");
        let all = keys(&[&key]);
        for header in [
            json!({"alg": "none"}),
            json!({"alg": "HS256", "kid": "e"}),
            json!({"alg": "RS256", "kid": "e"}),
            json!({"alg": "ES256", "kid": "another"}),
        ] {
            let token = token(&header, &json!({}), &sign);
            assert!(!Jwt::parse(&token).unwrap().is_signed_by_any(&all), "{header}");
        }
        let unsigned = format!("{}.{}.", encode(r#"{"alg":"none"}"#), encode("{}"));
        assert!(!Jwt::parse(&unsigned).unwrap().is_signed_by_any(&all));
    }

    #[test]
    fn what_is_no_token_has_no_claims_and_no_end() {
        for text in ["", ".", "..", "a.b.c", "nonsense", "e30.e30", "W10.e30.AA", "e30.e30.AA"] {
            assert_eq!(Jwt::parse(text).unwrap_err(), Malformed, "{text}");
            assert_eq!(expiry(text), None);
        }
        let token = token(&json!({"alg": "none"}), &json!({"exp": 60.5}), |_| Vec::new());
        assert_eq!(expiry(&token), Some(UNIX_EPOCH + Duration::from_millis(60_500)));
        for exp in [json!(-1), json!(1e300), json!("60"), json!(null)] {
            assert_eq!(moment(&exp), None, "{exp}");
        }
    }

    #[test]
    fn keys_that_cannot_check_signatures_are_passed_over() {
        assert_eq!(Key::read_set("[]"), None);
        let encryption = json!({"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"});
        let short = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
        let secret = json!({"kty": "oct", "k": "AA"});
        assert!(keys(&[&encryption, &short, &secret, &json!(7)]).is_empty());
    }
}
