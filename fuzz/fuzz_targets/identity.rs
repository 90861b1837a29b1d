//! What callers and other authorities send: certificate requests, PEM, certificates, SPIFFE identities and bundles, tokens.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use canopus_base::spiffe::Identity;
use canopus_identity::certificate::Certificate;
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::request::Request;
use canopus_identity::token::{MemoryUses, TokenIssuer};
use canopus_identity::{pem, trust};
use libfuzzer_sys::fuzz_target;
use rustls_pki_types::UnixTime;

static ISSUER: LazyLock<TokenIssuer> = LazyLock::new(|| {
    let key = SigningKey::generate(KeyKind::P256).expect("a key can be made");
    TokenIssuer::new("istio-ca", &key, Box::<MemoryUses>::default()).expect("the key is of the right kind")
});

fuzz_target!(|data: &[u8]| {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let _ = Request::from_der(data);
    let _ = pem::first(data);
    let _ = SigningKey::from_pem(data);
    if let Ok(certificate) = Certificate::from_der(data.to_vec().into()) {
        let text = certificate.to_pem().expect("what was read can be written");
        assert_eq!(Certificate::from_pem(text.as_bytes()).as_ref(), Ok(&certificate));
    }
    if let Ok(roots) = trust::parse(data) {
        let text = trust::write(&roots, 1, 300).expect("what was read can be written");
        assert_eq!(trust::parse(text.as_bytes()), Ok(roots));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Request::from_pem(text);
        assert!(ISSUER.accept(text, now).is_err(), "nobody has the key");
        if let Ok(identity) = text.parse::<Identity>() {
            assert_eq!(identity.to_string().parse().as_ref(), Ok(&identity));
        }
    }
});
