//! What callers prove who they are with.

use std::sync::LazyLock;
use std::time::Duration;

use canopus_base::spiffe::Identity;
use canopus_daemon::authentication;
use canopus_identity::certificate::Certificate;
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::request::Request;
use canopus_identity::token::{MemoryUses, TokenIssuer};
use canopus_identity::{pem, trust};
use rustls_pki_types::UnixTime;

static ISSUER: LazyLock<TokenIssuer> = LazyLock::new(|| {
    let key = SigningKey::generate(KeyKind::P256).expect("a key can be made");
    TokenIssuer::new("istio-ca", &key, Box::<MemoryUses>::default()).expect("the key is of the right kind")
});

/// What callers and other authorities send: certificate requests, PEM, certificates, SPIFFE identities and bundles, tokens.
pub(crate) fn identity(input: &[u8]) {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let _ = Request::from_der(input);
    let _ = pem::first(input);
    let _ = SigningKey::from_pem(input);
    if let Ok(certificate) = Certificate::from_der(input.to_vec().into()) {
        let text = certificate.to_pem().expect("what was read can be written");
        assert_eq!(Certificate::from_pem(text.as_bytes()).as_ref(), Ok(&certificate));
    }
    if let Ok(roots) = trust::parse(input) {
        let text = trust::write(&roots, 1, 300).expect("what was read can be written");
        assert_eq!(trust::parse(text.as_bytes()), Ok(roots));
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = Request::from_pem(text);
        assert!(ISSUER.accept(text, now).is_err(), "nobody has the key");
        if let Ok(identity) = text.parse::<Identity>() {
            assert_eq!(identity.to_string().parse().as_ref(), Ok(&identity));
        }
    }
}

/// A set of keys that nobody has the private halves of.
const KEYS: &str = r#"{"keys":[
{"kty":"RSA","kid":"r","n":"sRjvtbYPVqXyDPwLbNjYkMZQ8g6XuVyW0sQh0Z0z0V3uCwY2qkq5YtF9vJ7oFbOq7Zr1oYx1sJrY4yq2xw5Q7Z8Zl4mF0R0nJm5x9cFZ1m2Y5nYl3w7p6vK0oU8d2Xr7k1cT9bQe4aSg3hJ6iLk5mN2oP8qRtUvWxYz0A1B2C3","e":"AQAB"},
{"kty":"EC","kid":"e","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}
]}"#;

/// A token on the first line, and a set of keys on the second: nothing is believed, whatever it says.
pub(crate) fn jwt(input: &[u8]) {
    let Some([token, keys]) = super::lines(input) else { return };
    assert!(!authentication::is_signed(token, KEYS), "nobody has the keys");
    let _ = authentication::is_signed(token, keys);
}
