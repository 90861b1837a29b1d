//! Carries out what controllers plan.
//!
//! One applier serves one controller.
//!
//! ```text
//!   world changes ──► plan ──► due writes ──► queue ──► a few under way ──► outcomes ──► memory
//!                      ▲      (memory)          newest and oldest in turn                  │
//!                      └──────────────── again when a write failed or was overtaken ◄──────┘
//! ```
//!
//! Planning goes on while writes are under way: a change does not wait for what was planned before it, and each plan replaces what
//! of the last one has not begun. Two facts keep an applier from repeating itself: a write it has made is not made again until the
//! watch had time to show it ([`memory`]), and a plan lists nothing that is as it should be.
//!
//! **Invariant.** No write is sent unless the leadership holds at that moment, and none takes longer than [`PATIENCE`],
//! which is shorter than the time between the end of a leadership and the begin of the next. There is at most one write per object
//! under way.

mod declared;
mod managed;
mod memory;
mod perform;
mod queue;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::ObjectKey;
use canopus_engine::Engine;
use futures::StreamExt as _;
use futures::future::{FusedFuture as _, FutureExt as _};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error, info, warn};

pub use self::managed::adopt;
pub use self::perform::Outcome;

use self::memory::Memory;
use self::queue::Queue;
use crate::api::Api;
use crate::controller::{Basis, Controller, Observed, Plan, Write};
use crate::election::Leadership;

/// The longest that a plan's own cost puts off the next one.
const LONGEST_PACE: Duration = Duration::from_millis(500);

/// Planning takes at most one part in so many of the time.
const SHARE: u32 = 10;

/// How long one write may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Writes under way at a time.
const AT_ONCE: usize = 8;

/// Observes the outcome of writes, such as to count them.
pub trait Observer: Send + Sync + 'static {
    /// A write of this controller ended so.
    fn wrote(&self, _controller: &str, _write: &Write, _outcome: &Outcome) {}
}

/// Observes nothing.
impl Observer for () {}

/// Carries out the plans of a controller.
pub struct Applier<A> {
    /// What plans.
    pub controller: Arc<dyn Controller>,
    /// Where writes go.
    pub api: Arc<A>,
    /// The world.
    pub engine: Engine,
    /// Tells when the world has changed.
    pub revisions: watch::Receiver<u64>,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// Whether the server is only asked what it would do.
    pub dry_run: bool,
    /// Observes the outcome of writes.
    pub observer: Arc<dyn Observer>,
}

impl<A> Clone for Applier<A> {
    fn clone(&self) -> Self {
        Self {
            controller: Arc::clone(&self.controller),
            api: Arc::clone(&self.api),
            engine: self.engine.clone(),
            revisions: self.revisions.clone(),
            leadership: self.leadership.clone(),
            dry_run: self.dry_run,
            observer: Arc::clone(&self.observer),
        }
    }
}

impl<A: Api> Applier<A> {
    /// Writes whenever this process leads, until nobody changes the world any more.
    pub async fn run(mut self) {
        let name = self.controller.name();
        loop {
            self.leadership.acquired().await;
            info!(controller = name, dry_run = self.dry_run, "controller started");
            let ended = self.lead().await;
            info!(controller = name, "controller stopped");
            if ended {
                return;
            }
        }
    }

    /// Writes while this process leads; whether the world will never change again.
    async fn lead(&self) -> bool {
        let mut leadership = self.leadership.clone();
        // Only the leader pays for keeping what the plan reads up to date.
        let (controller, engine) = (Arc::clone(&self.controller), self.engine.clone());
        let _watched = tokio::task::spawn_blocking(move || controller.watch(&engine)).await;
        tokio::select! {
            () = self.work(self.revisions.clone()) => true,
            () = leadership.lost() => false,
        }
    }

    fn basis(&self) -> Option<Basis> {
        self.controller.basis(&self.engine.snapshot())
    }

