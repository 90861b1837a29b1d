//! How long changes are gathered before they are applied.

use std::time::Duration;

use canopus_runtime::flags::{Flags, PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX};
use tokio::time::Instant;

/// Applies at once when there is time, and in larger batches when there is not.
///
/// After a batch that took a while there is a pause of the same length, so that a storm of changes takes half the time
/// there is and no more. The pause is never longer than `PILOT_DEBOUNCE_AFTER`, and no change ever waits longer than
/// `PILOT_DEBOUNCE_MAX`.
#[derive(Debug)]
pub(crate) struct Pace {
    longest_pause: Duration,
    longest_wait: Duration,
    resume: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(flags: &Flags) -> Self {
        Self {
            longest_pause: flags.get(PILOT_DEBOUNCE_AFTER),
            longest_wait: flags.get(PILOT_DEBOUNCE_MAX),
            resume: None,
        }
    }

    /// When a batch is due whose first change came at `first`.
    pub(crate) fn due(&self, first: Instant) -> Instant {
        let resume = self.resume.unwrap_or(first);
        resume.clamp(first, first + self.longest_wait)
    }

    /// A batch was applied between these times.
    pub(crate) fn applied(&mut self, started: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(started);
        self.resume = Some(ended + took.min(self.longest_pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn pace(after: &str, max: &str) -> Pace {
        Pace::new(&Flags::read(&[("PILOT_DEBOUNCE_AFTER", after), ("PILOT_DEBOUNCE_MAX", max)]))
    }

    #[test]
    fn idle_mesh_applies_at_once() {
        let mut pace = pace("100ms", "10s");
        let start = Instant::now();
        assert_eq!(pace.due(start), start);
        pace.applied(start, start + MILLISECOND);
        let later = start + 50 * MILLISECOND;
        assert_eq!(pace.due(later), later);
    }

    #[test]
    fn pause_is_as_long_as_the_batch_took_up_to_the_bound() {
        let mut pace = pace("100ms", "10s");
        let start = Instant::now();
        pace.applied(start, start + 30 * MILLISECOND);
        assert_eq!(pace.due(start + 31 * MILLISECOND), start + 60 * MILLISECOND);
        pace.applied(start, start + 300 * MILLISECOND);
        assert_eq!(pace.due(start + 300 * MILLISECOND), start + 400 * MILLISECOND);
    }

    #[test]
    fn no_change_waits_longer_than_the_bound() {
        let mut pace = pace("1m", "20ms");
        let start = Instant::now();
        pace.applied(start, start + 500 * MILLISECOND);
        let first = start + 500 * MILLISECOND;
        assert_eq!(pace.due(first), first + 20 * MILLISECOND);
    }
}
