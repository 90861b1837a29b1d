//! Keeping snapshots up to date.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::Store;
use crate::change::SourceInfo;
use crate::world::World;

/// The world is written this often at most.
const INTERVAL: Duration = Duration::from_secs(15);

/// The first time comes sooner: a process that dies young should leave something.
const FIRST: Duration = Duration::from_secs(2);

/// Writing may take this share of the time.
const SHARE: u32 = 20;

/// Writes the world of some sources when it has changed.
#[derive(Debug)]
pub struct Keeper {
    store: Arc<Store>,
    /// The sources, and the last revision that was written of each.
    saved: BTreeMap<Box<str>, Option<u64>>,
    next: Instant,
    writing: Option<JoinHandle<Written>>,
}

/// How the last writing went.
#[derive(Debug)]
struct Written {
    took: Duration,
    revisions: Vec<(Box<str>, u64)>,
}

impl Keeper {
    /// Keeps the snapshots of these sources.
    pub fn new<'a>(store: Store, sources: impl IntoIterator<Item = &'a SourceInfo>) -> Self {
        let saved = sources.into_iter().map(|source| (source.name.clone(), None)).collect();
        Self { store: Arc::new(store), saved, next: Instant::now() + FIRST, writing: None }
    }

    /// Waits until it is time to save.
    pub async fn due(&self) {
        sleep_until(self.next).await;
    }

    /// Saves, in the background, what has changed. What has not been read as a whole yet is not saved.
    pub async fn save(&mut self, world: &World) {
        self.next = Instant::now() + INTERVAL;
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        self.settle().await;
        let changed = world.holdings().filter(|holdings| {
            let saved = self.saved.get(&holdings.source().name);
            holdings.is_known() && saved.is_some_and(|saved| *saved != Some(holdings.revision()))
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
        let store = Arc::clone(&self.store);
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let start = Instant::now();
            let mut revisions = Vec::new();
            for (source, revision, objects, kinds) in changed {
                match store.save(&source, &objects, kinds.as_ref()) {
                    Ok(()) => revisions.push((source.name.clone(), revision)),
                    Err(error) => tracing::warn!(%error, "the snapshot could not be written"),
                }
            }
            Written { took: start.elapsed(), revisions }
        }));
    }

    /// Saves what has changed and waits until it is on the disk.
    pub async fn finish(mut self, world: &World) {
        self.settle().await;
        self.save(world).await;
        self.settle().await;
    }

    pub(super) async fn settle(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        match writing.await {
            Ok(Written { took, revisions }) => {
                self.saved.extend(revisions.into_iter().map(|(source, revision)| (source, Some(revision))));
                self.next = Instant::now() + INTERVAL.max(took * SHARE);
            }
            Err(error) => tracing::error!(%error, "writing the snapshot ended unexpectedly"),
        }
    }
}
