//! How much is done in each scenario.

use std::time::Duration;

/// Numbers of events, and times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// How long memory is left to settle.
    pub(crate) settle: Duration,
    /// Endpoints that change one after another.
    pub(crate) flaps: usize,
    /// How long each rate of churn lasts.
    pub(crate) churn: Duration,
    /// VirtualServices, services and policies that change one after another.
    pub(crate) edits: usize,
    /// Changes of each kind that change nothing.
    pub(crate) noops: usize,
    /// Rounds of the floor.
    pub(crate) floor_rounds: usize,
}

impl Scale {
    /// For figures to publish.
    pub(crate) const FULL: Self = Self {
        settle: Duration::from_secs(20),
        flaps: 60,
        churn: Duration::from_secs(15),
        edits: 10,
        noops: 500,
        floor_rounds: 50,
    };

    /// For a look that takes minutes.
    pub(crate) const QUICK: Self = Self {
        settle: Duration::from_secs(3),
        flaps: 20,
        churn: Duration::from_secs(4),
        edits: 3,
        noops: 100,
        floor_rounds: 20,
    };
}
