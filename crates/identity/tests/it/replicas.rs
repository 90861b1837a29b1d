//! Replicas with real keys over a store that fails, through a root's life and the next root's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use canopus_identity::Certificate;
use canopus_identity::authority::{Authority, Lifetimes, Order};
use canopus_identity::bundle::{Bundle, verify};
use canopus_identity::key::KeyKind;
use canopus_identity::plugged::{CA_CERT, CA_KEY};
use canopus_identity::rotation::{NEXT_KEY, Phase, Policy, Replica, STATE};
use canopus_identity::self_signed::Profile;
use canopus_identity::store::{Answer, DirectoryStore, Record, RootStore, StoreError, Versioned};
use parking_lot::Mutex;
use rustls_pki_types::UnixTime;

use crate::openssl::OpenSsl;

const START: u64 = 1_800_000_000;
const HOUR: u64 = 3600;

const POLICY: Policy = Policy {
    grace_percent: 20,
    check_interval: Duration::from_secs(600),
    staleness: Duration::from_secs(HOUR),
    propagation: Duration::from_secs(600),
    patience: Duration::from_secs(HOUR),
    longest_leaf: Duration::from_secs(6 * HOUR),
};

fn profile() -> Profile {
    Profile { key: KeyKind::P256, lifetime: Duration::from_secs(60 * HOUR), ..Profile::default() }
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// A store in memory that fails at one operation: before it does it, or after it did without saying so.
#[derive(Default)]
struct Flaky {
    stored: Mutex<Option<Versioned>>,
    operations: AtomicUsize,
    fails_at: usize,
}

impl Flaky {
    fn failing_at(operation: usize) -> Self {
        Self { fails_at: operation, ..Self::default() }
    }

    /// Whether this operation is to fail before its effect, and after it.
    fn fate(&self) -> (bool, bool) {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        (number == self.fails_at, number + 1_000 == self.fails_at)
    }

    fn failed<T>() -> Result<T, StoreError> {
        Err(StoreError { place: "memory".to_owned(), reason: "the process crashed here".to_owned() })
    }
}

impl RootStore for Flaky {
    fn load(&self) -> Answer<'_, Option<Versioned>> {
        let (fails, _) = self.fate();
        let stored = self.stored.lock().clone();
        Box::pin(async move { if fails { Self::failed() } else { Ok(stored) } })
    }

    fn create_if_absent<'a>(&'a self, record: &'a Record) -> Answer<'a, Versioned> {
        Box::pin(async move {
            let (before, after) = self.fate();
            if before {
                return Self::failed();
            }
            let mut stored = self.stored.lock();
            let now =
                stored.get_or_insert_with(|| Versioned { record: record.clone(), version: "1".to_owned() });
            if after { Self::failed() } else { Ok(now.clone()) }
        })
    }

    fn compare_and_swap<'a>(&'a self, version: &'a str, record: &'a Record) -> Answer<'a, Option<Versioned>> {
        Box::pin(async move {
            let (before, after) = self.fate();
            if before {
                return Self::failed();
            }
            let mut stored = self.stored.lock();
            if stored.as_ref().is_none_or(|stored| stored.version != version) {
                return Ok(None);
            }
            let next = (version.parse::<u64>().unwrap() + 1).to_string();
            *stored = Some(Versioned { record: record.clone(), version: next });
            if after { Self::failed() } else { Ok(stored.clone()) }
        })
    }
}

fn replica(store: &Arc<dyn RootStore>) -> Replica {
    Replica::new(Arc::clone(store), profile(), POLICY, Vec::new())
}

/// A leaf, and the root it was issued under.
struct IssuedLeaf {
    leaf: Certificate,
    issuer: String,
}

impl IssuedLeaf {
    fn expires(&self) -> u64 {
        self.leaf.not_after().as_secs()
    }
}

fn issue(bundle: &Arc<Bundle>, request: &str, now: u64) -> IssuedLeaf {
    let authority = Authority::with_bundle(Lifetimes::default(), Arc::clone(bundle));
    let order = Order {
        request: request.to_owned(),
        identities: vec!["spiffe://cluster.local/ns/a/sa/b".to_owned()],
        seconds: i64::try_from(POLICY.longest_leaf.as_secs()).unwrap(),
        signer: String::new(),
    };
    let chain = authority.sign(&order, at(now)).unwrap();
    let issuer = bundle.signer().certificate().fingerprint();
    IssuedLeaf { leaf: Certificate::from_pem(chain[0].as_bytes()).unwrap(), issuer }
}

