//! Pacing of batches: how long the apply loop gathers changes before it applies them.

use std::time::Duration;

use canopus_runtime::flags::{Flags, PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX};
use tokio::time::Instant;

/// Changes that come no faster than this, one after another, are each applied at once.
const CALM: Duration = Duration::from_millis(40);

/// About what one session costs that a batch concerns: a response, its acknowledgement, and the system calls for both.
const SESSION: Duration = Duration::from_micros(40);

/// While changes come fast, the pause after a batch is so many times what the batch cost.
const BREATH: u32 = 16;

/// A longer silence than this says no more about how fast changes come.
const SILENCE: Duration = Duration::from_secs(1);

/// Applies at once when there is time, and in larger batches when there is not.
///
/// After a batch that took a while there is a pause of the same length, so that a storm of changes takes half the time
/// there is and no more. While changes come fast one after another there is a longer one, in proportion to what the batch
/// cost with the sessions it concerned: many changes in one response cost little more than one. The pause is never
/// longer than `PILOT_DEBOUNCE_AFTER`, and no change ever waits longer than `PILOT_DEBOUNCE_MAX`.
#[derive(Debug)]
pub(crate) struct Pace {
    longest_pause: Duration,
    longest_wait: Duration,
    /// The time between two changes, of late.
    spacing: Duration,
    last: Option<Instant>,
    resume: Option<Instant>,
}

/// A batch that was applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    /// How many changes it was made of.
    pub(crate) changes: usize,
    /// How many sessions it concerned.
    pub(crate) woken: usize,
}

impl Pace {
    pub(crate) fn new(flags: &Flags) -> Self {
        Self {
            longest_pause: flags.get(PILOT_DEBOUNCE_AFTER),
            longest_wait: flags.get(PILOT_DEBOUNCE_MAX),
            spacing: SILENCE,
            last: None,
            resume: None,
        }
    }

    /// When a batch is due whose first change came at `first`.
    pub(crate) fn due(&self, first: Instant) -> Instant {
        let resume = self.resume.unwrap_or(first);
        resume.clamp(first, first + self.longest_wait)
    }

    /// Takes note of a batch.
    pub(crate) fn applied(&mut self, batch: Applied) {
        let took = batch.ended.saturating_duration_since(batch.started);
        if batch.woken > 0 {
            self.note_spacing(batch);
        }
        let pause = if self.spacing < CALM && batch.woken > 0 {
            let woken = u32::try_from(batch.woken).unwrap_or(u32::MAX);
            BREATH * SESSION.saturating_mul(woken).saturating_add(took).min(self.longest_pause)
        } else {
            took
        };
        self.resume = Some(batch.ended + pause.min(self.longest_pause));
    }

    /// Each batch counts as much as all before it.
    fn note_spacing(&mut self, batch: Applied) {
        let since = self.last.map_or(SILENCE, |last| batch.started.saturating_duration_since(last));
        let changes = u32::try_from(batch.changes.max(1)).unwrap_or(u32::MAX);
        self.spacing = (self.spacing + since.min(SILENCE) / changes) / 2;
        self.last = Some(batch.started);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn pace(after: &str, max: &str) -> Pace {
        Pace::new(&Flags::read(&[("PILOT_DEBOUNCE_AFTER", after), ("PILOT_DEBOUNCE_MAX", max)]))
    }

    fn batch(started: Instant, took: Duration) -> Applied {
        Applied { started, ended: started + took, changes: 1, woken: 200 }
    }

    /// Applies one change after another, each when it is due; how many batches they made up.
    fn batches(pace: &mut Pace, start: Instant, spacing: Duration, woken: usize) -> usize {
        let (mut count, mut due, mut changes) = (0, None, 0);
        for change in 0..100 {
            let now = start + change * spacing;
            if let Some(started) = due.filter(|due| *due <= now) {
                pace.applied(Applied { woken, changes, ..batch(started, MILLISECOND) });
                (count, due, changes) = (count + 1, None, 0);
            }
            changes += 1;
            due = due.or(Some(pace.due(now)));
        }
        count
    }

    #[test]
    fn idle_mesh_applies_at_once() {
        let mut pace = pace("100ms", "10s");
        let start = Instant::now();
        assert_eq!(pace.due(start), start);
        pace.applied(batch(start, MILLISECOND));
        let later = start + 50 * MILLISECOND;
        assert_eq!(pace.due(later), later);
    }

    #[test]
    fn pause_is_as_long_as_the_batch_took_up_to_the_bound() {
        let mut pace = pace("100ms", "10s");
        let start = Instant::now();
        pace.applied(batch(start, 30 * MILLISECOND));
        assert_eq!(pace.due(start + 31 * MILLISECOND), start + 60 * MILLISECOND);
        pace.applied(batch(start, 300 * MILLISECOND));
        assert_eq!(pace.due(start + 300 * MILLISECOND), start + 400 * MILLISECOND);
    }

    #[test]
    fn no_change_waits_longer_than_the_bound() {
        let mut pace = pace("1m", "20ms");
        let start = Instant::now();
        pace.applied(batch(start, 500 * MILLISECOND));
        let first = start + 500 * MILLISECOND;
        assert_eq!(pace.due(first), first + 20 * MILLISECOND);
    }

    #[test]
    fn changes_now_and_then_are_batches_of_their_own() {
        assert_eq!(batches(&mut pace("100ms", "10s"), Instant::now(), 50 * MILLISECOND, 1000), 99);
    }

    #[test]
    fn changes_in_a_row_are_gathered_when_they_concern_many() {
        let few = batches(&mut pace("100ms", "10s"), Instant::now(), 20 * MILLISECOND, 1000);
        assert!((15..30).contains(&few), "{few} batches in two seconds");
        assert!(batches(&mut pace("100ms", "10s"), Instant::now(), 20 * MILLISECOND, 1) > 80);
        assert!(batches(&mut pace("0s", "10s"), Instant::now(), 20 * MILLISECOND, 1000) > 90);
    }

    #[test]
    fn changes_that_concern_nobody_do_not_count() {
        assert!(batches(&mut pace("100ms", "10s"), Instant::now(), 20 * MILLISECOND, 0) > 90);
    }
}
