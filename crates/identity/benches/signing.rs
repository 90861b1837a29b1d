//! How many requests an authority signs per second on one core, beside what the cryptographic library alone takes for it.
//!
//! The library's share is what nobody can leave out: verifying the signature of the request, which proves that the sender has
//! the key, and signing the certificate. The rest is reading PEM and DER and writing them.
//!
//! It fails if the authority does less than [`LEAST_SHARE`] of what the library does.

#![allow(missing_docs, reason = "a bench has no interface")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use canopus_identity::authority::{Authority, Lifetimes, Order};
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::pem;
use canopus_identity::self_signed::Profile;
use der::{Decode as _, Encode as _};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{PrivatePkcs8KeyDer, UnixTime};
use x509_cert::request::CertReq;

const IDENTITY: &str = "spiffe://cluster.local/ns/shop/sa/cart";

/// Bytes of the signed part of a leaf.
const LEAF: usize = 600;

/// How often both are measured in turn. The fastest time of each counts: it is the one that nothing else disturbed.
const ROUNDS: usize = 60;

/// How long a measurement takes.
const BATCH: Duration = Duration::from_millis(20);

/// The least share of the library's requests per second that the authority may make, in percent.
const LEAST_SHARE: f64 = 80.0;

fn main() -> ExitCode {
    println!(
        "| root | key of the request | library alone | request to chain | share |\n|---|---|---|---|---|"
    );
    let mut is_fast = true;
    for root in [KeyKind::Rsa(2048), KeyKind::P256] {
        for request in [KeyKind::Rsa(2048), KeyKind::P256] {
            is_fast &= compare(root, request) >= LEAST_SHARE;
        }
    }
    if is_fast {
        return ExitCode::SUCCESS;
    }
    println!(
        "\nA share is below {LEAST_SHARE} %. Figures of a busy machine say nothing: measure again when it is idle."
    );
    ExitCode::FAILURE
}

/// Prints what both do per second; the share in percent.
fn compare(root: KeyKind, of_request: KeyKind) -> f64 {
    let (authority, key) = authority(root);
    let order = Order {
        request: request(of_request),
        identities: vec![IDENTITY.to_owned()],
        seconds: 0,
        signer: String::new(),
    };
    let (public, content, signature) = signed_parts(&order.request);
    let message = vec![7; LEAF];
    let mut library = || {
        let verified = match of_request {
            KeyKind::Rsa(_) => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &public).verify(&content, &signature)
            }
            _ => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public).verify(&content, &signature),
        };
        verified.unwrap();
        black_box(key.sign(black_box(&message)).unwrap());
    };
    let mut whole = || {
        black_box(authority.sign(black_box(&order), UnixTime::now()).unwrap());
    };
    let (mut alone, mut chain) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        alone = alone.min(time(&mut library));
        chain = chain.min(time(&mut whole));
    }
    let per_second = |time: Duration| 1.0 / time.as_secs_f64();
    let share = 100.0 * alone.as_secs_f64() / chain.as_secs_f64();
    println!(
        "| {root:?} | {of_request:?} | {:.0}/s | {:.0}/s | {share:.0} % |",
        per_second(alone),
        per_second(chain),
    );
    share
}

/// How long one call takes.
fn time(work: &mut impl FnMut()) -> Duration {
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < BATCH {
        work();
        count += 1;
    }
    started.elapsed() / count
}

fn authority(kind: KeyKind) -> (Authority, SigningKey) {
    let now = UnixTime::now();
    let (certificate, key) = Profile { key: kind, ..Profile::default() }.create(now).unwrap();
    let certificate = certificate.to_pem().unwrap().into_bytes();
    let pem = key.to_pem().unwrap().as_bytes().to_vec().into();
    let parts = Parts { roots: certificate.clone(), certificate, key: pem, ..Parts::default() };
    let bundle = Arc::new(Bundle::new(&parts, now).unwrap());
    (Authority::with_bundle(Lifetimes::default(), bundle), key)
}

/// A request as agents make it.
fn request(kind: KeyKind) -> String {
    let key = SigningKey::generate(kind).unwrap().to_pkcs8().unwrap();
    let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.as_slice())).unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI(IDENTITY.try_into().unwrap())];
    params.serialize_request(&key).unwrap().pem().unwrap()
}

/// The public key of a request, what is signed of it, and the signature.
fn signed_parts(request: &str) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (_, der) = pem::first(request.as_bytes()).unwrap();
    let read = CertReq::from_der(&der).unwrap();
    let public = read.info.public_key.subject_public_key.raw_bytes().to_vec();
    (public, read.info.to_der().unwrap(), read.signature.raw_bytes().to_vec())
}
