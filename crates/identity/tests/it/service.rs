//! Which callers get a certificate for which identity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use canopus_base::spiffe::Identity;
use canopus_identity::Certificate;
use canopus_identity::authority::{Authority, Lifetimes, SignErrorKind};
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::key::KeyKind;
use canopus_identity::self_signed::Profile;
use canopus_identity::service::{Caller, CertificateService, Code, NodeAuthorizer, Observer, Refusal};
use canopus_proto::google::protobuf::{Struct, Value, value::Kind};
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::openssl::{OpenSsl, now};

const ZTUNNEL: &str = "spiffe://cluster.local/ns/istio-system/sa/ztunnel";
const WEB: &str = "spiffe://cluster.local/ns/demo/sa/web";

#[derive(Default)]
struct Counts {
    received: AtomicUsize,
    unauthenticated: AtomicUsize,
    issued: AtomicUsize,
    failed: Mutex<Vec<SignErrorKind>>,
}

impl Observer for Counts {
    fn received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }
    fn unauthenticated(&self) {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
    }
    fn failed(&self, kind: SignErrorKind) {
        self.failed.lock().push(kind);
    }
    fn issued(&self) {
        self.issued.fetch_add(1, Ordering::Relaxed);
    }
}

/// A node with the workloads of one service account.
struct Node;

impl NodeAuthorizer for Node {
    fn authorize(&self, caller: &Caller, requested: &Identity) -> Result<(), String> {
        let here = &*requested.namespace == "demo" && &*requested.service_account == "web";
        if here && caller.identities == [ZTUNNEL] { Ok(()) } else { Err("not on this node".to_owned()) }
    }
}

fn authority() -> Authority {
    let (certificate, key) = Profile { key: KeyKind::P256, ..Profile::default() }.create(now()).unwrap();
    let pem = certificate.to_pem().unwrap().into_bytes();
    let key = Zeroizing::new(key.to_pem().unwrap().as_bytes().to_vec());
    let bundle = Bundle::new(&Parts { certificate: pem.clone(), key, roots: pem, ..Parts::default() }, now());
    Authority::with_bundle(Lifetimes::default(), Arc::new(bundle.unwrap()))
}

fn caller(identity: &str) -> Caller {
    Caller { identities: vec![identity.to_owned()], ..Caller::default() }
}

fn request(metadata: &[(&str, Kind)]) -> IstioCertificateRequest {
    let fields = metadata.iter().map(|(key, kind)| ((*key).to_owned(), Value { kind: Some(kind.clone()) }));
    IstioCertificateRequest {
        csr: OpenSsl::new().request("P-256", "/", &[]),
        validity_duration: 0,
        metadata: Some(Struct { fields: fields.collect() }),
    }
}

fn certified(result: Result<Vec<String>, Refusal>) -> Result<Vec<String>, (Code, String)> {
    let chain = result.map_err(|refusal| (refusal.code, refusal.message))?;
    Ok(Certificate::from_pem(chain[0].as_bytes()).unwrap().uris().to_vec())
}

#[test]
fn caller_gets_a_certificate_of_its_own_identity() {
    let counts = Arc::new(Counts::default());
    let service = CertificateService::new(counts.clone());
    let result = service.create_certificate(&caller(WEB), &request(&[]), &authority(), now());
    assert_eq!(certified(result), Ok(vec![WEB.to_owned()]));
    assert_eq!(counts.received.load(Ordering::Relaxed), 1);
    assert_eq!(counts.issued.load(Ordering::Relaxed), 1);
}

#[test]
fn caller_who_proves_nothing_is_refused_before_the_request_is_read() {
    let counts = Arc::new(Counts::default());
    let service = CertificateService::new(counts.clone());
    let garbage = IstioCertificateRequest { csr: "garbage".to_owned(), ..request(&[]) };
    let result = service.create_certificate(&Caller::default(), &garbage, &authority(), now());
    assert_eq!(certified(result), Err((Code::Unauthenticated, "request authenticate failure".to_owned())));
    assert_eq!(counts.unauthenticated.load(Ordering::Relaxed), 1);
}

#[test]
fn node_gets_certificates_of_its_workloads_alone() {
    let service = CertificateService::new(Arc::new(())).with_nodes(Arc::new(Node));
    let authority = authority();
    let ask = |who: &str, whom: &str| {
        let request = request(&[("ImpersonatedIdentity", Kind::StringValue(whom.to_owned()))]);
        certified(service.create_certificate(&caller(who), &request, &authority, now()))
    };
    let refused = Err((Code::Unauthenticated, "request impersonation authentication failure".to_owned()));
    assert_eq!(ask(ZTUNNEL, WEB), Ok(vec![WEB.to_owned()]));
    assert_eq!(ask(ZTUNNEL, "spiffe://cluster.local/ns/demo/sa/other"), refused);
    assert_eq!(ask(WEB, WEB), refused);
    assert_eq!(ask(ZTUNNEL, "garbage"), refused);
    // The workload is on the node, but no workload is of another trust domain than its node.
    assert_eq!(ask(ZTUNNEL, "spiffe://other/ns/demo/sa/web"), refused);
}

#[test]
fn impersonation_is_refused_when_no_node_is_trusted() {
    let service = CertificateService::new(Arc::new(()));
    let request = request(&[("ImpersonatedIdentity", Kind::StringValue(WEB.to_owned()))]);
    let result = service.create_certificate(&caller(ZTUNNEL), &request, &authority(), now());
    assert_eq!(result.unwrap_err().code, Code::Unauthenticated);
}

#[test]
fn metadata_that_is_no_text_is_not_there() {
    let service = CertificateService::new(Arc::new(()));
    let request =
        request(&[("ImpersonatedIdentity", Kind::NumberValue(5.0)), ("Foo", Kind::BoolValue(true))]);
    let result = service.create_certificate(&caller(WEB), &request, &authority(), now());
    assert_eq!(certified(result), Ok(vec![WEB.to_owned()]));
}

#[test]
fn failures_have_istiods_codes_and_are_counted_by_kind() {
    let counts = Arc::new(Counts::default());
    let service = CertificateService::new(counts.clone());
    let ask = |request: &IstioCertificateRequest, authority: &Authority| {
        certified(service.create_certificate(&caller(WEB), request, authority, now())).unwrap_err()
    };
    let too_long = IstioCertificateRequest { validity_duration: 7_776_001, ..request(&[]) };
    let expected =
        "CSR signing error (requested TTL 2160h0m1s is greater than the max allowed TTL 2160h0m0s)";
    assert_eq!(ask(&too_long, &authority()), (Code::InvalidArgument, expected.to_owned()));
    let garbage = IstioCertificateRequest { csr: "garbage".to_owned(), ..request(&[]) };
    assert_eq!(ask(&garbage, &authority()).0, Code::InvalidArgument);
    let empty = Authority::new(Lifetimes::default());
    let expected = "CSR signing error (Istio CA is not ready)";
    assert_eq!(ask(&request(&[]), &empty), (Code::Internal, expected.to_owned()));
    let labels: Vec<_> = counts.failed.lock().iter().map(|kind| kind.label()).collect();
    assert_eq!(labels, ["TTL_ERROR", "CSR_ERROR", "CA_NOT_READY"]);
}
