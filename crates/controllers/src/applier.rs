//! Carries out what controllers plan.
//!
//! One applier serves one controller. It plans when the world changes, at most once per [`PACE`], and makes the writes of
//! the plan a few at a time. Two facts keep it from repeating itself: a write it has made is not made again until the watch
//! had time to show it ([`memory`]), and a plan lists nothing that is as it should be.
//!
//! **Invariant.** No write is sent unless the leadership holds at that moment, and none takes longer than [`PATIENCE`],
//! which is shorter than the time between the end of a leadership and the begin of the next.

mod declared;
mod managed;
mod memory;
mod perform;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::ObjectKey;
use canopus_engine::Engine;
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error, info, warn};

pub use self::managed::adopt;
pub use self::perform::Outcome;

use self::memory::Memory;
use crate::api::Api;
use crate::controller::{Controller, Observed, Plan, Write};
use crate::election::Leadership;

/// Plans are at least this far apart.
const PACE: Duration = Duration::from_millis(500);

/// How long one write may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Writes under way at a time.
const AT_ONCE: usize = 8;

/// Is told what becomes of writes, such as to count them.
pub trait Observer: Send + Sync + 'static {
    /// A write of this controller ended so.
    fn wrote(&self, _controller: &str, _outcome: &Outcome) {}
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
    /// Who is told what becomes of writes.
    pub observer: Arc<dyn Observer>,
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
    async fn lead(&mut self) -> bool {
        // What others did while they led is not known.
        let mut memory = Memory::default();
        let mut faults = BTreeMap::new();
        let mut leadership = self.leadership.clone();
        // Only who leads pays for what the plan rests on.
        let (controller, engine) = (Arc::clone(&self.controller), self.engine.clone());
        let _watched = tokio::task::spawn_blocking(move || controller.watch(&engine)).await;
        loop {
            self.revisions.borrow_and_update();
            let planned = Instant::now();
            let again = match self.plan().await {
                Some(plan) => {
                    self.report_faults(&plan, &mut faults);
                    let again = plan.again_in.map(|pause| planned + pause);
                    let pending = self.carry_out(plan, &mut memory).await;
                    [again, pending].into_iter().flatten().min()
                }
                None => Some(planned + memory::LONGEST_PAUSE),
            };
            let earliest = planned + PACE;
            tokio::select! {
                changed = self.revisions.changed() => if changed.is_err() { return true },
                () = sleep_until(again.unwrap_or(planned + memory::LONGEST_PAUSE)) => {}
                () = leadership.lost() => return false,
            }
            tokio::select! {
                () = sleep_until(earliest) => {}
                () = leadership.lost() => return false,
            }
        }
    }

    /// What is to be done; planning computes, so others must not wait for it.
    async fn plan(&self) -> Option<Plan> {
        let (controller, snapshot) = (Arc::clone(&self.controller), self.engine.snapshot());
        let name = controller.name();
        let planned = tokio::task::spawn_blocking(move || controller.plan(&snapshot, Timestamp::now())).await;
        match planned {
            Ok(Ok(plan)) => Some(plan),
            Ok(Err(error)) => {
                error!(controller = name, %error, "the desired state cannot be computed");
                None
            }
            Err(_) => {
                error!(controller = name, "planning panicked; nothing is written");
                None
            }
        }
    }

    /// Makes the writes that are due; when the next one is.
    async fn carry_out(&self, plan: Plan, memory: &mut Memory) -> Option<Instant> {
        let now = Instant::now();
        let due = memory.select(plan.writes, now);
        let attempts = due.into_iter().map(|write| async {
            let (outcome, result) = self.attempt(&write).await;
            (write, outcome, result)
        });
        let mut attempts = futures::stream::iter(attempts).buffer_unordered(AT_ONCE);
        while let Some((write, outcome, result)) = attempts.next().await {
            self.report(&write, &outcome, memory);
            self.observer.wrote(self.controller.name(), &outcome);
            memory.note(write, &outcome, result, Instant::now());
        }
        memory.next_due()
    }

    async fn attempt(&self, write: &Write) -> (Outcome, Option<Observed>) {
        if !self.leadership.holds() {
            return (Outcome::NotLeading, None);
        }
        match timeout(PATIENCE, perform::perform(self.api.as_ref(), write, self.dry_run)).await {
            Ok(done) => done,
            Err(_) => (Outcome::Failed("the API server did not answer in time".to_owned()), None),
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
