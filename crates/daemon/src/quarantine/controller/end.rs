//! How holds end by themselves: because they concern others by now, or to be tried again.

use std::time::Duration;

use canopus_engine::Batch;
use canopus_mesh::world::Origin;
use tokio::time::Instant;
use tracing::info;

use super::super::Hold;
use super::super::reach::{self, Reach};
use super::{QuarantineController, REST, serve};
use crate::push::Cause;

/// How often holds are looked at.
pub(super) const REVIEW: Duration = Duration::from_secs(1);

/// How long after a hold the same is tried again; twice as long after each time.
const PATIENT: Duration = Duration::from_secs(60);

/// The same if one of those who rejected it has connected again.
const EAGER: Duration = Duration::from_secs(2);

/// The longest time between two tries.
const LONGEST: Duration = Duration::from_secs(3600);

/// Objects whose tries are remembered.
const REMEMBERED: usize = 1024;

/// Why a hold ends.
enum End {
    /// It concerns somebody who has not rejected anything.
    Stranger(String),
    /// It is tried again.
    Try,
}

impl QuarantineController {
    /// Ends the holds that have to end.
    pub(super) fn review(&mut self, now: Instant) {
        if self.case.is_some() || self.quarantine().is_empty() {
            self.review = None;
            return;
        }
        // Whoever has just connected may be somebody the holds were never meant for.
        let due = if self.quarantine().has_newcomers() { self.rested } else { self.review };
        if due.is_some_and(|at| now < at) {
            return;
        }
        self.quarantine().greet_newcomers();
        let started = self.now();
        let holds = self.quarantine().holds();
        for (origin, hold) in holds {
            match self.end_of(&origin, &hold, now) {
                Some(End::Stranger(name)) => {
                    info!(object = %origin, "no longer held: it concerns {name} too, which has not rejected it");
                    self.serve_again(&origin, hold);
                }
                Some(End::Try) => {
                    info!(object = %origin, tries = hold.tries, "served again, to see whether it is still rejected");
                    self.remember_try(&origin, &hold);
                    self.serve_again(&origin, hold);
                }
                None => {}
            }
        }
        let rested = now + (self.now() - started) * REST;
        self.rested = Some(rested);
        self.review = (!self.quarantine().is_empty()).then(|| rested.max(now + REVIEW));
    }

    fn end_of(&self, origin: &Origin, hold: &Hold, now: Instant) -> Option<End> {
        let mut batch = Batch::new();
        serve(&mut batch, origin, Some(hold.wanted.clone()));
        let Reach { members, stranger, is_awaited } =
            reach::predict(&self.dispatcher, batch, |client, _| hold.members.include(client));
        if let Some(stranger) = stranger {
            return Some(End::Stranger(stranger.proxy.id.id.clone()));
        }
        if is_awaited {
            return Some(End::Stranger("a proxy that has just connected".to_owned()));
        }
        let has_come_back = !members.is_subset(&hold.members.connections);
        let pause = if has_come_back { EAGER } else { PATIENT };
        let pause = pause.saturating_mul(1 << hold.tries.min(16)).min(LONGEST);
        (now.saturating_duration_since(hold.held_at) >= pause).then_some(End::Try)
    }

    /// Serves what an object's owner wants, as a change like any other.
    fn serve_again(&mut self, origin: &Origin, hold: Hold) {
        let mut batch = Batch::new();
        serve(&mut batch, origin, Some(hold.wanted));
        self.quarantine().write([(origin.clone(), None)], self.case.is_some());
        self.release(batch, vec![origin.clone()], Cause::quarantine([origin.clone()]));
    }

    fn remember_try(&mut self, origin: &Origin, hold: &Hold) {
        if self.tried.len() >= REMEMBERED {
            self.tried.clear();
        }
        self.tried.insert(origin.clone(), (hold.wanted.clone(), hold.tries + 1));
    }
}
