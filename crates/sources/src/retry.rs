//! Pauses between attempts.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

const LONGEST: Duration = Duration::from_secs(10);

/// Counts failures in a row. Pauses double, and are cut at random by up to a half, so that those who failed together do not
/// come back together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
}

impl Retry {
    /// Counts a failure; how long to wait before the next attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        let longest = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let share = RandomState::new().hash_one(self.failures) % 512;
        longest - longest / 1024 * u32::try_from(share).unwrap_or_default()
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_start_over_after_success() {
        let mut retry = Retry::default();
        for doubled in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let pause = retry.pause().as_millis();
            assert!((doubled / 2..=doubled).contains(&pause), "{pause} of {doubled}");
        }
        assert!(retry.is_failing());
        retry.reset();
        assert!(!retry.is_failing() && retry.pause() <= FIRST);
    }
}
