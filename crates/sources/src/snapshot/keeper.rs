//! Keeping snapshots up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::Store;
use crate::change::SourceInfo;
use crate::world::World;

/// The world is written this often at most.
const INTERVAL: Duration = Duration::from_secs(15);

/// What was never written comes sooner: a process that dies young should leave something, and a cluster that was just added
/// should outlive a restart.
const FIRST: Duration = Duration::from_secs(2);

/// Writing may take this share of the time.
const SHARE: u32 = 20;

/// Writes the world of some sources when it has changed.
#[derive(Debug)]
pub struct Keeper {
    store: Arc<Store>,
    /// Which sources are kept.
    keeps: fn(&SourceInfo) -> bool,
    /// The sources of which writing was tried, and the revision that was last written of each.
    saved: BTreeMap<Box<str>, (Arc<SourceInfo>, Option<u64>)>,
    /// When to look for sources that were never written.
    next: Instant,
    /// When changes of the others are written, too.
    next_of_all: Instant,
    writing: Option<JoinHandle<Written>>,
}

/// How the last writing went.
#[derive(Debug)]
struct Written {
    took: Duration,
    revisions: Vec<(Arc<SourceInfo>, u64)>,
}

impl Keeper {
    /// Keeps the snapshots of the sources that `keeps` picks, those that come later included.
    pub fn new(store: Store, keeps: fn(&SourceInfo) -> bool) -> Self {
        Self {
            store: Arc::new(store),
            keeps,
            saved: BTreeMap::new(),
            next: Instant::now() + FIRST,
            next_of_all: Instant::now() + FIRST,
            writing: None,
        }
    }

    /// Waits until it is time to save.
    pub async fn due(&self) {
        sleep_until(self.next).await;
    }

    /// Saves, in the background, what has changed. What has not been read as a whole yet is not saved.
    pub async fn save(&mut self, world: &World) {
        self.next = Instant::now() + FIRST;
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        self.settle().await;
        self.remove_forgotten(world);
        let takes_all = Instant::now() >= self.next_of_all;
        if takes_all {
            self.next_of_all = Instant::now() + INTERVAL;
        }
        let changed = world.holdings().filter(|holdings| {
            let source = holdings.source();
            let is_due = match self.saved.get(&source.name) {
                Some((_, revision)) => takes_all && *revision != Some(holdings.revision()),
                None => true,
            };
            is_due && holdings.is_known() && (self.keeps)(source)
        });
        let changed: Vec<_> = changed
            .map(|holdings| {
                let source = Arc::clone(holdings.source());
                (source, holdings.revision(), holdings.objects(), holdings.kinds())
            })
            .collect();
        if changed.is_empty() {
            return;
        }
        for (source, ..) in &changed {
            self.saved.entry(source.name.clone()).or_insert_with(|| (Arc::clone(source), None));
        }
        let store = Arc::clone(&self.store);
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let start = Instant::now();
            let mut revisions = Vec::new();
            for (source, revision, objects, kinds) in changed {
                match store.save(&source, &objects, kinds.as_ref()) {
                    Ok(()) => revisions.push((source, revision)),
                    Err(error) => tracing::warn!(%error, "the snapshot could not be written"),
                }
            }
            Written { took: start.elapsed(), revisions }
        }));
    }

    /// Removes the snapshots of sources that are no more: a cluster that was removed must not come back with a restart.
    fn remove_forgotten(&mut self, world: &World) {
        let known: BTreeSet<Box<str>> = world.holdings().map(|one| one.source().name.clone()).collect();
        let store = &self.store;
        self.saved.retain(|name, (source, _)| {
            let is_known = known.contains(name);
            if !is_known {
                store.remove(source);
            }
            is_known
        });
    }

    /// Saves what has changed and waits until it is on the disk.
    pub async fn finish(mut self, world: &World) {
        self.settle().await;
        self.next_of_all = Instant::now();
        self.save(world).await;
        self.settle().await;
    }

    pub(super) async fn settle(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        match writing.await {
            Ok(Written { took, revisions }) => {
                let saved = revisions
                    .into_iter()
                    .map(|(source, revision)| (source.name.clone(), (source, Some(revision))));
                self.saved.extend(saved);
                self.next_of_all = self.next_of_all.max(Instant::now() + took * SHARE);
            }
            Err(error) => tracing::error!(%error, "writing the snapshot ended unexpectedly"),
        }
    }
}
