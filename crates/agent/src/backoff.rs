//! Waiting before another try: longer after every failure, and never quite as long as everybody else.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Doubles from `first` to `most`; each wait is between half of that and all of it.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// Begins with `first`.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, next: first, most }
    }

    /// How long to wait now.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.5 + random() / 2.0);
        self.next = (self.next * 2).min(self.most);
        wait
    }

    /// The last try was a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A number from 0 to 1. The hasher's keys are random, and spreading waits needs no more than that.
pub fn random() -> f64 {
    let bits = RandomState::new().hash_one(0u8) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_begin_again_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(400));
        for most in [100, 200, 400, 400] {
            let wait = backoff.wait();
            assert!(
                wait <= Duration::from_millis(most) && wait >= Duration::from_millis(most / 2),
                "{wait:?}"
            );
        }
        backoff.reset();
        assert!(backoff.wait() <= Duration::from_millis(100));
    }

    #[test]
    fn random_numbers_differ() {
        let numbers: Vec<f64> = (0..8).map(|_| random()).collect();
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        assert!(numbers.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
