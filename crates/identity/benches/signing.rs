//! How many requests an authority signs per second on one thread, beside the signature alone, which is the floor.
//!
//! Everything between the two is parsing and verifying the request and writing the certificate.

#![allow(missing_docs, reason = "a bench has no interface")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]

use std::hint::black_box;
use std::sync::Arc;

use canopus_identity::authority::{Authority, Lifetimes, Order};
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::request::Request;
use canopus_identity::self_signed::Profile;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustls_pki_types::UnixTime;

const IDENTITY: &str = "spiffe://cluster.local/ns/shop/sa/cart";

fn authority(kind: KeyKind) -> (Authority, SigningKey) {
    let now = UnixTime::now();
    let (certificate, key) = Profile { key: kind, ..Profile::default() }.create(now).unwrap();
    let certificate = certificate.to_pem().unwrap().into_bytes();
    let pem = key.to_pem().unwrap().as_bytes().to_vec().into();
    let parts = Parts { roots: certificate.clone(), certificate, key: pem, ..Parts::default() };
    let bundle = Arc::new(Bundle::new(&parts, now).unwrap());
    (Authority::with_bundle(Lifetimes::default(), bundle), key)
}

fn request(algorithm: &'static rcgen::SignatureAlgorithm) -> String {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let params = rcgen::CertificateParams::default();
    params.serialize_request(&key).unwrap().pem().unwrap()
}

fn signing(criterion: &mut Criterion) {
    for (name, kind) in [("rsa-2048", KeyKind::Rsa(2048)), ("p-256", KeyKind::P256)] {
        let (authority, key) = authority(kind);
        let order = Order {
            request: request(&rcgen::PKCS_ECDSA_P256_SHA256),
            identities: vec![IDENTITY.to_owned()],
            seconds: 0,
            signer: String::new(),
        };
        let mut group = criterion.benchmark_group(format!("signing/{name}"));
        group.throughput(Throughput::Elements(1));
        // As many bytes as the signed part of a leaf has.
        let message = vec![7; 400];
        group.bench_function("signature alone", |bencher| {
            bencher.iter(|| key.sign(black_box(&message)).unwrap());
        });
        // A request has to prove that its sender has the key, so nobody can sign without this.
        group.bench_function("request verified, then signature", |bencher| {
            bencher.iter(|| {
                Request::from_pem(black_box(&order.request)).unwrap();
                key.sign(black_box(&message)).unwrap()
            });
        });
        group.bench_function("request to chain", |bencher| {
            bencher.iter(|| authority.sign(black_box(&order), UnixTime::now()).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, signing);
criterion_main!(benches);
