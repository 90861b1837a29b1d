//! The processes of the day, and what is looked at once a minute.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use canopus_agent::certificates::stored::IdentityStore;
use canopus_agent::certificates::{AuthorityError, Issuer, RenewalSettings, Secrets, renew};
use canopus_identity::Certificate;
use canopus_identity::authority::{Authority, Lifetimes, Order};
use canopus_identity::bundle::verify;
use canopus_identity::issued::IssuedCertificates;
use canopus_identity::key::KeyKind;
use canopus_identity::rotation::{Clock, Keeper, Phase, Policy, Replica, request};
use canopus_identity::self_signed::Profile;
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::store::{Crash, Handle, Store};

pub(crate) const MINUTE: u64 = 60;
pub(crate) const HOUR: u64 = 60 * MINUTE;

const START: u64 = 1_800_000_000;
const AGENTS: usize = 4;
const CONTROL_PLANES: usize = 2;
const RESTART: Duration = Duration::from_secs(2);

const LIFETIMES: Lifetimes =
    Lifetimes { default: Duration::from_secs(HOUR), longest: Duration::from_secs(2 * HOUR) };

/// Bundles reach agents with their certificates, as in a mesh, where all of this takes days.
pub(crate) const POLICY: Policy = Policy {
    grace_percent: 20,
    check_interval: Duration::from_secs(10 * MINUTE),
    staleness: Duration::from_secs(HOUR),
    propagation: LIFETIMES.default,
    patience: LIFETIMES.longest,
    longest_leaf: LIFETIMES.longest,
};

/// What is special about a day.
pub(crate) struct Plan {
    pub(crate) policy: Policy,
    /// Where a control plane crashes.
    pub(crate) crash: Option<Crash>,
    /// Whether agents crash in every renewal.
    pub(crate) agents_crash: bool,
    /// From when to when no control plane answers agents, in seconds of the day.
    pub(crate) away: Option<(u64, u64)>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { policy: POLICY, crash: None, agents_crash: false, away: None }
    }
}

/// What became of a day.
#[derive(Default)]
pub(crate) struct Day {
    pub(crate) violations: Vec<String>,
    times: Vec<u64>,
    pub(crate) phases: Vec<&'static str>,
    pub(crate) looks: usize,
    pub(crate) issued: usize,
    pub(crate) writes: usize,
    pub(crate) crashes: usize,
}

impl Day {
    /// When the law was broken, in seconds of the day.
    pub(crate) fn violation_times(&self) -> &[u64] {
        &self.times
    }

    pub(crate) async fn run(plan: Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let world = Arc::new(World::new(plan, directory.path().to_owned()));
        let mut processes = JoinSet::new();
        for number in 0..CONTROL_PLANES {
            processes.spawn(control_plane(Arc::clone(&world), number));
        }
        for number in 0..AGENTS {
            processes.spawn(agent(Arc::clone(&world), number));
        }
        processes.spawn(operator(Arc::clone(&world)));
        let mut day = world.watch().await;
        processes.shutdown().await;
        day.writes = world.store.writes();
        day.issued = world.issuances.load(Ordering::Relaxed);
        day.crashes = world.crashes.load(Ordering::Relaxed);
        day
    }
}

struct World {
    plan: Plan,
    midnight: Instant,
    directory: PathBuf,
    store: Arc<Store>,
    /// Control planes that run.
    control_planes: [Mutex<Option<Arc<Authority>>>; CONTROL_PLANES],
    issued: [IssuedCertificates; CONTROL_PLANES],
    /// What each agent that runs hands to its proxy.
    agents: [Mutex<Option<Arc<Secrets>>>; AGENTS],
    issuances: AtomicUsize,
    crashes: AtomicUsize,
}

impl World {
    fn new(plan: Plan, directory: PathBuf) -> Self {
        Self {
            midnight: Instant::now(),
            directory,
            store: Store::new(plan.crash),
            control_planes: Default::default(),
            issued: Default::default(),
            agents: Default::default(),
            issuances: AtomicUsize::default(),
            crashes: AtomicUsize::default(),
            plan,
        }
    }

    /// Seconds of the day.
    fn time(&self) -> u64 {
        self.midnight.elapsed().as_secs()
    }

    fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(START) + self.midnight.elapsed())
    }

    fn is_away(&self) -> bool {
        self.plan.away.is_some_and(|(start, end)| (start..end).contains(&self.time()))
    }

    fn crash(&self) {
        self.crashes.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at everybody once a minute for a day.
    async fn watch(&self) -> Day {
        let mut day = Day::default();
        let mut trusted = BTreeSet::new();
        for minute in 1..24 * 60 {
            sleep_until(self.midnight + Duration::from_secs(minute * MINUTE)).await;
            day.looks += 1;
            self.note_phase(&mut day).await;
            for violation in self.violations(&mut trusted) {
                day.times.push(self.time());
                day.violations.push(format!("{:02}:{:02} {violation}", minute / 60, minute % 60));
            }
        }
        day
    }

    async fn note_phase(&self, day: &mut Day) {
        let handle = Handle { store: Arc::clone(&self.store), crashed: Arc::default() };
        let stored = canopus_identity::rotation::inspect(&handle, &self.plan.policy, self.now()).await;
        let phase = match stored.unwrap().unwrap().state.phase {
            Phase::Stable => "stable",
            Phase::Distributing { .. } => "distributing",
            Phase::Retiring { .. } => "retiring",
        };
        if day.phases.last() != Some(&phase) {
            day.phases.push(phase);
        }
    }

    fn violations(&self, trusted: &mut BTreeSet<(String, String)>) -> Vec<String> {
        let mut violations = Vec::new();
        let mut verifiers: Vec<(String, String)> = Vec::new();
        let mut holders = Vec::new();
        for (number, agent) in self.agents.iter().enumerate() {
            let Some(secrets) = agent.lock().clone() else { continue };
            let Some(identity) = secrets.identity() else {
                violations.push(format!("agent {number} has no certificate"));
                continue;
            };
            let leaf = Certificate::from_pem(identity.chain.as_bytes()).unwrap();
            if !leaf.is_valid_at(self.now()) {
                violations.push(format!("the certificate of agent {number} has expired"));
            }
            holders.push((format!("agent {number}"), leaf));
            verifiers.push((format!("agent {number}"), secrets.roots().unwrap()));
        }
        for (number, control_plane) in self.control_planes.iter().enumerate() {
            let bundle = control_plane.lock().as_ref().and_then(|authority| authority.bundle());
            if let Some(bundle) = bundle {
                verifiers.push((format!("control plane {number}"), bundle.roots_pem().to_owned()));
            }
        }
        for (holder, leaf) in &holders {
            for (verifier, roots) in &verifiers {
                // Expiry is looked at above, so a pair need not be verified twice.
                let pair = (leaf.fingerprint(), roots.clone());
                if !trusted.contains(&pair) && leaf.is_valid_at(self.now()) {
                    match is_trusted(leaf, roots, self.now()) {
                        true => drop(trusted.insert(pair)),
                        false => violations.push(format!("{verifier} does not trust {holder}")),
                    }
                }
            }
        }
        violations
    }
}

fn is_trusted(leaf: &Certificate, roots: &str, now: UnixTime) -> bool {
    let roots = Certificate::all_from_pem(roots.as_bytes()).unwrap();
    verify(leaf.der(), &[], roots.iter().map(Certificate::der), now).is_ok()
}

/// A control plane, started again whenever it crashes.
async fn control_plane(world: Arc<World>, number: usize) {
    loop {
        let crashed = Arc::new(Notify::new());
        let store = Handle { store: Arc::clone(&world.store), crashed: Arc::clone(&crashed) };
        // Until the day's second root is made the first one is due at 09:36; that one is due at 17:36.
        let profile =
            Profile { key: KeyKind::P256, lifetime: Duration::from_secs(12 * HOUR), ..Profile::default() };
        let policy = world.plan.policy;
        let authority = Arc::new(Authority::new(LIFETIMES));
        let clock: Clock = {
            let world = Arc::clone(&world);
            Arc::new(move || world.now())
        };
        let replica = Replica::new(Arc::new(store), profile, policy, Vec::new());
        let mut keeper = Keeper::new(replica, Arc::clone(&authority), policy.check_interval, clock);
        *world.control_planes[number].lock() = Some(authority);
        let life = async {
            keeper.look(None).await.unwrap();
            keeper.run(&world.issued[number]).await;
        };
        tokio::select! {
            () = life => {}
            () = crashed.notified() => world.crash(),
        }
        *world.control_planes[number].lock() = None;
        sleep(RESTART).await;
    }
}

/// Asks for a rotation at eight.
async fn operator(world: Arc<World>) {
    sleep(Duration::from_secs(8 * HOUR)).await;
    loop {
        let crashed = Arc::new(Notify::new());
        let store = Handle { store: Arc::clone(&world.store), crashed: Arc::clone(&crashed) };
        tokio::select! {
            asked = request(&store, &world.plan.policy, world.now()) => {
                asked.unwrap();
                return;
            }
            // The command was killed; its user looks whether it took effect by giving it again.
            () = crashed.notified() => world.crash(),
        }
    }
}