    /// Plans and writes until nobody changes the world any more.
    async fn work(&self, mut revisions: watch::Receiver<u64>) {
        // What others did while they led is not known.
        let (mut memory, mut queue, mut faults) = (Memory::default(), Queue::default(), BTreeMap::new());
        let mut under_way = FuturesUnordered::new();
        revisions.borrow_and_update();
        let mut basis = self.basis();
        let mut planning = self.plan().boxed().fuse();
        let mut is_outdated = false;
        // When the next plan is due though nothing changes, and before which moment there is none whatever changes.
        let (mut due, mut earliest) = (None, Instant::now());
        loop {
            while under_way.len() < AT_ONCE
                && let Some(write) = queue.begin()
            {
                under_way.push(self.attempt(write));
            }
            let next = if is_outdated { Some(earliest) } else { due.map(|due: Instant| due.max(earliest)) };
            tokio::select! {
                Some((write, outcome, result)) = under_way.next(), if !under_way.is_empty() => {
                    let now = Instant::now();
                    self.report(&write, &outcome, &memory);
                    self.observer.wrote(self.controller.name(), &write, &outcome);
                    // What was planned for the object meanwhile had to wait.
                    is_outdated |= queue.end(&write.target);
                    memory.note(write, &outcome, result, now);
                    due = [due, memory.next_due(now)].into_iter().flatten().min();
                }
                (plan, took) = &mut planning => {
                    let now = Instant::now();
                    let cost = took.saturating_mul(SHARE).min(LONGEST_PACE);
                    earliest = now + self.controller.pace().max(cost);
                    let again_in = plan.as_ref().and_then(|plan| plan.again_in).unwrap_or(memory::LONGEST_PAUSE);
                    if let Some(plan) = plan {
                        self.report_faults(&plan, &mut faults);
                        queue.replace(memory.select(plan.writes, now));
                    }
                    due = [due, Some(now + again_in), memory.next_due(now)].into_iter().flatten().min();
                }
                changed = revisions.changed(), if !is_outdated => match changed {
                    Ok(()) => is_outdated = basis.is_none() || basis != self.basis(),
                    Err(_) => return,
                },
                () = sleep_until(next.unwrap_or(earliest)), if next.is_some() && planning.is_terminated() => {
                    (is_outdated, due) = (false, None);
                    revisions.borrow_and_update();
                    // What changes after this is planned for again.
                    basis = self.basis();
                    planning = self.plan().boxed().fuse();
                }
            }
        }
    }

    /// What is to be done, and how long it took to know; planning computes, so others must not wait for it.
    async fn plan(&self) -> (Option<Plan>, Duration) {
        let (controller, snapshot) = (Arc::clone(&self.controller), self.engine.snapshot());
        let (name, began) = (controller.name(), Instant::now());
        let planned = tokio::task::spawn_blocking(move || controller.plan(&snapshot, Timestamp::now())).await;
        let plan = match planned {
            Ok(Ok(plan)) => Some(plan),
            Ok(Err(error)) => {
                error!(controller = name, %error, "the desired state cannot be computed");
                None
            }
            Err(_) => {
                error!(controller = name, "planning panicked; nothing is written");
                None
            }
        };
        (plan, began.elapsed())
    }

    async fn attempt(&self, write: Arc<Write>) -> (Arc<Write>, Outcome, Option<Observed>) {
        if !self.leadership.holds() {
            return (write, Outcome::NotLeading, None);
        }
        match timeout(PATIENCE, perform::perform(self.api.as_ref(), &write, self.dry_run)).await {
            Ok((outcome, result)) => (write, outcome, result),
            Err(_) => (write, Outcome::Failed("the API server did not answer in time".to_owned()), None),
        }
    }

    /// Logs what keeps writes from being known, once each.
    fn report_faults(&self, plan: &Plan, known: &mut BTreeMap<ObjectKey, String>) {
        for (object, reason) in &plan.faults {
            if known.get(object) != Some(reason) {
                warn!(controller = self.controller.name(), %object, reason, "nothing is written for this object");
            }
        }
        known.clone_from(&plan.faults);
    }

    fn report(&self, write: &Write, outcome: &Outcome, memory: &Memory) {
        let (controller, target) = (self.controller.name(), &write.target);
        match outcome {
            Outcome::Written if self.dry_run => info!(controller, %target, "dry run: would be written"),
            Outcome::Written => debug!(controller, %target, "written"),
            Outcome::Outdated | Outcome::NotLeading | Outcome::Ignored => {
                debug!(controller, %target, ?outcome, "not written");
            }
            // The reason rarely changes, and is worth a line once.
            _ if memory.has_failed(write) => debug!(controller, %target, ?outcome, "not written again"),
            Outcome::Declared(managers) => info!(
                controller, %target, managers = managers.join(", "),
                "left alone: others declare the same fields; remove the fields from their manifests to have them kept here"
            ),
            Outcome::Foreign => info!(
                controller, %target, label = write.mark().unwrap_or_default(),
                "left alone: an object of this name exists and does not have the label of those made here"
            ),
            Outcome::Forbidden(reason) => {
                warn!(controller, %target, reason, "the control plane lacks the right to write this; grant it");
            }
            Outcome::Failed(reason) => warn!(controller, %target, reason, "cannot be written"),
        }
    }
}

#[cfg(test)]
mod tests;
