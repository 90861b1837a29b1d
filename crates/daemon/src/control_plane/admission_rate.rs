//! How many streams may be opened in a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// How long a stream waits for its turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets streams in at a steady rate.
#[derive(Debug)]
pub(crate) struct AdmissionRate {
    /// The time between two of them; none if there is no limit.
    interval: Option<Duration>,
    next: Mutex<Instant>,
}

/// The client connects too often.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RateLimited;

impl AdmissionRate {
    /// At most so many each second; zero is no limit.
    pub(crate) fn new(per_second: f64) -> Self {
        let interval = (per_second > 0.0).then(|| Duration::from_secs_f64(per_second.recip().min(3600.0)));
        Self { interval, next: Mutex::new(Instant::now()) }
    }

    /// Waits for a turn, but not for long.
    pub(crate) async fn pass(&self) -> Result<(), RateLimited> {
        if let Some(turn) = self.turn(Instant::now())? {
            sleep_until(turn).await;
        }
        Ok(())
    }

    /// When it is the turn of someone who comes now.
    fn turn(&self, now: Instant) -> Result<Option<Instant>, RateLimited> {
        let Some(interval) = self.interval else { return Ok(None) };
        let mut next = self.next.lock();
        let turn = (*next).max(now);
        if turn > now + PATIENCE {
            return Err(RateLimited);
        }
        *next = turn + interval;
        Ok(Some(turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_at_the_rate_until_the_wait_is_too_long() {
        let admission_rate = AdmissionRate::new(2.0);
        let now = Instant::now();
        let turns: Vec<_> = (0..4).map(|_| admission_rate.turn(now)).collect();
        let after = |millis| Ok(Some(now + Duration::from_millis(millis)));
        assert_eq!(turns, [after(0), after(500), after(1000), Err(RateLimited)]);
        assert_eq!(admission_rate.turn(now + Duration::from_secs(5)), Ok(Some(now + Duration::from_secs(5))));
    }

    #[tokio::test]
    async fn no_limit_lets_everyone_in() {
        assert_eq!(AdmissionRate::new(0.0).turn(Instant::now()), Ok(None));
    }
}
