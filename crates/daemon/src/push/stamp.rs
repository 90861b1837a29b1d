//! Points in time that can be shown and subtracted.

use std::time::{Duration, Instant, SystemTime};

/// A point in time: what the clock on the wall said, and one that never goes backwards.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// What to show.
    pub time: SystemTime,
    instant: Instant,
}

impl Stamp {
    /// Now.
    pub fn now() -> Self {
        Self { time: SystemTime::now(), instant: Instant::now() }
    }

    /// How long after `earlier` this was; nothing if it was before.
    pub fn since(&self, earlier: Self) -> Duration {
        self.instant.saturating_duration_since(earlier.instant)
    }

    /// How long ago this was.
    pub fn elapsed(&self) -> Duration {
        self.instant.elapsed()
    }
}
