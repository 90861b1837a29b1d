//! Trust between domains, join tokens, and what expires when.

use std::time::Duration;

use canopus_identity::Certificate;
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::forecast::{self, Role, Verdict};
use canopus_identity::issue::{Leaf, Signer};
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::self_signed::Profile;
use canopus_identity::token::{self, Grant, MemoryUses, TokenError, TokenIssuer};
use canopus_identity::trust::{self, PeerError, TrustDomains, TrustError};
use rustls_pki_types::{CertificateDer, UnixTime};
use zeroize::Zeroizing;

use crate::openssl::now;

fn after(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs() + seconds))
}

fn root(kind: KeyKind) -> (Certificate, SigningKey) {
    Profile { key: kind, ..Profile::default() }.create(now()).unwrap()
}

fn leaf(signer: &Signer, names: &[&str]) -> CertificateDer<'static> {
    let key = SigningKey::generate(KeyKind::P256).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = Leaf {
        public_key: key.public_key(),
        names: &names,
        has_common_name: false,
        not_before: now(),
        not_after: after(3600),
    };
    signer.issue(&leaf).unwrap()
}

#[test]
fn bundle_survives_text_and_back() {
    let roots: Vec<_> =
        [KeyKind::Rsa(2048), KeyKind::P256, KeyKind::P384, KeyKind::Ed25519].map(|kind| root(kind).0).into();
    let text = trust::write(&roots, 7, 300).unwrap();
    assert_eq!(trust::parse(text.as_bytes()).unwrap(), roots);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["spiffe_sequence"], 7);
    let types: Vec<_> =
        json["keys"].as_array().unwrap().iter().map(|key| key["kty"].as_str().unwrap()).collect();
    assert_eq!(types, ["RSA", "EC", "EC", "OKP"]);
}

