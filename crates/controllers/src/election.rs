//! Who among the replicas writes.
//!
//! A lock is an object that its holder renews; whoever sees it unchanged for its whole term may take it. Both kinds of lock
//! that istiod uses are spoken ([`lock`]), with its terms, so a canopusd and an istiod of one cluster never lead at once.
//! Deciding is pure ([`candidate`]); [`Election::run`] adds the store and the clock.
//!
//! **Invariant.** A [`Leadership`] ends [`RENEW_DEADLINE`] after the last renewal *began*, by the holder's own clock. Others
//! wait for the whole [`TERM`] after they *saw* that renewal, so there is a gap of at least half a term between two leaders,
//! whatever happens to the network.

mod candidate;
mod leaders;
mod lock;

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

pub use candidate::{Candidate, Record, Step};
pub use leaders::{Leaders, LockStatus};
pub use lock::{ClusterLock, Lock, LockKind, StoredLock};

/// How long a lock belongs to its holder after a renewal.
pub const TERM: Duration = Duration::from_secs(30);

/// How long a holder leads after it began its last renewal.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(15);

/// How often a lock is renewed or looked at.
pub const RETRY_PERIOD: Duration = Duration::from_millis(7500);

/// Whether this process leads. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// When it ends unless it is renewed; `None` if there is none.
    until: watch::Receiver<Option<Instant>>,
}

impl Leadership {
    /// A process that leads without having to win: there is nobody else, or writing twice does no harm.
    pub fn unconditional() -> Self {
        let (sender, until) = watch::channel(Some(Instant::now() + Duration::from_secs(u64::from(u32::MAX))));
        // A sender that is gone changes nothing any more.
        drop(sender);
        Self { until }
    }

    /// Whether this process leads at this moment.
    pub fn holds(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until this process leads.
    pub async fn acquired(&mut self) {
        while !self.holds() {
            if self.until.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this process leads no more.
    pub async fn lost(&mut self) {
        loop {
            let until = *self.until.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            tokio::select! {
                changed = self.until.changed() => if changed.is_err() {
                    sleep_until(until).await;
                    return;
                },
                () = sleep_until(until) => {}
            }
        }
    }
}

/// Takes part in the election for one lock.
pub struct Election<L> {
    lock: L,
    candidate: Candidate,
    until: watch::Sender<Option<Instant>>,
    /// Why the lock could not be had last time; each reason is worth one line.
    trouble: Option<String>,
    leaders: Leaders,
}

impl<L: Lock> Election<L> {
    /// A candidate for a lock, and whether it leads.
    pub fn new(lock: L, candidate: Candidate) -> (Self, Leadership) {
        let (sender, until) = watch::channel(None);
        let leaders = Leaders::default();
        (Self { lock, candidate, until: sender, trouble: None, leaders }, Leadership { until })
    }

    /// Tells these what becomes of the lock.
    #[must_use]
    pub fn telling(self, leaders: Leaders) -> Self {
        Self { leaders, ..self }
    }

    /// Takes part until `stop`, then gives the lock back. `default_revision` says which revision may take the lock from
    /// holders of others.
    pub async fn run(
        &mut self,
        default_revision: impl Fn() -> Option<String>,
        stop: impl Future<Output = ()>,
    ) {
        tokio::pin!(stop);
        let name = self.lock.name();
        loop {
            let began = Instant::now();
            let attempt = timeout(RENEW_DEADLINE / 2, self.attempt(default_revision(), began));
            let held = tokio::select! {
                attempted = attempt => attempted.unwrap_or_else(|_| Err("no answer in time".to_owned())),
                () = &mut stop => break,
            };
            self.announce(&name, held, began);
            // Renewal must not fall into step with other replicas, or they collide each time.
            let jitter = Duration::from_millis(u64::from(began.elapsed().subsec_nanos() % 500));
            tokio::select! {
                () = sleep(RETRY_PERIOD - jitter) => {}
                () = &mut stop => break,
            }
        }
        let led = self.until.borrow().is_some();
        self.until.send_replace(None);
        if led {
            self.release(&name).await;
        }
    }

    /// Tries to get or keep the lock once; whether it is held now.
    async fn attempt(&mut self, default_revision: Option<String>, began: Instant) -> Result<bool, String> {
        let stored = self.lock.load().await?;
        let record = stored.as_ref().map(|held| &held.record);
        if let Some(record) = record {
            self.leaders.note_record(&self.lock.name(), record);
        }
        let step = self.candidate.step(record, default_revision.as_deref(), began, Timestamp::now());
        let taken = match (&step, stored) {
            (Step::Wait, _) => return Ok(false),
            (Step::Take(record), None) => self.lock.create(record).await?,
            (Step::Take(record), Some(held)) => self.lock.replace(&held, record).await?,
        };
        if let (true, Step::Take(record)) = (taken, step) {
            self.leaders.note_record(&self.lock.name(), &record);
            self.candidate.took(record, began);
        }
        Ok(taken)
    }

    fn announce(&mut self, name: &str, held: Result<bool, String>, began: Instant) {
        let led = self.until.borrow().is_some_and(|until| Instant::now() < until);
        let leads_now = *held.as_ref().unwrap_or(&led);
        let trouble = match held {
            Ok(true) => {
                if !led {
                    info!(lock = name, "this process leads");
                }
                self.until.send_replace(Some(began + RENEW_DEADLINE));
                None
            }
            Ok(false) => {
                if led {
                    info!(lock = name, "another process leads");
                }
                self.until.send_replace(None);
                None
            }
            // The leadership runs out by itself.
            Err(reason) => Some(reason),
        };
        if let Some(reason) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            warn!(
                lock = name,
                reason, led, "the lock cannot be read or renewed; grant get, create and update on it"
            );
        }
        self.leaders.note_attempt(name, leads_now, trouble.clone());
        self.trouble = trouble;
    }

    /// Gives the lock back, so that the next holder need not wait for the end of the term.
    async fn release(&mut self, name: &str) {
        let given_back = async {
            let Some(held) = self.lock.load().await? else { return Ok(()) };
            match self.candidate.released(&held.record, Timestamp::now()) {
                Some(record) => self.lock.replace(&held, &record).await.map(drop),
                None => Ok(()),
            }
        };
        match timeout(RENEW_DEADLINE / 3, given_back).await {
            Ok(Ok(())) => info!(lock = name, "the lock was given back"),
            Ok(Err(reason)) => debug!(lock = name, reason, "the lock could not be given back"),
            Err(_) => debug!(lock = name, "the lock could not be given back in time"),
        }
    }
}

#[cfg(test)]
mod tests;
