//! Days in the life of workloads' certificates, in simulated time: agents renew them, the authority's root is replaced in the
//! middle, the authority is away again and again, and agents crash at every step.
//!
//! The agents' renewal, the authority and its rotation are the real ones, with real keys. Only the wall clock is simulated.
//! At no moment is a workload without a valid certificate, and every certificate verifies with the roots of every workload.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use canopus_agent::certificates::stored::IdentityStore;
use canopus_agent::certificates::{AuthorityError, Clock, Identity, Issuer, RenewalSettings, Secrets, renew};
use canopus_identity::Certificate;
use canopus_identity::authority::{Authority, Lifetimes, Order};
use canopus_identity::bundle::verify;
use canopus_identity::key::KeyKind;
use canopus_identity::rotation::{Phase, Policy, Replica};
use canopus_identity::self_signed::Profile;
use canopus_identity::store::{DirectoryStore, RootStore};
use canopus_runtime::metrics::{Registry, catalogue};
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

const POLICY: Policy = Policy {
    grace_percent: 20,
    check_interval: Duration::from_secs(600),
    staleness: HOUR,
    propagation: DAY,
    patience: Duration::ZERO,
    longest_leaf: DAY,
};

/// How long the world is watched: a rotation takes two and a half days.
const WATCHED: Duration = Duration::from_secs(4 * 24 * 3600);

const WORKLOADS: [&str; 3] = ["cart", "frontend", "reviews"];

/// A call of an agent to the authority at which the agent crashes: before the authority signs, or before the agent hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Before(usize),
    After(usize),
}

/// The authority, and when it answers.
struct Plane {
    authority: Authority,
    is_away: AtomicBool,
    calls: AtomicUsize,
    crash: Option<Crash>,
    crashed: Notify,
    clock: Clock,
    phases: Mutex<Vec<&'static str>>,
}

impl Plane {
    fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch((self.clock)().duration_since(UNIX_EPOCH).unwrap())
    }

    fn note(&self, phase: &Phase) {
        let phase = match phase {
            Phase::Stable => "stable",
            Phase::Distributing { .. } => "distributing",
            Phase::Retiring { .. } => "retiring",
        };
        let mut phases = self.phases.lock();
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
    }

    /// Keeps the authority in step with its store. Every seven hours the process is gone for half an hour.
    async fn keep(self: Arc<Self>, directory: std::path::PathBuf) {
        let store: Arc<dyn RootStore> = Arc::new(DirectoryStore::open(&directory).unwrap());
        let profile = Profile { key: KeyKind::P256, lifetime: 60 * DAY, ..Profile::default() };
        let started = Instant::now();
        let mut is_asked = false;
        loop {
            let mut replica = Replica::new(Arc::clone(&store), profile.clone(), POLICY, Vec::new());
            let life = Instant::now();
            while life.elapsed() < 7 * HOUR {
                if started.elapsed() > 10 * HOUR && !is_asked {
                    replica.request_rotation(self.now()).await.unwrap();
                    is_asked = true;
                }
                let tick = replica.tick(self.now(), None).await.unwrap();
                self.authority.replace(Some(tick.bundle));
                self.is_away.store(false, Ordering::Relaxed);
                self.note(&tick.state.phase);
                sleep(POLICY.check_interval).await;
            }
            self.is_away.store(true, Ordering::Relaxed);
            sleep(30 * MINUTE).await;
        }
    }
}

/// An agent's connection to the authority.
struct Connection(Arc<Plane>);

impl Issuer for Connection {
    async fn sign(&self, request: &str, lifetime: Duration) -> Result<Vec<String>, AuthorityError> {
        let plane = &self.0;
        if plane.is_away.load(Ordering::Relaxed) {
            return Err(AuthorityError::Answer("the authority is away".to_owned()));
        }
        let call = plane.calls.fetch_add(1, Ordering::Relaxed);
        if plane.crash == Some(Crash::Before(call)) {
            plane.crashed.notify_one();
            return std::future::pending().await;
        }
        let order = Order {
            request: request.to_owned(),
            identities: vec!["spiffe://cluster.local/ns/shop/sa/any".to_owned()],
            seconds: i64::try_from(lifetime.as_secs()).unwrap(),
            signer: String::new(),
        };
        let signed = plane.authority.sign(&order, plane.now());
        if plane.crash == Some(Crash::After(call)) {
            plane.crashed.notify_one();
            return std::future::pending().await;
        }
        signed.map_err(|error| AuthorityError::Answer(error.to_string()))
    }
}

/// A workload and its agent.
struct Workload {
    name: &'static str,
    secrets: Arc<Secrets>,
    agent: JoinHandle<()>,
    was_served: bool,
}

