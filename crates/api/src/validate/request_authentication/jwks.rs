//! A JSON Web Key Set: whether it can be read, and which of its keys are private.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canopus_base::json;
use canopus_base::tree::{Limits, Node};

/// A key of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Whether it holds more than is needed to verify a signature.
    pub(super) private: bool,
}

/// Why a text is not a key set. Values are not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JwksError {
    #[error("failed to unmarshal JWK set: {0}")]
    Syntax(Box<str>),
    #[error("failed to unmarshal JWK set: expected an object")]
    NotAnObject,
    #[error("failed to unmarshal JWK set: {place}invalid key type from JSON ({kind})")]
    KeyType { place: String, kind: String },
    #[error("failed to unmarshal JWK set: {place}required field {field} is missing")]
    Missing { place: String, field: &'static str },
    #[error("failed to unmarshal JWK set: {place}field {field} is not base64url text")]
    NotBase64 { place: String, field: &'static str },
}

/// Reads a set of keys, or one key alone.
pub(super) fn parse(text: &str) -> Result<Vec<Key>, JwksError> {
    let document = json::parse(text.as_bytes(), &Limits::default())
        .map_err(|error| JwksError::Syntax(error.kind.to_string().into()))?;
    if document.as_map().is_none() {
        return Err(JwksError::NotAnObject);
    }
    match document.get("keys").and_then(Node::as_list) {
        Some(keys) if !keys.is_empty() => {
            let total = keys.len();
            let place =
                |at| format!("failed to unmarshal key #{} (total {total}) from multi-key JWK set: ", at + 1);
            keys.iter().enumerate().map(|(at, key)| self::key(key, || place(at))).collect()
        }
        _ => {
            let place = || "failed to unmarshal key from JSON headers: ".to_owned();
            Ok(vec![key(&document, place)?])
        }
    }
}

/// Fields that a key must have, and those that may be there: all in base64url.
struct Shape {
    required: &'static [&'static str],
    secret: &'static [&'static str],
    curve: bool,
}

fn shape(kind: &str) -> Option<Shape> {
    Some(match kind {
        "RSA" => Shape { required: &["e", "n"], secret: &["d"], curve: false },
        "EC" => Shape { required: &["x", "y"], secret: &["d"], curve: true },
        "OKP" => Shape { required: &["x"], secret: &["d"], curve: true },
        "oct" => Shape { required: &["k"], secret: &["k"], curve: false },
        _ => return None,
    })
}

fn key(key: &Node, place: impl Fn() -> String) -> Result<Key, JwksError> {
    let kind = key.get("kty").and_then(Node::as_str).unwrap_or_default();
    let Some(shape) = shape(kind) else {
        return Err(JwksError::KeyType { place: place(), kind: kind.into() });
    };
    if shape.curve && key.get("crv").and_then(Node::as_str).is_none() {
        return Err(JwksError::Missing { place: place(), field: "crv" });
    }
    let private = shape.secret.iter().any(|field| key.get(field).is_some_and(|value| !value.is_null()));
    let given = shape.secret.iter().filter(|field| key.get(field).is_some());
    for field in shape.required.iter().chain(given) {
        let Some(text) = key.get(field).and_then(Node::as_str) else {
            return Err(JwksError::Missing { place: place(), field });
        };
        if URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).is_err() {
            return Err(JwksError::NotBase64 { place: place(), field });
        }
    }
    Ok(Key { private })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_is_read_with_or_without_the_list_around_a_key() {
        let ec = r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#;
        assert_eq!(parse(ec), Ok(vec![Key { private: false }]));
        let with_secret =
            r#"{"keys":[{"kty":"RSA","e":"AQAB","n":"AA","d":"AA"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}"#;
        assert_eq!(parse(with_secret), Ok(vec![Key { private: true }, Key { private: false }]));
    }

    #[test]
    fn set_is_refused_when_a_key_is_incomplete() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert!(said("foo").starts_with("failed to unmarshal JWK set: "));
        assert!(said("{}").ends_with("invalid key type from JSON ()"));
        assert!(said(r#"{"keys":[{"kty":"RSA","e":"AQAB"}]}"#).ends_with("required field n is missing"));
        assert!(said(r#"{"kty":"EC","x":"AA","y":"AA"}"#).ends_with("required field crv is missing"));
        assert!(said(r#"{"kty":"oct","k":"a!"}"#).ends_with("field k is not base64url text"));
    }
}