fn verifies(held: &IssuedLeaf, bundle: &Bundle, now: u64) -> bool {
    verify(held.leaf.der(), &[], bundle.roots().iter().map(Certificate::der), at(now)).is_ok()
}

/// Lets two replicas live for a while; both are new whenever one of them fails. Every leaf either of them issued verifies
/// with the bundle of both for as long as it is valid.
async fn live(store: Arc<dyn RootStore>, hours: u64, request: &str) -> Vec<&'static str> {
    let mut replicas = [replica(&store), replica(&store)];
    let mut leaves: Vec<IssuedLeaf> = Vec::new();
    let mut phases = Vec::new();
    let mut now = START;
    while now < START + hours * HOUR {
        let mut bundles = Vec::new();
        for one in &mut replicas {
            // A process that crashed starts again, with nothing but the store.
            let tick = match one.tick(at(now), None).await {
                Ok(tick) => tick,
                Err(_) => {
                    *one = replica(&store);
                    one.tick(at(now), None).await.expect("the store fails once")
                }
            };
            let phase = match tick.state.phase {
                Phase::Stable => "stable",
                Phase::Distributing { .. } => "distributing",
                Phase::Retiring { .. } => "retiring",
            };
            if phases.last() != Some(&phase) {
                phases.push(phase);
            }
            // Of those under one root, the latest is valid longest.
            let latest = issue(&tick.bundle, request, now);
            leaves.retain(|older| older.issuer != latest.issuer);
            leaves.push(latest);
            bundles.push(tick.bundle);
        }
        leaves.retain(|leaf| leaf.expires() > now);
        for bundle in &bundles {
            assert!(leaves.iter().all(|leaf| verifies(leaf, bundle, now)), "at {}", now - START);
        }
        if now == START + 10 * HOUR {
            replicas[0].request_rotation(at(now)).await.ok();
        }
        now += POLICY.check_interval.as_secs();
    }
    phases
}

#[tokio::test]
async fn three_days_pass_with_a_rotation_and_a_renewal() {
    let request = OpenSsl::new().request("P-256", "/", &[]);
    let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(usize::MAX));
    let phases = live(store, 72, &request).await;
    let rotation = ["distributing", "retiring", "stable"];
    assert_eq!(phases, [["stable"].as_slice(), &rotation, &rotation].concat());
}

#[tokio::test]
async fn rotation_goes_on_after_a_crash_at_any_operation() {
    let request = OpenSsl::new().request("P-256", "/", &[]);
    // Up to the rotation that is asked for, each look is one operation; around it there are more.
    let around = 2 * 60..2 * 60 + 24;
    for operation in (0..4).chain(around) {
        for crash in [operation, operation + 1_000] {
            let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(crash));
            let phases = live(store, 22, &request).await;
            assert_eq!(phases.first(), Some(&"stable"), "{crash}");
        }
    }
}

#[tokio::test]
async fn replicas_agree_on_the_first_root_and_on_each_step() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn RootStore> = Arc::new(DirectoryStore::open(&directory.path().join("ca")).unwrap());
    let (mut one, mut other) = (replica(&store), replica(&store));
    let (first, second) =
        (one.tick(at(START), None).await.unwrap(), other.tick(at(START), None).await.unwrap());
    assert!(first.bundle.is_same(&second.bundle));
    one.request_rotation(at(START)).await.unwrap();
    let (first, second) =
        (one.tick(at(START), None).await.unwrap(), other.tick(at(START), None).await.unwrap());
    assert_eq!(first.state, second.state);
    assert_eq!(first.bundle.roots().len(), 2);
    let record = store.load().await.unwrap().unwrap().record;
    assert!(record.get(NEXT_KEY).is_some());
    // A process of later reads the same.
    let later = replica(&store).tick(at(START), None).await.unwrap();
    assert_eq!(later.state, first.state);
    // Nothing changes unless something changed.
    assert!(!one.tick(at(START), None).await.unwrap().changed);
}