impl Workload {
    fn start(name: &'static str, directory: &Path, plane: &Arc<Plane>) -> Self {
        let secrets = Arc::new(Secrets::default());
        let settings = RenewalSettings {
            key: KeyKind::P256,
            pkcs8: false,
            identity: format!("spiffe://cluster.local/ns/shop/sa/{name}"),
            lifetime: DAY,
            grace_ratio: 0.5,
            jitter: 0.01,
            output: None,
        };
        let stored = IdentityStore::new(&directory.join(name), &settings.identity);
        let expiry = Registry::new().family(catalogue::CERT_EXPIRY_SECONDS).with(["default"]);
        let renewal = renew(
            Connection(Arc::clone(plane)),
            settings,
            Some(stored),
            Arc::clone(&secrets),
            expiry,
            Arc::clone(&plane.clock),
        );
        Self { name, secrets, agent: tokio::spawn(renewal), was_served: false }
    }
}

/// Everybody has a certificate that is valid now, and believes those of the others.
fn check(workloads: &mut [Workload], now: SystemTime, known: &RefCell<HashSet<(String, String)>>) {
    let mut identities: Vec<Identity> = Vec::new();
    for workload in workloads.iter_mut() {
        let Some(identity) = workload.secrets.identity() else {
            assert!(!workload.was_served, "{} has no certificate any more", workload.name);
            continue;
        };
        workload.was_served = true;
        assert!(identity.expires > now, "the certificate of {} has expired", workload.name);
        identities.push(identity);
    }
    let at = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap());
    for (holder, verifier) in identities.iter().flat_map(|one| workloads.iter().map(move |who| (one, who))) {
        let Some(roots) = verifier.secrets.roots() else { continue };
        if !known.borrow_mut().insert((holder.chain.clone(), roots.clone())) {
            continue;
        }
        let leaf = Certificate::from_pem(holder.chain.as_bytes()).unwrap();
        let roots: Vec<_> = canopus_identity::pem::certificates(roots.as_bytes()).unwrap();
        let verdict = verify(leaf.der(), &[], roots.iter(), at);
        assert!(verdict.is_ok(), "{} does not believe a certificate: {verdict:?}", verifier.name);
    }
}

/// Lives through some days, and gives how often agents asked and which phases the rotation had.
async fn live(crash: Option<Crash>) -> (usize, Vec<&'static str>) {
    let directory = tempfile::tempdir().unwrap();
    let (begin, origin) = (Instant::now(), UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let clock: Clock = Arc::new(move || origin + begin.elapsed());
    let plane = Arc::new(Plane {
        authority: Authority::new(Lifetimes { default: DAY, longest: DAY }),
        is_away: AtomicBool::new(true),
        calls: AtomicUsize::new(0),
        crash,
        crashed: Notify::new(),
        clock: Arc::clone(&clock),
        phases: Mutex::default(),
    });
    let keeper = tokio::spawn(Arc::clone(&plane).keep(directory.path().join("ca")));
    let mut workloads: Vec<Workload> =
        WORKLOADS.iter().map(|name| Workload::start(name, directory.path(), &plane)).collect();
    let known = RefCell::default();
    while begin.elapsed() < WATCHED {
        tokio::select! {
            () = sleep(10 * MINUTE) => {}
            // Which of the agents it was does not matter: all crash, as on a machine that loses power.
            () = plane.crashed.notified() => {
                for workload in &mut workloads {
                    workload.agent.abort();
                    let was_served = workload.was_served;
                    *workload = Workload { was_served, ..Workload::start(workload.name, directory.path(), &plane) };
                }
                // The stored certificate is served as soon as the agent runs.
                sleep(Duration::from_millis(1)).await;
            }
        }
        check(&mut workloads, clock(), &known);
    }
    keeper.abort();
    workloads.iter().for_each(|workload| workload.agent.abort());
    assert!(workloads.iter().all(|workload| workload.was_served));
    let phases = plane.phases.lock().clone();
    (plane.calls.load(Ordering::Relaxed), phases)
}

#[tokio::test(start_paused = true)]
async fn certificates_are_valid_at_any_moment_whenever_an_agent_crashes() {
    let (calls, phases) = live(None).await;
    assert_eq!(phases, ["stable", "distributing", "retiring", "stable"]);
    assert!(calls >= 3 * 7, "only {calls} certificates in four days");
    for call in 0..calls {
        for crash in [Crash::Before(call), Crash::After(call)] {
            let (_, phases) = live(Some(crash)).await;
            assert_eq!(phases, ["stable", "distributing", "retiring", "stable"], "{crash:?}");
        }
    }
}
