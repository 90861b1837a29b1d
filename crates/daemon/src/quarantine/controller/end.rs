//! How holds end by themselves: they are tried again.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::super::{Hold, HoldKey};
use super::QuarantineController;

/// How often holds are looked at.
pub(super) const REVIEW: Duration = Duration::from_secs(1);

/// How long after a hold the same is tried again; twice as long after each time.
const PATIENT: Duration = Duration::from_secs(60);

/// The longest time between two tries.
const LONGEST: Duration = Duration::from_secs(3600);

/// Objects whose tries are remembered.
const REMEMBERED: usize = 1024;

impl QuarantineController {
    /// Ends the holds that have to end.
    pub(super) fn review(&mut self, now: Instant) {
        if self.case.is_some() || self.quarantine().is_empty() {
            self.review = None;
            return;
        }
        if self.review.is_some_and(|at| now < at) {
            return;
        }
        let mut due = self.quarantine().entries();
        due.retain(|(_, hold)| is_due(hold, now));
        for ((origin, _), hold) in &due {
            info!(object = %origin, tries = hold.tries, "served again, to see whether it is still rejected");
        }
        self.remember_tries(&due);
        self.release(due.into_iter().map(|(key, _)| key).collect());
        self.review = (!self.quarantine().is_empty()).then(|| now + REVIEW);
    }

    fn remember_tries(&mut self, holds: &[(HoldKey, Hold)]) {
        for ((origin, _), hold) in holds {
            if self.tried.len() >= REMEMBERED {
                self.tried.clear();
            }
            self.tried.insert(origin.clone(), (hold.wanted.clone(), hold.tries + 1));
        }
    }
}

fn is_due(hold: &Hold, now: Instant) -> bool {
    let pause = PATIENT.saturating_mul(1 << hold.tries.min(16)).min(LONGEST);
    now.saturating_duration_since(hold.held_at) >= pause
}
