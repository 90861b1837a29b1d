//! What is handed on to signers elsewhere, and what of their answers is believed.

use std::sync::Arc;

use canopus_identity::authority::{Authority, Lifetimes, Order, SignError};
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::external::{check_chain, check_order};
use canopus_identity::key::KeyKind;
use canopus_identity::self_signed::Profile;
use zeroize::Zeroizing;

use crate::openssl::{OpenSsl, now};

const WEB: &str = "spiffe://cluster.local/ns/demo/sa/web";
const OTHER: &str = "spiffe://cluster.local/ns/demo/sa/other";

fn signer() -> Authority {
    let profile = Profile { key: KeyKind::P256, ..Profile::default() };
    let (certificate, key) = profile.create(now()).unwrap();
    let pem = certificate.to_pem().unwrap().into_bytes();
    let key = Zeroizing::new(key.to_pem().unwrap().as_bytes().to_vec());
    let parts = Parts { certificate: pem.clone(), key, roots: pem, ..Parts::default() };
    Authority::with_bundle(Lifetimes::default(), Arc::new(Bundle::new(&parts, now()).unwrap()))
}

fn order(request: String, identity: &str) -> Order {
    Order { request, identities: vec![identity.to_owned()], seconds: 3600, signer: String::new() }
}

fn request(openssl: &OpenSsl, identity: &str) -> String {
    openssl.request("P-256", "/", &[&format!("subjectAltName=URI:{identity}")])
}

#[test]
fn request_is_handed_on_only_when_it_asks_for_the_callers_own_name() {
    let openssl = OpenSsl::new();
    let lifetimes = Lifetimes::default();
    assert!(check_order(&order(request(&openssl, WEB), WEB), lifetimes).is_ok());
    let asking = |extensions: &[&str], subject: &str| {
        check_order(&order(openssl.request("P-256", subject, extensions), WEB), lifetimes)
    };
    let (own, other) = (format!("subjectAltName=URI:{WEB}"), format!("subjectAltName=URI:{OTHER}"));
    let two = format!("{own},URI:{OTHER}");
    let with_host = format!("{own},DNS:istiod.istio-system.svc");
    let refused: [(&[&str], &str); 6] = [
        (&[&other], "/"),
        (&[&two], "/"),
        (&[&with_host], "/"),
        (&[], "/"),
        (&[&own], "/CN=admin"),
        (&[&own, "basicConstraints=critical,CA:TRUE"], "/"),
    ];
    for (extensions, subject) in refused {
        assert_eq!(asking(extensions, subject).unwrap_err(), SignError::Names, "{extensions:?} {subject}");
    }
    let long = Order { seconds: i64::MAX, ..order(request(&openssl, WEB), WEB) };
    assert!(matches!(check_order(&long, lifetimes), Err(SignError::Lifetime { .. })));
}

#[test]
fn answer_is_believed_when_it_is_what_was_asked_for() {
    let (openssl, signer) = (OpenSsl::new(), signer());
    let order = order(request(&openssl, WEB), WEB);
    let asked = check_order(&order, Lifetimes::default()).unwrap();
    let chain = signer.sign(&order, now()).unwrap();
    let roots = signer.bundle().unwrap().roots_pem().to_owned();
    let check = |text: &str, roots: &str| {
        check_chain(&asked, &order.identities, text.as_bytes(), roots.as_bytes(), now())
    };
    let answer = check(&chain[0], &roots).unwrap();
    openssl.verify(&answer);
    // A root in the answer will do where none is configured.
    assert_eq!(check(&chain.concat(), "").unwrap(), answer);
    let nowhere = check(&chain[0], "").unwrap_err().to_string();
    assert_eq!(nowhere, "failed to find root cert from either signed cert-chain or mesh config");
    // A root that is configured counts, whatever the answer brings along.
    let stranger = self::signer().bundle().unwrap().roots_pem().to_owned();
    assert!(check(&chain.concat(), &stranger).is_err());
    assert!(check("", &roots).is_err() && check("garbage", &roots).is_err());
}

#[test]
fn answer_is_refused_when_it_has_another_key_or_other_names() {
    let (openssl, signer) = (OpenSsl::new(), signer());
    let roots = signer.bundle().unwrap().roots_pem().to_owned();
    let first = order(request(&openssl, WEB), WEB);
    let asked = check_order(&first, Lifetimes::default()).unwrap();
    let refusal = |chain: &[String]| {
        let refused = check_chain(&asked, &first.identities, chain[0].as_bytes(), roots.as_bytes(), now());
        refused.unwrap_err().to_string()
    };
    let of_another_key = signer.sign(&order(request(&openssl, WEB), WEB), now()).unwrap();
    assert!(refusal(&of_another_key).contains("another key"));
    for names in [
        vec![OTHER.to_owned()],
        vec![WEB.to_owned(), OTHER.to_owned()],
        vec![WEB.to_owned(), "a.example".to_owned()],
    ] {
        let chain = signer.sign(&Order { identities: names, ..first.clone() }, now()).unwrap();
        assert!(refusal(&chain).contains("other names"));
    }
}
