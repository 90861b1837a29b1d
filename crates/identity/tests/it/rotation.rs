//! The state machine of rotation in a simulated mesh: replicas that crash, are cut off and race, and workloads that renew
//! certificates and hear of roots late. Time is a number here.

use std::collections::BTreeSet;
use std::time::Duration;

use canopus_identity::rotation::{Action, Observations, Phase, Policy, Root, State, step};
use proptest::prelude::*;

const POLICY: Policy = Policy {
    grace_percent: 20,
    check_interval: Duration::from_secs(60),
    staleness: Duration::from_secs(600),
    propagation: Duration::from_secs(300),
    patience: Duration::from_secs(900),
    longest_leaf: Duration::from_secs(2 * 3600),
};

const TICK: u64 = 20;
const ROOT_LIFE: u64 = 36 * 3600;

fn root(number: u64, now: u64) -> Root {
    Root { id: format!("root-{number}"), not_before: now, not_after: now + ROOT_LIFE }
}

/// A small generator of randomness, so that a failing case can be played again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Default)]
struct Replica {
    /// What it last read, and when.
    view: Option<(State, u64)>,
    /// What it read but has not acted on yet.
    loaded: Option<(u64, State)>,
    generated: Option<Root>,
    /// When it is up again.
    back_at: u64,
    /// When it reaches the store again.
    cut_off_until: u64,
}

impl Replica {
    /// What it may act on.
    fn acts(&self, now: u64) -> Option<&State> {
        let (state, read_at) = self.view.as_ref()?;
        (now >= self.back_at && now - read_at <= POLICY.staleness.as_secs()).then_some(state)
    }
}

struct Workload {
    bundle: BTreeSet<String>,
    hears_at: u64,
    issuer: String,
    expires: u64,
    renews_at: u64,
}

