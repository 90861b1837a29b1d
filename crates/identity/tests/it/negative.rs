//! Chains that look right and are not: each is refused, and the same chain without its fault is accepted.

use canopus_identity::certificate::Certificate;
use canopus_identity::trust::{PeerError, TrustDomains};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ED25519, SanType, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::openssl::OpenSsl;

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// What is wrong, and how it is made so.
type Fault = (&'static str, fn(&mut CertificateParams));

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn leaf_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::URI(CART.try_into().unwrap()));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn root() -> Issuer {
    CertifiedIssuer::self_signed(authority_params("root"), KeyPair::generate().unwrap()).unwrap()
}

fn under(issuer: &Issuer, params: CertificateParams) -> Issuer {
    CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), issuer).unwrap()
}

fn leaf(issuer: &Issuer, params: CertificateParams) -> CertificateDer<'static> {
    params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
}

fn verify(root: &Issuer, chain: &[CertificateDer<'static>]) -> Result<String, PeerError> {
    let mut domains = TrustDomains::default();
    domains.add("cluster.local", [Certificate::from_pem(root.pem().as_bytes()).unwrap()]);
    domains.verify(chain, UnixTime::now()).map(|identity| identity.to_string())
}

fn der(issuer: &Issuer) -> CertificateDer<'static> {
    issuer.der().clone()
}

#[test]
fn leaf_is_refused_when_its_time_usage_or_names_are_wrong() {
    let root = root();
    assert_eq!(verify(&root, &[leaf(&root, leaf_params())]).as_deref(), Ok(CART));
    let faults: [Fault; 9] = [
        ("expired", |params| params.not_after = date_time_ymd(2020, 1, 1)),
        ("not yet valid", |params| params.not_before = date_time_ymd(2100, 1, 1)),
        ("for signing code", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        }),
        ("two identities", |params| {
            let other = "spiffe://cluster.local/ns/shop/sa/other";
            params.subject_alt_names.push(SanType::URI(other.try_into().unwrap()));
        }),
        ("no identity", |params| params.subject_alt_names.clear()),
        ("a host name for an identity", |params| {
            params.subject_alt_names = vec![SanType::DnsName("cluster.local".try_into().unwrap())];
        }),
        ("another domain", |params| {
            let foreign = "spiffe://example.com/ns/shop/sa/cart";
            params.subject_alt_names = vec![SanType::URI(foreign.try_into().unwrap())];
        }),
        ("a path that is none of a workload", |params| {
            let odd = "spiffe://cluster.local/shop/cart";
            params.subject_alt_names = vec![SanType::URI(odd.try_into().unwrap())];
        }),
        ("an unknown critical extension", |params| {
            let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions.push(extension);
        }),
    ];
    for (fault, spoil) in faults {
        let mut params = leaf_params();
        spoil(&mut params);
        assert!(verify(&root, &[leaf(&root, params)]).is_err(), "{fault}");
    }
}

#[test]
fn names_with_control_characters_are_refused() {
    let root = root();
    for name in ["spiffe://cluster.local/ns/shop\0/sa/cart", "spiffe://cluster.local/ns/shop/sa/cart\n"] {
        let mut params = leaf_params();
        params.subject_alt_names = vec![SanType::URI(name.try_into().unwrap())];
        assert!(verify(&root, &[leaf(&root, params)]).is_err(), "{name:?}");
    }
}

#[test]
fn chain_is_refused_when_an_intermediate_may_not_sign() {
    let root = root();
    let good = under(&root, authority_params("intermediate"));
    let chain = [leaf(&good, leaf_params()), der(&good)];
    assert_eq!(verify(&root, &chain).as_deref(), Ok(CART));
    assert!(verify(&root, &chain[..1]).is_err(), "the intermediate is missing");

    let faults: [Fault; 5] = [
        ("no authority", |params| params.is_ca = IsCa::ExplicitNoCa),
        ("for lists alone", |params| params.key_usages = vec![KeyUsagePurpose::CrlSign]),
        ("expired", |params| params.not_after = date_time_ymd(2020, 1, 1)),
        ("names below another domain", |params| {
            let permitted_subtrees = vec![GeneralSubtree::DnsName("example.com".to_owned())];
            params.name_constraints =
                Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
        }),
        ("for servers of mail alone", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection];
        }),
    ];
    for (fault, spoil) in faults {
        let mut params = authority_params("intermediate");
        spoil(&mut params);
        let spoilt = under(&root, params);
        let mut named = leaf_params();
        // What a constraint on host names looks at.
        named.subject_alt_names.push(SanType::DnsName("shop.svc".try_into().unwrap()));
        let chain = [leaf(&spoilt, named), der(&spoilt)];
        assert!(verify(&root, &chain).is_err(), "{fault}");
    }
}

#[test]
fn chain_is_refused_when_it_is_longer_than_its_root_or_an_intermediate_allows() {
    let short = || {
        let mut params = authority_params("short");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params
    };
    let own = CertifiedIssuer::self_signed(short(), KeyPair::generate().unwrap()).unwrap();
    assert!(verify(&own, &[leaf(&own, leaf_params())]).is_ok());
    let between = under(&own, authority_params("between"));
    assert!(verify(&own, &[leaf(&between, leaf_params()), der(&between)]).is_err());

    let root = root();
    let first = under(&root, short());
    assert!(verify(&root, &[leaf(&first, leaf_params()), der(&first)]).is_ok());
    let second = under(&first, authority_params("second"));
    assert!(verify(&root, &[leaf(&second, leaf_params()), der(&second), der(&first)]).is_err());
}

#[test]
fn chain_is_refused_when_another_authority_of_the_same_name_signed_it() {
    let (root, twin) = (root(), root());
    assert!(verify(&root, &[leaf(&twin, leaf_params())]).is_err());
    // A leaf that vouches for another leaf.
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let workload = CertifiedIssuer::signed_by(leaf_params(), key, &root).unwrap();
    let forged = leaf(&workload, leaf_params());
    assert!(verify(&root, &[forged, der(&workload)]).is_err());
    assert!(verify(&root, &[]).is_err());
    assert!(verify(&root, &[CertificateDer::from(vec![0x30, 0x03, 1, 1, 0])]).is_err());
}

/// What no careful library writes is written by OpenSSL: weak keys, and names that are not ASCII.
#[test]
fn chain_is_refused_when_its_keys_are_weak_or_its_names_odd() {
    let openssl = OpenSsl::new();
    let certify = |key: &str, identity: &str| {
        let key = openssl.key(key);
        let authority = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"];
        let root = openssl.certify(&key, "/CN=root", None, &authority);
        let leaf = openssl.certify(
            &openssl.key("P-256"),
            "/CN=cart",
            Some((&root, &key)),
            &[
                "basicConstraints=critical,CA:FALSE",
                "extendedKeyUsage=clientAuth,serverAuth",
                &format!("subjectAltName=URI:{identity}"),
            ],
        );
        let mut domains = TrustDomains::default();
        domains.add("cluster.local", [Certificate::from_pem(root.as_bytes()).unwrap()]);
        let leaf = canopus_identity::pem::certificates(leaf.as_bytes()).unwrap();
        domains.verify(&leaf, UnixTime::now()).map(|identity| identity.to_string())
    };
    assert_eq!(certify("RSA-2048", CART).as_deref(), Ok(CART));
    assert_eq!(certify("P-256", CART).as_deref(), Ok(CART));
    assert!(certify("RSA-1024", CART).is_err(), "a short RSA key");
    assert!(certify("P-256", "spiffe://cluster.local/ns/sh\u{f6}p/sa/cart").is_err(), "not ASCII");
}
