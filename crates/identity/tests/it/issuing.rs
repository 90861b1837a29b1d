//! What the authority issues, judged by OpenSSL.

use std::sync::Arc;
use std::time::Duration;

use canopus_identity::authority::{Authority, Lifetimes, Order, SignError};
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::self_signed::Profile;
use canopus_identity::{BundleError, Certificate};
use rustls_pki_types::UnixTime;
use zeroize::Zeroizing;

use crate::openssl::{self, OpenSsl, now};

const WEB: &str = "spiffe://cluster.local/ns/demo/sa/web";

fn self_signed(kind: KeyKind) -> Bundle {
    let (certificate, key) = Profile { key: kind, ..Profile::default() }.create(now()).unwrap();
    let pem = certificate.to_pem().unwrap().into_bytes();
    let key = Zeroizing::new(key.to_pem().unwrap().as_bytes().to_vec());
    Bundle::new(&Parts { certificate: pem.clone(), key, roots: pem, ..Parts::default() }, now()).unwrap()
}

fn authority(bundle: Bundle) -> Authority {
    Authority::with_bundle(Lifetimes::default(), Arc::new(bundle))
}

fn order(request: String) -> Order {
    Order { request, identities: vec![WEB.to_owned()], seconds: 0, signer: String::new() }
}

#[test]
fn openssl_verifies_leaves_of_every_key_under_roots_of_every_key() {
    let openssl = OpenSsl::new();
    let requests: Vec<_> = openssl::ALGORITHMS.iter().map(|name| openssl.request(name, "/", &[])).collect();
    for kind in [KeyKind::Rsa(2048), KeyKind::P256, KeyKind::P384, KeyKind::P521, KeyKind::Ed25519] {
        let authority = authority(self_signed(kind));
        for request in &requests {
            let chain = authority.sign(&order(request.clone()), now()).unwrap();
            openssl.verify(&chain);
        }
    }
}

#[test]
fn leaf_has_the_fields_of_istiods_leaves() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let chain = authority.sign(&order(openssl.request("P-256", "/", &[])), now()).unwrap();
    let text = openssl.text(&chain[0]);
    let order = [
        "X509v3 Key Usage: critical",
        "Digital Signature, Key Encipherment",
        "X509v3 Extended Key Usage: \n",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "X509v3 Basic Constraints: critical",
        "CA:FALSE",
        "X509v3 Authority Key Identifier: \n",
        "X509v3 Subject Alternative Name: critical",
        "URI:spiffe://cluster.local/ns/demo/sa/web",
    ];
    let mut rest = text.as_str();
    for part in order {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is not where it should be in\n{text}"));
        rest = &rest[at + part.len()..];
    }
    assert!(text.contains("Subject: \n"), "{text}");
    let leaf = Certificate::from_pem(chain[0].as_bytes()).unwrap();
    assert_eq!(leaf.lifetime(), Duration::from_secs(86_400 + 120));
    assert_eq!(now().as_secs() - leaf.not_before().as_secs(), 120);
    assert_eq!(leaf.uris(), [WEB]);
}

/// A clock that is wrong for a while spoils what is issued meanwhile and nothing else.
#[test]
fn validity_follows_a_clock_that_jumps_a_day_and_back() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let order = order(openssl.request("P-256", "/", &[]));
    let day = 24 * 60 * 60;
    let at = |seconds: u64| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let right = now();
    for clock in [right, at(right.as_secs() + day), right, at(right.as_secs() - day), right] {
        let chain = authority.sign(&order, clock).unwrap();
        let leaf = Certificate::from_pem(chain[0].as_bytes()).unwrap();
        assert!(leaf.is_valid_at(clock));
        assert_eq!(leaf.lifetime(), Duration::from_secs(day + 120));
        assert_eq!(leaf.is_valid_at(right), clock.as_secs() == right.as_secs());
    }
    openssl.verify(&authority.sign(&order, right).unwrap());
}

#[test]
fn names_come_from_the_caller_whatever_the_request_asks_for() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let extensions = [
        "subjectAltName=URI:spiffe://cluster.local/ns/other/sa/other,DNS:istiod",
        "basicConstraints=critical,CA:TRUE",
    ];
    let chain =
        authority.sign(&order(openssl.request("P-256", "/O=Example/CN=web", &extensions)), now()).unwrap();
    let leaf = Certificate::from_pem(chain[0].as_bytes()).unwrap();
    assert_eq!(leaf.uris(), [WEB]);
    assert!(!leaf.is_authority());
    // A common name asks for one, and is not the one that is given.
    assert_eq!(leaf.subject_text(), format!("CN={WEB}"));
    let text = openssl.text(&chain[0]);
    assert!(!text.contains("istiod") && !text.contains("CA:TRUE"), "{text}");
}