#[tokio::test]
async fn renewal_keeps_the_key_and_the_name() {
    let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(usize::MAX));
    let mut one = Replica::new(Arc::clone(&store), profile(), POLICY, Vec::new());
    let old = one.tick(at(START), None).await.unwrap().bundle;
    let due = START + 49 * HOUR;
    let distributing = one.tick(at(due), None).await.unwrap();
    let [old_root, new_root] = distributing.bundle.roots() else { panic!("{distributing:?}") };
    assert_eq!(old_root, &old.roots()[0]);
    assert_eq!((old_root.public_key(), old_root.subject()), (new_root.public_key(), new_root.subject()));
    assert!(new_root.not_after() > old_root.not_after());
}

#[tokio::test]
async fn root_that_somebody_else_replaced_is_taken_over() {
    let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(usize::MAX));
    let mut one = replica(&store);
    let old = one.tick(at(START), None).await.unwrap().bundle;
    // What an istiod does that renews the root it shares.
    let (certificate, key) = profile().create(at(START + HOUR)).unwrap();
    let stored = store.load().await.unwrap().unwrap();
    let mut record = stored.record.clone();
    record.set(CA_CERT, certificate.to_pem().unwrap());
    record.set(CA_KEY, key.to_pem().unwrap().as_bytes());
    store.compare_and_swap(&stored.version, &record).await.unwrap().unwrap();
    let tick = one.tick(at(START + HOUR), None).await.unwrap();
    assert_eq!(tick.bundle.signer().certificate(), &certificate);
    assert!(tick.bundle.roots().contains(&old.roots()[0]), "what was issued before still verifies");
    assert!(matches!(tick.state.phase, Phase::Retiring { .. }));
}

#[tokio::test]
async fn secret_of_istiod_is_taken_as_it_is() {
    let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(usize::MAX));
    let (certificate, key) = profile().create(at(START)).unwrap();
    let mut record = Record::default();
    let pem = certificate.to_pem().unwrap();
    for (name, text) in
        [(CA_CERT, pem.as_str()), ("root-cert.pem", &pem), ("cert-chain.pem", ""), ("key.pem", "")]
    {
        record.set(name, text);
    }
    record.set(CA_KEY, key.to_pem().unwrap().as_bytes());
    store.create_if_absent(&record).await.unwrap();
    let tick = replica(&store).tick(at(START), None).await.unwrap();
    assert_eq!(tick.bundle.roots(), [certificate]);
    assert_eq!(store.load().await.unwrap().unwrap().record, record, "nothing is written without need");
}

#[tokio::test]
async fn removed_root_comes_back_as_it_was() {
    let flaky = Arc::new(Flaky::failing_at(usize::MAX));
    let store: Arc<dyn RootStore> = flaky.clone();
    let mut one = replica(&store);
    let before = one.tick(at(START), None).await.unwrap().bundle;
    flaky.stored.lock().take();
    one.tick(at(START + HOUR), None).await.unwrap();
    let restarted = replica(&store).tick(at(START + HOUR), None).await.unwrap().bundle;
    assert!(before.is_same(&restarted));
}

#[tokio::test]
async fn replica_is_stale_when_the_store_is_out_of_reach_for_long() {
    let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(usize::MAX));
    let mut one = replica(&store);
    assert!(one.is_stale(at(START)));
    one.tick(at(START), None).await.unwrap();
    assert!(!one.is_stale(at(START + HOUR)));
    assert!(one.is_stale(at(START + HOUR + 1)));
}

#[tokio::test]
async fn state_of_a_later_version_is_left_alone() {
    let store: Arc<dyn RootStore> = Arc::new(Flaky::failing_at(usize::MAX));
    replica(&store).tick(at(START), None).await.unwrap();
    let stored = store.load().await.unwrap().unwrap();
    let mut record = stored.record.clone();
    record.set(STATE, r#"{"format": 2, "more": true}"#);
    store.compare_and_swap(&stored.version, &record).await.unwrap().unwrap();
    let error = replica(&store).tick(at(START), None).await.unwrap_err();
    assert!(error.to_string().contains("use the version that wrote it"), "{error}");
}
