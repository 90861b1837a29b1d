//! Client certificates that look right and are not, presented to the port of proxies: each is refused, and the same one without
//! its fault is accepted.

#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Certified, PluggedAuthority, channel};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
};

use crate::memory::plugged;
use crate::plane::{CART, NAME, Plane, certify};

/// What is wrong, and how it is made so.
type Fault = (&'static str, fn(&mut CertificateParams));

/// The identifier of alternative names.
const ALTERNATIVE_NAMES: [u64; 4] = [2, 5, 29, 17];

fn workload() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(CART.try_into().unwrap())];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "below");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn named(params: &mut CertificateParams, uris: &[&str]) {
    params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
}

/// One URI of any bytes, which no careful library writes.
fn named_in_bytes(params: &mut CertificateParams, uri: &[u8]) {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    let name = [&[0x86, length(uri)], uri].concat();
    let names = [&[0x30, length(&name)], name.as_slice()].concat();
    params.subject_alt_names.clear();
    params.custom_extensions.push(CustomExtension::from_oid_content(&ALTERNATIVE_NAMES, names));
}

fn constrained(params: &mut CertificateParams, permitted_subtrees: Vec<GeneralSubtree>) {
    params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
}

const OF_LEAVES: [Fault; 17] = [
    ("expired", |params| params.not_after = date_time_ymd(2020, 1, 1)),
    ("not yet valid", |params| params.not_before = date_time_ymd(2100, 1, 1)),
    ("for signing code", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]),
    ("for servers alone", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
    ("an authority", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
    ("two identities", |params| named(params, &[CART, "spiffe://cluster.local/ns/shop/sa/other"])),
    ("the same identity twice", |params| named(params, &[CART, CART])),
    ("no identity", |params| params.subject_alt_names.clear()),
    ("a host name for an identity", |params| {
        params.subject_alt_names = vec![SanType::DnsName("cluster.local".try_into().unwrap())];
    }),
    ("a common name for an identity", |params| {
        params.subject_alt_names.clear();
        params.distinguished_name.push(DnType::CommonName, CART);
    }),
    ("another trust domain", |params| named(params, &["spiffe://example.com/ns/shop/sa/cart"])),
    ("a trust domain in capitals", |params| named(params, &["spiffe://CLUSTER.LOCAL/ns/shop/sa/cart"])),
    ("a path that is none of a workload", |params| named(params, &["spiffe://cluster.local/shop/cart"])),
    ("a NUL in the namespace", |params| named(params, &["spiffe://cluster.local/ns/shop\0x/sa/cart"])),
    ("a newline at the end", |params| named(params, &["spiffe://cluster.local/ns/shop/sa/cart\n"])),
    ("a name that is not ASCII", |params| {
        named_in_bytes(params, "spiffe://cluster.local/ns/shöp/sa/cart".as_bytes());
    }),
    ("an unknown critical extension", |params| {
        let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    }),
];

const OF_AUTHORITIES: [Fault; 6] = [
    ("no authority", |params| params.is_ca = IsCa::ExplicitNoCa),
    ("an authority that may not sign", |params| params.key_usages = vec![KeyUsagePurpose::CrlSign]),
    ("an authority that has expired", |params| params.not_after = date_time_ymd(2020, 1, 1)),
    ("an authority for mail", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection];
    }),
    ("an authority for other host names", |params| {
        constrained(params, vec![GeneralSubtree::DnsName("example.com".to_owned())]);
    }),
    ("an authority for other addresses", |params| {
        constrained(
            params,
            vec![GeneralSubtree::IpAddress(rcgen::CidrSubnet::V4([10, 0, 0, 0], [255, 0, 0, 0]))],
        );
    }),
];

async fn renews(plane: &Plane, authority: &PluggedAuthority, own: &Certified) -> Result<()> {
    let channel = channel(&authority.root(), plane.secure, NAME, Some(own)).await?;
    Ok(certify(channel, CART, None).await.map(drop)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn port_of_proxies_refuses_certificates_with_a_fault() -> Result<()> {
    let plugged_in = PluggedAuthority::new(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let (plane, _) = plugged(&plugged_in).await?;
    let accepted = async |own: Certified| renews(&plane, &plugged_in, &own).await;
    accepted(plugged_in.issue(&workload())?).await.context("the one without a fault")?;
    for (fault, spoil) in OF_LEAVES {
        let mut params = workload();
        spoil(&mut params);
        ensure!(accepted(plugged_in.issue(&params)?).await.is_err(), "{fault}");
    }
    let mut in_bytes = workload();
    named_in_bytes(&mut in_bytes, CART.as_bytes());
    accepted(plugged_in.issue(&in_bytes)?).await.context("names that are written in place")?;

    // What constraints of names look at.
    let mut named = workload();
    named.subject_alt_names.push(SanType::DnsName("cart.shop.svc".try_into().unwrap()));
    named.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 1].into()));
    accepted(plugged_in.issue_below(authority(), &named)?).await.context("the chain without a fault")?;
    for (fault, spoil) in OF_AUTHORITIES {
        let mut params = authority();
        spoil(&mut params);
        ensure!(accepted(plugged_in.issue_below(params, &named)?).await.is_err(), "{fault}");
    }
    // Another root of the same name, and a workload that vouches for another one.
    let twin = PluggedAuthority::new(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    ensure!(accepted(twin.issue(&workload())?).await.is_err(), "another authority of the same name");
    ensure!(
        accepted(plugged_in.issue_below(workload(), &workload())?).await.is_err(),
        "signed by a workload"
    );
    Ok(())
}