#[test]
fn common_name_is_left_out_when_it_is_too_long() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let long = format!("spiffe://cluster.local/ns/demo/sa/{}", "a".repeat(40));
    let order = Order { identities: vec![long], ..order(openssl.request("P-256", "/CN=web", &[])) };
    let chain = authority.sign(&order, now()).unwrap();
    assert_eq!(Certificate::from_pem(chain[0].as_bytes()).unwrap().subject_text(), "");
}

#[test]
fn several_identities_addresses_and_names_are_certified_as_what_they_are() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let names = [WEB, "istiod.istio-system.svc", "10.0.0.1", "fd00::1"];
    let identities = names.iter().map(|name| (*name).to_owned()).collect();
    let order = Order { identities, ..order(openssl.request("P-256", "/", &[])) };
    let text = openssl.text(&authority.sign(&order, now()).unwrap()[0]);
    let names = "URI:spiffe://cluster.local/ns/demo/sa/web, DNS:istiod.istio-system.svc, IP Address:10.0.0.1, \
                 IP Address:FD00:0:0:0:0:0:0:1";
    assert!(text.contains(names), "{text}");
}

#[test]
fn name_is_refused_when_it_could_be_taken_for_another() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let request = openssl.request("P-256", "/", &[]);
    for name in [
        "",
        "spiffe://td/ns/a/sa/b\0.evil",
        "spiffe://td/ns/a/sa/b,spiffe://td/ns/c/sa/d",
        "spiffe://tä/ns/a/sa/b",
        "a b",
        "a\n",
    ] {
        let order = Order { identities: vec![name.to_owned()], ..order(request.clone()) };
        let error = authority.sign(&order, now()).unwrap_err();
        assert!(matches!(error, SignError::Generation(_)), "{name:?}: {error}");
    }
}

#[test]
fn lifetime_is_what_was_asked_for_within_bounds() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let request = openssl.request("P-256", "/", &[]);
    let lifetime = |seconds| {
        let order = Order { seconds, ..order(request.clone()) };
        let chain = authority.sign(&order, now()).map_err(|error| error.to_string())?;
        Ok::<_, String>(Certificate::from_pem(chain[0].as_bytes()).unwrap().lifetime().as_secs())
    };
    assert_eq!(lifetime(3600), Ok(3720));
    assert_eq!(lifetime(1), Ok(121));
    assert_eq!(lifetime(0), Ok(86_520));
    assert_eq!(lifetime(-5), Ok(86_520));
    assert_eq!(lifetime(i64::MIN), Ok(86_520));
    assert_eq!(lifetime(7_776_000), Ok(7_776_120));
    assert_eq!(
        lifetime(7_776_001).unwrap_err(),
        "requested TTL 2160h0m1s is greater than the max allowed TTL 2160h0m0s"
    );
    assert!(lifetime(i64::MAX).is_err());
}

#[test]
fn leaf_ends_with_its_signer() {
    let openssl = OpenSsl::new();
    let profile = Profile { key: KeyKind::P256, lifetime: Duration::from_secs(600), ..Profile::default() };
    let (certificate, key) = profile.create(now()).unwrap();
    let pem = certificate.to_pem().unwrap().into_bytes();
    let key = Zeroizing::new(key.to_pem().unwrap().as_bytes().to_vec());
    let bundle = Bundle::new(&Parts { certificate: pem.clone(), key, roots: pem, ..Parts::default() }, now());
    let authority = authority(bundle.unwrap());
    let request = openssl.request("P-256", "/", &[]);
    let chain = authority.sign(&order(request.clone()), now()).unwrap();
    assert_eq!(Certificate::from_pem(chain[0].as_bytes()).unwrap().not_after(), certificate.not_after());
    let later = UnixTime::since_unix_epoch(Duration::from_secs(certificate.not_after().as_secs()));
    let error = authority.sign(&order(request), later).unwrap_err();
    assert!(error.to_string().starts_with("signing certificate has expired"), "{error}");
}

#[test]
fn request_is_refused_with_istiods_words() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let refusal = |request: &str| authority.sign(&order(request.to_owned()), now()).unwrap_err().to_string();
    assert_eq!(refusal(""), "certificate signing request is not properly encoded");
    assert_eq!(refusal("garbage"), "certificate signing request is not properly encoded");
    let root = authority.bundle().unwrap().roots_pem().to_owned();
    assert_eq!(refusal(&root), "failed to parse X.509 certificate signing request");
    let damaged = |algorithm| openssl::flip_last_byte(&openssl.request(algorithm, "/", &[]));
    assert_eq!(refusal(&damaged("RSA-2048")), "crypto/rsa: verification error");
    assert_eq!(refusal(&damaged("RSA-1024")), "crypto/rsa: verification error");
    assert_eq!(refusal(&damaged("P-384")), "x509: ECDSA verification failure");
    assert_eq!(refusal(&damaged("ED25519")), "x509: Ed25519 verification failure");
    let short = refusal(&openssl.request("RSA-512", "/", &[]));
    assert!(short.starts_with("crypto/rsa: 512-bit keys are insecure"), "{short}");
    let sha1 = refusal(&openssl.request_with("RSA-2048", "/", &[], &["-sha1"]));
    assert_eq!(sha1, "x509: cannot verify signature: algorithm unimplemented");
    let large = "x".repeat(canopus_identity::request::LARGEST + 1);
    assert!(refusal(&large).contains("more than the allowed"));
}

