//! How often the API server may be asked.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// Requests per second, and how many may be made at once after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests per second in the long run; zero or less for no limit.
    pub qps: f64,
    /// Requests at once.
    pub burst: u32,
}

impl Default for RateLimit {
    /// Istio's defaults.
    fn default() -> Self {
        Self { qps: 80.0, burst: 160 }
    }
}

/// Makes callers wait for their turn, in the order in which they come.
#[derive(Debug)]
pub(super) struct Limiter {
    limit: RateLimit,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Requests that may be made now; below zero once some wait.
    tokens: f64,
    at: Instant,
}

impl Limiter {
    pub(super) fn new(limit: RateLimit) -> Self {
        let bucket = Bucket { tokens: f64::from(limit.burst.max(1)), at: Instant::now() };
        Self { limit, bucket: Mutex::new(bucket) }
    }

    /// Waits until a request may be made.
    pub(super) async fn turn(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    fn reserve(&self, now: Instant) -> Duration {
        let RateLimit { qps, burst } = self.limit;
        if qps <= 0.0 {
            return Duration::ZERO;
        }
        let mut bucket = self.bucket.lock();
        let filled = bucket.tokens + now.saturating_duration_since(bucket.at).as_secs_f64() * qps;
        *bucket = Bucket { tokens: filled.min(f64::from(burst.max(1))) - 1.0, at: now };
        Duration::try_from_secs_f64((-bucket.tokens / qps).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_is_free_and_the_rest_waits_its_turn() {
        let limiter = Limiter::new(RateLimit { qps: 10.0, burst: 3 });
        let start = Instant::now();
        for expected in [0, 0, 0, 100, 200, 300] {
            limiter.turn().await;
            assert_eq!(start.elapsed().as_millis(), expected);
        }
        sleep(Duration::from_secs(60)).await;
        let start = Instant::now();
        for expected in [0, 0, 0, 100] {
            limiter.turn().await;
            assert_eq!(start.elapsed().as_millis(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_never_waits() {
        let limiter = Limiter::new(RateLimit { qps: 0.0, burst: 0 });
        for _ in 0..1000 {
            assert_eq!(limiter.reserve(Instant::now()), Duration::ZERO);
        }
    }
}