#[test]
fn bundle_is_refused_when_it_vouches_for_nobody() {
    let refused = |text: &str| trust::parse(text.as_bytes()).unwrap_err();
    assert_eq!(refused(r#"{"keys": []}"#), TrustError::Empty);
    assert_eq!(refused(r#"{"keys": [{"use": "jwt-svid"}]}"#), TrustError::Empty);
    assert_eq!(refused(r#"{"keys": [{"use": "x509-svid"}]}"#), TrustError::Count { entry: 0, count: 0 });
    assert!(matches!(refused("garbage"), TrustError::Syntax(_)));
    let large = " ".repeat(trust::LARGEST + 1);
    assert!(matches!(refused(&large), TrustError::TooLarge(_)));
    let (certificate, key) = root(KeyKind::P256);
    let signer = Signer::new(certificate, key).unwrap();
    let end_entity = Certificate::from_der(leaf(&signer, &["spiffe://td/ns/a/sa/b"])).unwrap();
    let text = trust::write(&[end_entity], 0, 0).unwrap();
    assert_eq!(refused(&text), TrustError::NotAuthority(0));
}

#[test]
fn peer_is_verified_with_the_roots_of_its_own_domain_alone() {
    let ((one, one_key), (other, other_key)) = (root(KeyKind::P256), root(KeyKind::P256));
    let mut domains = TrustDomains::default();
    domains.add("one", [one.clone()]);
    domains.add("other", [other.clone()]);
    let (one, other) = (Signer::new(one, one_key).unwrap(), Signer::new(other, other_key).unwrap());
    let verify = |leaf: CertificateDer<'static>| domains.verify(&[leaf], now());
    let identity = verify(leaf(&one, &["spiffe://one/ns/a/sa/b"])).unwrap();
    assert_eq!(identity.to_string(), "spiffe://one/ns/a/sa/b");
    // A root of one domain cannot speak for another.
    assert!(matches!(verify(leaf(&other, &["spiffe://one/ns/a/sa/b"])), Err(PeerError::Chain(_))));
    let unknown = verify(leaf(&one, &["spiffe://third/ns/a/sa/b"])).unwrap_err();
    assert_eq!(unknown.to_string(), "no cert pool found for trust domain third");
    let two = verify(leaf(&one, &["spiffe://one/ns/a/sa/b", "spiffe://one/ns/a/sa/c"]));
    assert_eq!(two, Err(PeerError::Count(2)));
    assert_eq!(verify(leaf(&one, &["a.example"])), Err(PeerError::Count(0)));
    assert!(matches!(verify(leaf(&one, &["spiffe://one/other"])), Err(PeerError::Identity(_))));
    let late = domains.verify(&[leaf(&one, &["spiffe://one/ns/a/sa/b"])], after(3601));
    assert!(matches!(late, Err(PeerError::Chain(_))));
    assert_eq!(domains.verify(&[], now()), Err(PeerError::Count(0)));
}

fn grant() -> Grant {
    Grant {
        namespace: "shop".to_owned(),
        service_account: "cart".to_owned(),
        lifetime: Duration::from_secs(600),
        single_use: false,
    }
}

fn issuer(audience: &str, key: &SigningKey) -> TokenIssuer {
    TokenIssuer::new(audience, key, Box::<MemoryUses>::default()).unwrap()
}

#[test]
fn token_counts_for_its_account_and_its_time() {
    let key = SigningKey::generate(KeyKind::P256).unwrap();
    let issuer = issuer("istio-ca", &key);
    let token = issuer.issue(&grant(), now()).unwrap();
    let owner = Ok(("shop".to_owned(), "cart".to_owned()));
    assert_eq!(issuer.accept(&token, now()), owner);
    assert_eq!(issuer.accept(&token, now()), owner);
    assert!(matches!(issuer.accept(&token, after(600)), Err(TokenError::Refused(_))));
    let jwks = serde_json::to_value(issuer.jwks()).unwrap();
    assert_eq!(jwks["keys"][0]["kty"], "EC");
    assert!(jwks["keys"][0].get("d").is_none(), "{jwks}");
}

#[test]
fn token_is_refused_when_it_is_of_another_audience_or_key() {
    let key = SigningKey::generate(KeyKind::P256).unwrap();
    let issuer = issuer("istio-ca", &key);
    let refused = |token: &str| matches!(issuer.accept(token, now()), Err(TokenError::Refused(_)));
    assert!(refused(&self::issuer("other", &key).issue(&grant(), now()).unwrap()));
    let stranger = SigningKey::generate(KeyKind::P256).unwrap();
    let stranger = self::issuer("istio-ca", &stranger);
    assert!(refused(&stranger.issue(&grant(), now()).unwrap()));
    let good = issuer.issue(&grant(), now()).unwrap();
    let unsigned = format!("{}.", good.rsplit_once('.').unwrap().0);
    assert!(refused(&unsigned) && refused("garbage") && refused(&"a".repeat(20_000)));
}

#[test]
fn token_of_a_single_use_counts_once() {
    let key = SigningKey::generate(KeyKind::P256).unwrap();
    let issuer = issuer("istio-ca", &key);
    let token = issuer.issue(&Grant { single_use: true, ..grant() }, now()).unwrap();
    assert!(issuer.accept(&token, now()).is_ok());
    assert_eq!(issuer.accept(&token, now()), Err(TokenError::Used));
}

#[test]
fn token_of_a_single_use_is_not_used_up_by_being_verified() {
    let key = SigningKey::generate(KeyKind::P256).unwrap();
    let issuer = issuer("istio-ca", &key);
    let token = issuer.issue(&Grant { single_use: true, ..grant() }, now()).unwrap();
    assert!(issuer.is_own(&token) && !issuer.is_own("a.b.c"));
    assert!(issuer.verify(&token, now()).unwrap().single_use);
    assert!(issuer.accept(&token, now()).is_ok());
}

#[tokio::test]
async fn token_of_a_directory_counts_once_in_all_processes_that_share_it() {
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("mesh-ca");
    let first = token::open_directory(&authority, "istio-ca").await.unwrap();
    let second = token::open_directory(&authority, "istio-ca").await.unwrap();
    let token = first.issue(&Grant { single_use: true, ..grant() }, now()).unwrap();
    assert!(second.accept(&token, now()).is_ok());
    assert_eq!(first.accept(&token, now()), Err(TokenError::Used));
    let restarted = token::open_directory(&authority, "istio-ca").await.unwrap();
    assert_eq!(restarted.accept(&token, now()), Err(TokenError::Used));
    assert!(matches!(restarted.accept(&token, after(600)), Err(TokenError::Refused(_))));
    // Expired numbers are removed when the next token is used.
    let later = first.issue(&Grant { single_use: true, ..grant() }, after(700)).unwrap();
    assert!(restarted.accept(&later, after(700)).is_ok());
    let used = std::fs::read_dir(authority.join(token::DIRECTORY).join("used")).unwrap().count();
    assert_eq!(used, 1);
}

#[test]
fn token_is_not_issued_without_bounds() {
    let key = SigningKey::generate(KeyKind::P256).unwrap();
    let issuer = issuer("istio-ca", &key);
    let long = Grant { lifetime: Duration::from_secs(25 * 3600), ..grant() };
    assert_eq!(issuer.issue(&long, now()), Err(TokenError::Lifetime));
    for account in ["a:b", "", "../x", "A", &"a".repeat(254)] {
        let nobody = Grant { service_account: account.to_owned(), ..grant() };
        assert_eq!(issuer.issue(&nobody, now()), Err(TokenError::Account), "{account:?}");
    }
}

#[test]
fn forecast_names_what_expires_first() {
    let profile = Profile { key: KeyKind::P256, lifetime: Duration::from_secs(1000), ..Profile::default() };
    let (certificate, key) = profile.create(now()).unwrap();
    let pem = certificate.to_pem().unwrap().into_bytes();
    let key = Zeroizing::new(key.to_pem().unwrap().as_bytes().to_vec());
    let (later, _) = root(KeyKind::P256);
    let roots = [pem.clone(), later.to_pem().unwrap().into_bytes()].concat();
    let parts = Parts { certificate: pem, key, roots, ..Parts::default() };
    let bundle = Bundle::new(&parts, now()).unwrap();
    let at = |seconds| {
        let entries = forecast::forecast_bundle(&bundle, after(seconds));
        entries.into_iter().map(|entry| (entry.role, entry.verdict)).collect::<Vec<_>>()
    };
    let fine = Verdict::Fine;
    assert_eq!(at(10), [(Role::Root, fine), (Role::Signing, fine), (Role::Root, fine)]);
    assert_eq!(at(900)[0].1, Verdict::Due);
    assert_eq!(at(1000)[1].1, Verdict::Expired);
}