#[test]
fn second_request_in_the_text_is_ignored() {
    let openssl = OpenSsl::new();
    let authority = authority(self_signed(KeyKind::P256));
    let both = openssl.request("RSA-2048", "/", &[]) + &openssl.request("P-256", "/", &[]);
    let chain = authority.sign(&order(both), now()).unwrap();
    assert!(openssl.text(&chain[0]).contains("rsaEncryption"));
}

#[test]
fn intermediates_are_single_elements_and_roots_are_one() {
    let openssl = OpenSsl::new();
    let pki = openssl.hierarchy("P-256", 2);
    let other = openssl.hierarchy("P-256", 0);
    let parts = Parts {
        certificate: pki.signing.clone().into_bytes(),
        key: Zeroizing::new(pki.key.clone().into_bytes()),
        chain: pki.intermediates.concat().into_bytes(),
        roots: (pki.root.clone() + &other.root).into_bytes(),
        crl: Vec::new(),
    };
    let authority = authority(Bundle::new(&parts, now()).unwrap());
    let chain = authority.sign(&order(openssl.request("P-256", "/", &[])), now()).unwrap();
    let counts: Vec<_> =
        chain.iter().map(|text| Certificate::all_from_pem(text.as_bytes()).unwrap().len()).collect();
    assert_eq!(counts, [1, 1, 1, 2]);
    assert!(chain.iter().all(|text| text.ends_with('\n')));
    openssl.verify(&chain);
}

#[test]
fn bundle_is_refused_when_what_it_issues_would_not_verify() {
    let openssl = OpenSsl::new();
    let (pki, other) = (openssl.hierarchy("P-256", 2), openssl.hierarchy("P-256", 1));
    let good = Parts {
        certificate: pki.signing.clone().into_bytes(),
        key: Zeroizing::new(pki.key.clone().into_bytes()),
        chain: pki.intermediates.concat().into_bytes(),
        roots: pki.root.clone().into_bytes(),
        crl: Vec::new(),
    };
    Bundle::new(&good, now()).unwrap();
    let refused = |parts: Parts| Bundle::new(&parts, now()).map(|_| ()).unwrap_err();
    let wrong_key = refused(Parts { key: Zeroizing::new(other.key.clone().into_bytes()), ..good.clone() });
    assert!(wrong_key.to_string().contains("the cert does not match the key"), "{wrong_key}");
    let wrong_root = refused(Parts { roots: other.root.clone().into_bytes(), ..good.clone() });
    assert!(matches!(wrong_root, BundleError::Chain(_)), "{wrong_root}");
    let no_chain = refused(Parts { chain: Vec::new(), ..good.clone() });
    assert!(matches!(no_chain, BundleError::Chain(_)), "{no_chain}");
    assert_eq!(refused(Parts { roots: Vec::new(), ..good.clone() }), BundleError::NoRoots);
    let leaf = openssl.end_entity("P-256");
    let not_ca = refused(Parts {
        certificate: leaf.signing.clone().into_bytes(),
        key: Zeroizing::new(leaf.key.clone().into_bytes()),
        roots: leaf.root.clone().into_bytes(),
        ..Parts::default()
    });
    assert!(not_ca.to_string().contains("not authorized to sign"), "{not_ca}");
    let later = UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs() + 100 * 365 * 86_400));
    assert!(matches!(Bundle::new(&good, later).unwrap_err(), BundleError::Time { .. }));
    let earlier = UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs() - 100 * 86_400));
    assert!(matches!(Bundle::new(&good, earlier).unwrap_err(), BundleError::Time { .. }));
}

#[test]
fn nothing_that_is_shown_has_key_material() {
    let bundle = self_signed(KeyKind::P256);
    let pem = bundle.signer().key().to_pem().unwrap();
    let secret: Vec<&str> = pem.lines().filter(|line| !line.starts_with("---")).collect();
    let shown = format!("{bundle:?} {:?}", authority(self_signed(KeyKind::Rsa(2048))));
    assert!(secret.iter().all(|line| !shown.contains(line)) && !shown.contains("PRIVATE"), "{shown}");
    let error =
        SigningKey::from_pem(pem.replace("EC PRIVATE", "RSA PRIVATE").as_bytes()).unwrap_err().to_string();
    assert!(secret.iter().all(|line| !error.contains(line)), "{error}");
}
