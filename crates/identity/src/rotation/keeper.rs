//! The loop that keeps an authority in step with its stored root.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use rustls_pki_types::UnixTime;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info};

use super::{Phase, Replica, ReplicaError, State};
use crate::authority::{Authority, CLOCK_SKEW};
use crate::issued::IssuedCertificates;

/// How soon a store that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(10);

/// How often a store is read at the least, so that a rotation an operator asks for begins soon.
const REREAD: Duration = Duration::from_secs(60);

/// The wall clock. Another one can take its place in a simulation.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// The clock of the machine.
pub fn wall_clock() -> Clock {
    Arc::new(UnixTime::now)
}

/// Keeps an authority in step with its stored root.
pub struct Keeper {
    replica: Replica,
    authority: Arc<Authority>,
    interval: Duration,
    clock: Clock,
    states: watch::Sender<Option<State>>,
    /// When to look at the store again, in seconds since 1970.
    wake: u64,
    is_spread: bool,
}

impl Keeper {
    /// A keeper of an authority that looks at the store every `interval`, or never again if that is zero.
    pub fn new(replica: Replica, authority: Arc<Authority>, interval: Duration, clock: Clock) -> Self {
        let states = watch::Sender::new(None);
        Self { replica, authority, interval, clock, states, wake: 0, is_spread: false }
    }

    /// The same, beginning its looks at a random moment, so that replicas which start together do not look together.
    #[must_use]
    pub fn spread(self) -> Self {
        Self { is_spread: true, ..self }
    }

    /// How far the rotation is, now and from now on; `None` until the store was read.
    pub fn states(&self) -> watch::Receiver<Option<State>> {
        self.states.subscribe()
    }

    /// Looks at the store once. A rotation is taken further if it is time; `lacking` is how many workloads are known to lack
    /// the root that is being distributed.
    pub async fn look(&mut self, lacking: Option<usize>) -> Result<(), ReplicaError> {
        let now = (self.clock)();
        let tick = self.replica.tick(now, lacking).await?;
        if tick.changed || self.authority.bundle().is_none() {
            self.authority.replace(Some(tick.bundle));
        }
        self.wake = tick.wake;
        self.states.send_if_modified(|known| {
            let is_other = known.as_ref() != Some(&tick.state);
            *known = Some(tick.state);
            is_other
        });
        Ok(())
    }

    /// Keeps the authority up to date, for ever. A new root waits for holders of certificates that were issued before it.
    pub async fn run(mut self, issued: &IssuedCertificates) {
        if self.interval.is_zero() && self.authority.bundle().is_some() {
            info!("the root certificate is not checked for renewal");
            return std::future::pending().await;
        }
        let mut pause = if self.authority.bundle().is_some() { self.longest_pause() } else { RETRY };
        if self.is_spread {
            pause = pause.mul_f64(random_share());
        }
        loop {
            sleep(pause).await;
            let lacking = self.lacking_new_root(issued);
            pause = match self.look(lacking).await {
                Ok(()) => self.pause(),
                Err(error) => {
                    error!("the root certificate could not be checked: {error}");
                    self.stop_if_stale();
                    RETRY
                }
            };
        }
    }

    fn pause(&self) -> Duration {
        let left = self.wake.saturating_sub((self.clock)().as_secs());
        Duration::from_secs(left).clamp(RETRY, self.longest_pause())
    }

    /// Longest time between two looks at the store: other replicas rely on it.
    fn longest_pause(&self) -> Duration {
        let reread = REREAD.min(self.replica.staleness() / 2);
        self.interval.min(reread).max(RETRY)
    }

    /// Stops signing when other replicas may have gone on without this one.
    fn stop_if_stale(&self) {
        if self.replica.is_stale((self.clock)()) && self.authority.bundle().is_some() {
            error!("it has not been checked for too long: no certificates are signed until it is");
            self.authority.replace(None);
        }
    }

    /// How many workloads are known to lack the root that is being distributed. They get it with their next certificate.
    fn lacking_new_root(&self, issued: &IssuedCertificates) -> Option<usize> {
        let state = self.states.borrow();
        let Phase::Distributing { since, .. } = &state.as_ref()?.phase else { return None };
        // Certificates become valid some time before they are issued.
        let before = since.saturating_sub(CLOCK_SKEW.as_secs());
        Some(issued.older_than(before, (self.clock)().as_secs()))
    }
}

/// A number from 0 to 1; 1 if there is no randomness to be had.
fn random_share() -> f64 {
    let mut bytes = [0; 4];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_or(1.0, |()| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