/// How an agent fares in its renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Well,
    CrashesBeforeSigning,
    CrashesAfterSigning,
    CrashesAfterUse,
}

const MANNERS: [Manner; AGENTS] =
    [Manner::Well, Manner::CrashesBeforeSigning, Manner::CrashesAfterSigning, Manner::CrashesAfterUse];

/// Sends requests to a running control plane, as the service does.
struct Client {
    world: Arc<World>,
    agent: usize,
    manner: Manner,
    /// Whether the agent crashed in this renewal already.
    has_crashed: Arc<AtomicBool>,
    crashed: Arc<Notify>,
}

impl Client {
    async fn crash_if(&self, manner: Manner) {
        if self.manner == manner && !self.has_crashed.swap(true, Ordering::Relaxed) {
            self.crashed.notify_one();
            pending::<()>().await;
        }
    }

    fn sign_at(&self, number: usize, csr: &str, lifetime: Duration) -> Option<Vec<String>> {
        let authority = self.world.control_planes[number].lock().clone()?;
        let identities = vec![identity(self.agent)];
        let order = Order {
            request: csr.to_owned(),
            identities: identities.clone(),
            seconds: lifetime.as_secs().try_into().unwrap(),
            signer: String::new(),
        };
        let chain = authority.sign(&order, self.world.now()).ok()?;
        self.world.issued[number].note(&identities, &chain);
        self.world.issuances.fetch_add(1, Ordering::Relaxed);
        Some(chain)
    }
}

impl Issuer for Client {
    async fn sign(&self, csr: &str, lifetime: Duration) -> Result<Vec<String>, AuthorityError> {
        self.crash_if(Manner::CrashesBeforeSigning).await;
        let first = self.world.issuances.load(Ordering::Relaxed);
        let asked = (0..CONTROL_PLANES).map(|offset| (first + offset) % CONTROL_PLANES);
        let answer = match self.world.is_away() {
            true => None,
            false => asked.into_iter().find_map(|number| self.sign_at(number, csr, lifetime)),
        };
        let chain = answer.ok_or_else(|| AuthorityError::Answer("no control plane answers".to_owned()))?;
        self.crash_if(Manner::CrashesAfterSigning).await;
        self.has_crashed.store(false, Ordering::Relaxed);
        Ok(chain)
    }
}

fn identity(agent: usize) -> String {
    format!("spiffe://cluster.local/ns/shop/sa/agent-{agent}")
}

/// An agent, started again whenever it crashes, with nothing but its directory.
async fn agent(world: Arc<World>, number: usize) {
    let manner = if world.plan.agents_crash { MANNERS[number] } else { Manner::Well };
    let has_crashed = Arc::new(AtomicBool::new(false));
    loop {
        let crashed = Arc::new(Notify::new());
        let client = Client {
            world: Arc::clone(&world),
            agent: number,
            manner,
            has_crashed: Arc::clone(&has_crashed),
            crashed: Arc::clone(&crashed),
        };
        let settings = RenewalSettings {
            key: KeyKind::P256,
            pkcs8: false,
            identity: identity(number),
            lifetime: LIFETIMES.default,
            grace_ratio: 0.5,
            jitter: 0.01,
            output: None,
        };
        let clock = {
            let world = Arc::clone(&world);
            Arc::new(move || UNIX_EPOCH + Duration::from_secs(START) + world.midnight.elapsed())
        };
        let stored = IdentityStore::new(&world.directory.join(number.to_string()), &identity(number));
        let secrets = Arc::new(Secrets::default());
        *world.agents[number].lock() = Some(Arc::clone(&secrets));
        tokio::select! {
            () = renew(client, settings, Some(stored), Arc::clone(&secrets), clock) => {}
            () = crashed.notified() => world.crash(),
            () = used(&world, &secrets, manner) => world.crash(),
        }
        // The proxy ends with its agent.
        *world.agents[number].lock() = None;
        sleep(RESTART).await;
    }
}

/// Waits until a certificate that was not stored by an earlier run is in use for a second.
async fn used(world: &World, secrets: &Secrets, manner: Manner) {
    if manner != Manner::CrashesAfterUse {
        return pending().await;
    }
    let issued_before = |secrets: &Secrets| secrets.identity().map(|identity| identity.expires);
    let mut revisions = secrets.revisions();
    // A start serves the stored certificate and renews it at once.
    sleep(Duration::from_secs(1)).await;
    let first = issued_before(secrets);
    while issued_before(secrets) == first || world.is_away() {
        revisions.changed().await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
}
