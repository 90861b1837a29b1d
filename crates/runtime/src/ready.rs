//! Readiness: the process is ready when everything that registered says so.
//!
//! Each part of start-up holds a [`ReadyGuard`] and gives it up with [`ReadyGuard::ready`]. A guard that is dropped
//! otherwise, by an early return or a panic, leaves the process unready for good, and the name is kept to tell why.
//!
//! ```
//! use canopus_runtime::ready::Readiness;
//!
//! let readiness = Readiness::new();
//! let guard = readiness.register("discovery");
//! assert_eq!(readiness.pending(), ["discovery"]);
//! guard.ready();
//! assert!(readiness.is_ready());
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

/// What the process still waits for; clones share it.
#[derive(Clone)]
pub struct Readiness {
    start: Instant,
    pending: Arc<watch::Sender<Pending>>,
}

#[derive(Default)]
struct Pending {
    next: u64,
    parts: BTreeMap<u64, PendingPart>,
}

struct PendingPart {
    name: String,
    abandoned: bool,
}

impl Default for Readiness {
    fn default() -> Self {
        Readiness::new()
    }
}

impl Readiness {
    /// Starts with nothing to wait for; the log counts time from here.
    pub fn new() -> Self {
        Readiness { start: Instant::now(), pending: Arc::new(watch::Sender::new(Pending::default())) }
    }

    /// Makes the process unready until the guard is given up.
    pub fn register(&self, name: impl Into<String>) -> ReadyGuard {
        let mut id = 0;
        self.pending.send_modify(|pending| {
            id = pending.next;
            pending.next += 1;
            pending.parts.insert(id, PendingPart { name: name.into(), abandoned: false });
        });
        ReadyGuard { readiness: self.clone(), id, settled: false }
    }

    /// Whether nothing is pending.
    pub fn is_ready(&self) -> bool {
        self.pending.borrow().parts.is_empty()
    }

    /// What is pending, in the order it was registered; parts that ended without becoming ready say so.
    pub fn pending(&self) -> Vec<String> {
        let describe = |part: &PendingPart| {
            if part.abandoned {
                format!("{} (ended before it was ready)", part.name)
            } else {
                part.name.clone()
            }
        };
        self.pending.borrow().parts.values().map(describe).collect()
    }

    /// Waits until nothing is pending.
    pub async fn wait(&self) {
        let mut changes = self.pending.subscribe();
        changes.wait_for(|pending| pending.parts.is_empty()).await.expect("this handle keeps the sender");
    }

    /// Waits until nothing is pending but the part that `last` stands for.
    pub async fn wait_for_others(&self, last: &ReadyGuard) {
        let mut changes = self.pending.subscribe();
        let alone = |pending: &Pending| pending.parts.keys().all(|id| *id == last.id);
        changes.wait_for(alone).await.expect("this handle keeps the sender");
    }

    fn settle(&self, id: u64) {
        let mut settled = String::new();
        self.pending.send_modify(|pending| {
            settled = pending.parts.remove(&id).map(|part| part.name).unwrap_or_default();
        });
        let elapsed = self.start.elapsed();
        match self.pending().as_slice() {
            [] => tracing::info!(?elapsed, "{settled} is ready, and so is the process"),
            left => tracing::info!(?elapsed, "{settled} is ready, waiting for {}", left.join(", ")),
        }
    }

    fn abandon(&self, id: u64) {
        let mut name = String::new();
        self.pending.send_modify(|pending| {
            if let Some(part) = pending.parts.get_mut(&id) {
                part.abandoned = true;
                name.clone_from(&part.name);
            }
        });
        tracing::error!("{name} ended before it was ready: the process will not become ready");
    }
}

/// Keeps the process unready.
#[must_use = "a guard that is dropped without `ready` keeps the process unready"]
pub struct ReadyGuard {
    readiness: Readiness,
    id: u64,
    settled: bool,
}

impl ReadyGuard {
    /// Reports that the part is ready.
    pub fn ready(mut self) {
        self.settled = true;
        self.readiness.settle(self.id);
    }
}

impl Drop for ReadyGuard {
    fn drop(&mut self) {
        if !self.settled {
            self.readiness.abandon(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tokio::task::yield_now;

    use super::*;

    #[test]
    fn ready_when_nothing_registered() {
        assert!(Readiness::new().is_ready());
    }

    #[test]
    fn lists_pending_parts_in_order_of_registration() {
        let readiness = Readiness::new();
        let webhooks = readiness.register("webhooks");
        let discovery = readiness.register("discovery");
        assert_eq!(readiness.pending(), ["webhooks", "discovery"]);
        webhooks.ready();
        assert_eq!(readiness.pending(), ["discovery"]);
        discovery.ready();
        assert!(readiness.is_ready());
    }

    #[test]
    fn parts_of_the_same_name_are_counted() {
        let readiness = Readiness::new();
        let (one, two) = (readiness.register("cluster"), readiness.register("cluster"));
        one.ready();
        assert!(!readiness.is_ready());
        two.ready();
        assert!(readiness.is_ready());
    }

    #[test]
    fn stays_unready_when_a_part_panics() {
        let readiness = Readiness::new();
        let guard = readiness.register("discovery");
        let outcome = catch_unwind(AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("broken");
        }));
        assert!(outcome.is_err());
        assert_eq!(readiness.pending(), ["discovery (ended before it was ready)"]);
    }

    #[tokio::test]
    async fn waits_for_the_last_part() {
        let readiness = Readiness::new();
        let guard = readiness.register("discovery");
        let waiting = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.wait().await }
        });
        yield_now().await;
        assert!(!waiting.is_finished());
        guard.ready();
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn last_part_is_not_waited_for_when_it_waits_for_the_others() {
        let readiness = Readiness::new();
        let (ports, sources) = (readiness.register("ports"), readiness.register("sources"));
        sources.ready();
        readiness.wait_for_others(&ports).await;
        assert_eq!(readiness.pending(), ["ports"]);
        ports.ready();
        assert!(readiness.is_ready());
    }
}
