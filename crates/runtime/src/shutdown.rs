//! Ordered shutdown: parts of the process stop phase by phase, each by name, and none can hold up the process for ever.
//!
//! A part registers with a [`Phase`], waits for [`Part::stopping`], winds down and drops its [`Part`]. The composition
//! root calls [`Shutdown::run`], which returns when everything has stopped or when the grace period is over.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// How often the log names the parts that are still stopping.
const REMINDER: Duration = Duration::from_secs(1);

/// How long parts may take once they are forced to stop.
const LAST_CALL: Duration = Duration::from_secs(1);

/// When a part stops relative to others: all of one phase have stopped before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// What brings in work: watches, leases.
    Intake,
    /// Servers, which finish or hand over what they have begun.
    Serving,
    /// What servers relied on.
    Background,
    /// What must outlive everything else: telemetry, stores.
    Last,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Intake, Phase::Serving, Phase::Background, Phase::Last];
}

/// How the process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it was stopped.
    pub reason: String,
    /// Parts that had not stopped when the grace period was over.
    pub unfinished: Vec<String>,
    /// Whether something went wrong that the process cannot do without.
    pub failed: bool,
}

/// The shutdown of this process; clones share it.
#[derive(Clone)]
pub struct Shutdown {
    progress: Arc<watch::Sender<Progress>>,
    parts: Arc<watch::Sender<Parts>>,
}

#[derive(Default)]
struct Progress {
    reason: Option<String>,
    reached: Option<Phase>,
    forced: bool,
    failed: bool,
}

#[derive(Default)]
struct Parts {
    next: u64,
    running: BTreeMap<u64, (Phase, String)>,
}

impl Parts {
    fn names(&self, until: Phase) -> Vec<String> {
        let due = self.running.values().filter(|(phase, _)| *phase <= until);
        due.map(|(_, name)| name.clone()).collect()
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown::new()
    }
}

impl Shutdown {
    /// Starts with nothing to stop.
    pub fn new() -> Self {
        Shutdown {
            progress: Arc::new(watch::Sender::new(Progress::default())),
            parts: Arc::new(watch::Sender::new(Parts::default())),
        }
    }

    /// Adds a part that shutdown has to wait for.
    pub fn register(&self, phase: Phase, name: impl Into<String>) -> Part {
        let mut id = 0;
        self.parts.send_modify(|parts| {
            id = parts.next;
            parts.next += 1;
            parts.running.insert(id, (phase, name.into()));
        });
        Part { shutdown: self.clone(), phase, id }
    }

    /// Asks the process to stop; the first reason is kept.
    pub fn stop(&self, reason: impl Into<String>) {
        self.progress.send_modify(|progress| {
            progress.reason.get_or_insert_with(|| reason.into());
        });
    }

    /// Asks the process to stop because it cannot go on: it ends as a failure.
    pub fn fail(&self, reason: impl Into<String>) {
        self.stop(reason);
        self.progress.send_modify(|progress| progress.failed = true);
    }

    /// Asks the process to stop without waiting for the grace period.
    pub fn stop_now(&self, reason: impl Into<String>) {
        self.stop(reason);
        self.progress.send_modify(|progress| progress.forced = true);
    }

    /// Whether the process was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.progress.borrow().reason.is_some()
    }

    /// Waits until the process is asked to stop.
    pub async fn requested(&self) {
        self.until(|progress| progress.reason.is_some()).await;
    }

    /// Stops the process at SIGTERM or SIGINT, and forces it at the second one.
    pub fn stop_on_signals(&self) -> io::Result<()> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(forward_signals(self.clone(), terminate, interrupt));
        Ok(())
    }

    /// Waits until the process is asked to stop, then stops it, gracefully for at most `grace`.
    pub async fn run(&self, grace: Duration) -> Outcome {
        self.requested().await;
        let reason = self.progress.borrow().reason.clone().unwrap_or_default();
        tracing::info!("stopping: {reason}");

        let deadline = Instant::now() + grace;
        tokio::select! {
            () = self.stop_in_order() => {}
            () = sleep_until(deadline) => self.force("the grace period is over").await,
            () = self.until(|progress| progress.forced) => self.force("asked to stop at once").await,
        }
        let unfinished = self.parts.borrow().names(Phase::Last);
        if unfinished.is_empty() {
            tracing::info!("everything has stopped");
        } else {
            tracing::warn!("leaving without {}", unfinished.join(", "));
        }
        let failed = self.progress.borrow().failed;
        Outcome { reason, unfinished, failed }
    }

    async fn stop_in_order(&self) {
        for phase in Phase::ALL {
            self.progress.send_modify(|progress| progress.reached = Some(phase));
            while timeout(REMINDER, self.stopped(phase)).await.is_err() {
                let pending = self.parts.borrow().names(phase);
                tracing::info!("still stopping: {}", pending.join(", "));
            }
        }
    }

    async fn force(&self, why: &str) {
        let pending = self.parts.borrow().names(Phase::Last);
        tracing::warn!("forcing to stop, {why}: {}", pending.join(", "));
        self.progress.send_modify(|progress| {
            progress.reached = Some(Phase::Last);
            progress.forced = true;
        });
        // Parts that still run afterwards are named in the outcome.
        let _ = timeout(LAST_CALL, self.stopped(Phase::Last)).await;
    }

    /// Waits until no part of this phase or an earlier one runs.
    async fn stopped(&self, phase: Phase) {
        let mut changes = self.parts.subscribe();
        let stopped = changes.wait_for(|parts| parts.running.values().all(|(of, _)| *of > phase)).await;
        stopped.expect("this handle keeps the sender");
    }

    async fn until(&self, reached: impl FnMut(&Progress) -> bool) {
        let mut changes = self.progress.subscribe();
        changes.wait_for(reached).await.expect("this handle keeps the sender");
    }
}

async fn forward_signals(shutdown: Shutdown, mut terminate: Signal, mut interrupt: Signal) {
    let mut next = async || {
        tokio::select! {
            Some(()) = terminate.recv() => "received SIGTERM",
            Some(()) = interrupt.recv() => "received SIGINT",
            // The runtime that delivers signals has ended.
            else => std::future::pending().await,
        }
    };
    shutdown.stop(next().await);
    shutdown.stop_now(next().await);
}

/// A part of the process that shutdown waits for; dropping it says that it has stopped.
#[must_use = "dropping the part says that it has stopped"]
pub struct Part {
    shutdown: Shutdown,
    phase: Phase,
    id: u64,
}

impl Part {
    /// Waits until it is this part's turn to stop.
    pub async fn stopping(&self) {
        self.shutdown.until(|progress| progress.reached >= Some(self.phase)).await;
    }

    /// Waits until this part must stop at once.
    pub async fn forced(&self) {
        self.shutdown.until(|progress| progress.forced).await;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.shutdown.parts.send_modify(|parts| {
            parts.running.remove(&self.id);
        });
    }
}

#[cfg(test)]
mod tests;
