//! What callers prove who they are with.

use std::sync::LazyLock;
use std::time::Duration;

use canopus_base::spiffe::Identity;
use canopus_daemon::authentication;
use canopus_identity::certificate::Certificate;
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::request::Request;
use canopus_identity::revocation::RevocationLists;
use canopus_identity::token::{MemoryUses, TokenIssuer};
use canopus_identity::trust::TrustDomains;
use canopus_identity::{pem, trust};
use rustls_pki_types::UnixTime;

static ISSUER: LazyLock<TokenIssuer> = LazyLock::new(|| {
    let key = SigningKey::generate(KeyKind::P256).expect("a key can be made");
    TokenIssuer::new("istio-ca", &key, Box::<MemoryUses>::default()).expect("the key is of the right kind")
});

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000))
}

/// Certificate requests, as PEM and as DER: what is accepted is signed by its own key.
pub(crate) fn csr(input: &[u8]) {
    let read = Request::from_der(input);
    let text = std::str::from_utf8(input).ok().and_then(|text| Request::from_pem(text).ok());
    for request in read.ok().into_iter().chain(text) {
        assert!(!request.public_key().is_empty(), "it was verified by it");
        let _ = (request.has_common_name(), request.asks_only_for(&[]));
    }
}

/// Certificates of peers and authorities, and what decides whether a peer is who it says.
pub(crate) fn certificate(input: &[u8]) {
    let Ok(certificate) = Certificate::from_der(input.to_vec().into()) else { return };
    let text = certificate.to_pem().expect("what was read can be written");
    assert_eq!(Certificate::from_pem(text.as_bytes()).as_ref(), Ok(&certificate));
    let _ = (certificate.subject_text(), certificate.organization(), certificate.is_signed_by(&certificate));
    let mut domains = TrustDomains::default();
    domains.add("cluster.local", [certificate.clone()]);
    let _ = domains.verify(&[certificate.der().clone(), certificate.der().clone()], now());
    let roots = [certificate];
    let text = trust::write(&roots, 1, 300).expect("what was read can be written");
    let _ = trust::parse(text.as_bytes());
}

/// Texts that are plugged in: certificates, keys, revocation lists.
pub(crate) fn pem(input: &[u8]) {
    let _ = pem::first(input);
    let _ = pem::certificates(input);
    let _ = SigningKey::from_pem(input);
    let _ = pem::private_key(input);
    if let Ok(lists) = RevocationLists::from_pem(input) {
        for list in lists.iter() {
            std::hint::black_box((list.issuer_text(), list.next()));
        }
    }
}

/// Names of workloads.
pub(crate) fn spiffe_id(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(identity) = text.parse::<Identity>() {
        assert_eq!(identity.to_string().parse().as_ref(), Ok(&identity));
    }
}

/// What bundle endpoints of other trust domains publish.
pub(crate) fn trust_bundle(input: &[u8]) {
    if let Ok(roots) = trust::parse(input) {
        let text = trust::write(&roots, 1, 300).expect("what was read can be written");
        assert_eq!(trust::parse(text.as_bytes()), Ok(roots));
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
    assert!(ISSUER.accept(token, now()).is_err(), "nobody has the key");
    assert!(!authentication::is_signed(token, KEYS), "nobody has the keys");
    let _ = authentication::is_signed(token, keys);
}