struct World {
    now: u64,
    dice: Dice,
    stored: (u64, State),
    replicas: [Replica; 2],
    workloads: Vec<Workload>,
    roots: u64,
    phases: BTreeSet<&'static str>,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = 1_000_000;
        let first = State::new(root(0, now));
        let replica = || Replica { view: Some((first.clone(), now)), ..Replica::default() };
        let mut world = Self {
            now,
            dice: Dice(seed),
            replicas: [replica(), replica()],
            workloads: Vec::new(),
            stored: (1, first),
            roots: 1,
            phases: BTreeSet::new(),
        };
        for _ in 0..12 {
            let mut workload = Workload {
                bundle: BTreeSet::new(),
                hears_at: 0,
                issuer: String::new(),
                expires: 0,
                renews_at: 0,
            };
            world.serve(&mut workload);
            world.workloads.push(workload);
        }
        world
    }

    /// Disturbs a replica: it looks at the store, acts on what it saw, or crashes.
    fn disturb(&mut self, index: usize) {
        let now = self.now;
        let chance = self.dice.below(100);
        let (pause, absence) = (self.dice.below(100), self.dice.below(800));
        let other = &self.replicas[1 - index];
        let other_is_up = other.acts(now).is_some() && other.cut_off_until <= now;
        let replica = &mut self.replicas[index];
        if now < replica.back_at {
            return;
        }
        match chance {
            // It crashes and forgets everything; somebody is always left.
            0..=1 if other_is_up => *replica = Replica { back_at: now + pause, ..Replica::default() },
            // It is cut off from the store, perhaps for so long that it must not act any more.
            2 if other_is_up => replica.cut_off_until = now + absence,
            _ if now < replica.cut_off_until => {}
            3..=60 => {
                replica.loaded = Some(self.stored.clone());
                replica.view = Some((self.stored.1.clone(), now));
            }
            _ => self.act(index),
        }
    }

    /// Acts on what was loaded, which may be out of date by now.
    fn act(&mut self, index: usize) {
        let (now, number) = (self.now, self.roots);
        let replica = &mut self.replicas[index];
        let Some((version, state)) = replica.loaded.clone() else { return };
        let observed = Observations { generated: replica.generated.clone(), unconfirmed: None };
        let outcome = step(&state, &POLICY, now, &observed);
        if let Some(Action::Generate { .. }) = outcome.action {
            replica.generated = Some(root(number, now));
            self.roots += 1;
        }
        let Some(next) = outcome.next else { return };
        replica.loaded = None;
        replica.generated = None;
        if version == self.stored.0 {
            self.phases.insert(match next.phase {
                Phase::Stable => "stable",
                Phase::Distributing { .. } => "distributing",
                Phase::Retiring { .. } => "retiring",
            });
            self.stored = (version + 1, next);
        }
    }

    /// Serves a workload what it is due: a bundle, a certificate.
    fn serve(&mut self, workload: &mut Workload) {
        let start = usize::try_from(self.dice.below(2)).unwrap();
        let state = [start, 1 - start].into_iter().find_map(|index| self.replicas[index].acts(self.now));
        let Some(state) = state.cloned() else { return };
        if self.now >= workload.hears_at {
            workload.bundle = state.roots.iter().map(|root| root.id.clone()).collect();
            workload.hears_at = self.now + self.dice.below(150);
        }
        if self.now >= workload.renews_at {
            // Some renew when half of the time is over, some at the last moment.
            let last = self.dice.below(2) == 0;
            let longest = POLICY.longest_leaf.as_secs();
            let life = if last { longest } else { 1800 + self.dice.below(longest - 1800) };
            let issuer = state.current().unwrap();
            workload.expires = (self.now + life).min(issuer.not_after);
            workload.issuer = issuer.id.clone();
            let left = workload.expires - self.now;
            workload.renews_at = if last { workload.expires - left.min(150) } else { self.now + left / 2 };
        }
    }

    /// Every certificate is valid, and every workload believes it.
    fn check(&self) -> Result<(), TestCaseError> {
        let expired = self.workloads.iter().any(|holder| holder.expires <= self.now);
        prop_assert!(!expired, "a certificate has expired at {}", self.now);
        let issuers: BTreeSet<_> = self.workloads.iter().map(|holder| &holder.issuer).collect();
        for (issuer, verifier) in
            issuers.iter().flat_map(|one| self.workloads.iter().map(move |who| (one, who)))
        {
            let (now, bundle) = (self.now, &verifier.bundle);
            prop_assert!(
                bundle.contains(*issuer),
                "{issuer} is not in {bundle:?} at {now}: {:?}",
                self.stored
            );
        }
        Ok(())
    }

    fn run(&mut self, seconds: u64, request_every: u64) -> Result<(), TestCaseError> {
        let end = self.now + seconds;
        while self.now < end {
            self.now += TICK;
            if self.now % request_every < TICK {
                self.stored = (self.stored.0 + 1, self.stored.1.with_request());
            }
            for index in 0..2 {
                self.disturb(index);
            }
            let mut workloads = std::mem::take(&mut self.workloads);
            for workload in &mut workloads {
                self.serve(workload);
            }
            self.workloads = workloads;
            self.check()?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Four days: roots are renewed because they age and replaced because somebody asks.
    #[test]
    fn every_certificate_verifies_everywhere_at_any_time(seed in any::<u64>(), hours in 4_u64..40) {
        let mut world = World::new(seed);
        world.run(4 * 24 * 3600, hours * 3600)?;
        prop_assert_eq!(world.phases.len(), 3);
        prop_assert!(world.stored.1.steps >= 6, "too little happened: {:?}", world.stored);
        prop_assert!(world.stored.1.roots.len() <= 2);
    }
}

#[test]
fn stable_state_waits_until_the_grace_period() {
    let state = State::new(root(0, 0));
    let before = step(&state, &POLICY, ROOT_LIFE * 4 / 5 - 1, &Observations::default());
    assert_eq!((before.next, before.action, before.wake), (None, None, ROOT_LIFE * 4 / 5));
    let due = step(&state, &POLICY, ROOT_LIFE * 4 / 5, &Observations::default());
    assert_eq!(due.action, Some(Action::Generate { keep_key: true }));
}

#[test]
fn requested_rotation_takes_a_new_key() {
    let state = State::new(root(0, 0)).with_request();
    let asked = step(&state, &POLICY, 10, &Observations::default());
    assert_eq!(asked.action, Some(Action::Generate { keep_key: false }));
    let observed = Observations { generated: Some(root(1, 10)), unconfirmed: None };
    let next = step(&state, &POLICY, 10, &observed).next.unwrap();
    assert_eq!(next.phase, Phase::Distributing { next: "root-1".to_owned(), since: 10 });
    assert_eq!(next.issuer, "root-0");
    assert!(!next.requested);
}

fn distributing() -> State {
    let state = State::new(root(0, 0)).with_request();
    step(&state, &POLICY, 10, &Observations { generated: Some(root(1, 10)), unconfirmed: None }).next.unwrap()
}

#[test]
fn new_root_issues_only_when_it_is_everywhere() {
    let state = distributing();
    let everywhere = 10 + POLICY.distribution().as_secs();
    let early =
        step(&state, &POLICY, everywhere - 1, &Observations { unconfirmed: Some(0), generated: None });
    assert_eq!((early.next, early.wake), (None, everywhere));
    let lacking = Observations { unconfirmed: Some(3), generated: None };
    assert_eq!(step(&state, &POLICY, everywhere, &lacking).next, None);
    let patient = everywhere + POLICY.patience.as_secs();
    assert_eq!(step(&state, &POLICY, patient, &lacking).next.unwrap().issuer, "root-1");
    let next = step(&state, &POLICY, everywhere, &Observations::default()).next.unwrap();
    let until = everywhere + POLICY.retirement().as_secs();
    assert_eq!(next.phase, Phase::Retiring { old: vec!["root-0".to_owned()], until });
    assert_eq!(next.roots.len(), 2);
}

#[test]
fn new_root_issues_at_once_when_the_old_one_is_about_to_expire() {
    let mut state = distributing();
    state.roots[0].not_after = 200;
    let next =
        step(&state, &POLICY, 100, &Observations { unconfirmed: Some(9), generated: None }).next.unwrap();
    assert_eq!(next.issuer, "root-1");
}

#[test]
fn old_root_leaves_when_nothing_under_it_can_be_valid() {
    let state = distributing();
    let switched = 10 + POLICY.distribution().as_secs();
    let state = step(&state, &POLICY, switched, &Observations::default()).next.unwrap();
    let until = switched + POLICY.retirement().as_secs();
    assert_eq!(step(&state, &POLICY, until - 1, &Observations::default()).wake, until);
    let stable = step(&state, &POLICY, until, &Observations::default()).next.unwrap();
    assert_eq!((stable.phase, stable.roots.len()), (Phase::Stable, 1));
}

#[test]
fn state_survives_text_and_back() {
    let state = distributing();
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
}
