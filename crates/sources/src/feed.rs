//! The bounded queue from all sources to the apply loop.
//!
//! A [`Source`] writes to its [`Feed`]; the [`Intake`] at the other end merges batches into the [`World`] and yields
//! [`Update`]s. A full queue makes sources wait, so a fast source cannot fill the memory while a batch is applied.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::change::{Batch, Change, Saved, SourceInfo};
use crate::status::SourceStatus;
use crate::world::{Update, World};

/// Batches that wait to be applied. A source that is faster waits too.
const PENDING: usize = 64;

/// Follows something outside the process and reports the objects in it.
pub trait Source: Send + 'static {
    /// Follows the outside and reports changes to the feed, until the feed is closed.
    ///
    /// What cannot be reached or read is reported and tried again; it is never reported as empty.
    fn run(self, feed: Feed) -> impl Future<Output = ()> + Send;
}

/// The end of the queue that one source writes to.
#[derive(Clone, Debug)]
pub struct Feed {
    source: Arc<SourceInfo>,
    queue: mpsc::Sender<Message>,
}

/// The receiver of the feed is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody takes objects any more")]
pub struct Closed;

#[derive(Debug)]
enum Message {
    Batch(Batch),
    Forget(Box<str>),
}

impl Feed {
    /// The source that this feed belongs to.
    pub fn source(&self) -> &Arc<SourceInfo> {
        &self.source
    }

    /// Sends changes; waits while the channel is full.
    pub async fn send(&self, events: Vec<Change>) -> Result<(), Closed> {
        let batch = Batch { source: Arc::clone(&self.source), events };
        self.queue.send(Message::Batch(batch)).await.map_err(|_| Closed)
    }

    /// Reports that the source is gone, with all its objects.
    pub async fn forget(self) -> Result<(), Closed> {
        self.queue.send(Message::Forget(self.source.name.clone())).await.map_err(|_| Closed)
    }

    /// Waits until the feed is closed.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

/// Makes feeds for sources that appear while others run, such as remote clusters.
#[derive(Clone, Debug)]
pub struct Feeds {
    queue: mpsc::Sender<Message>,
}

impl Feeds {
    /// A feed for a new source.
    pub fn feed(&self, source: SourceInfo) -> Feed {
        Feed { source: Arc::new(source), queue: self.queue.clone() }
    }
}

/// Takes what all sources say and keeps the world.
#[derive(Debug)]
pub struct Intake {
    world: World,
    feeds: Feeds,
    queue: mpsc::Receiver<Message>,
    status: watch::Sender<Arc<[SourceStatus]>>,
}

impl Default for Intake {
    fn default() -> Self {
        Self::new()
    }
}

impl Intake {
    /// An empty world without sources.
    pub fn new() -> Self {
        let (sender, queue) = mpsc::channel(PENDING);
        let status = watch::Sender::new(Arc::default());
        Self { world: World::default(), feeds: Feeds { queue: sender }, queue, status }
    }

    /// A feed for a source that the world is not whole without.
    pub fn feed(&mut self, source: SourceInfo) -> Feed {
        let feed = self.feeds.feed(source);
        self.world.add(Arc::clone(&feed.source));
        self.publish();
        feed
    }

    /// Makes feeds later.
    pub fn feeds(&self) -> Feeds {
        self.feeds.clone()
    }

    /// Gives a source what it had in an earlier life.
    pub fn restore(&mut self, source: &Arc<SourceInfo>, saved: Saved) -> Update {
        let mut update = Update::default();
        self.world.restore(source, saved, &mut update);
        self.publish();
        update
    }

    /// Waits until a source says something and takes all that has been said by then.
    pub async fn next(&mut self) -> Update {
        let mut update = Update::default();
        let mut next = self.queue.recv().await;
        let mut taken = 0;
        while let Some(message) = next {
            match message {
                Message::Batch(batch) => self.world.take(batch, &mut update),
                Message::Forget(name) => self.world.forget(&name, &mut update),
            }
            taken += 1;
            // Not more than the queue holds: sources that never pause must not keep anyone from applying.
            next = if taken < PENDING { self.queue.try_recv().ok() } else { None };
        }
        if update.status {
            self.publish();
        }
        update
    }

    /// The world as it is.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// How each source is doing, now and from now on.
    pub fn status(&self) -> watch::Receiver<Arc<[SourceStatus]>> {
        self.status.subscribe()
    }

    fn publish(&self) {
        self.status.send_replace(self.world.status().into());
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::kube::ConfigMap;
    use tokio::task::yield_now;

    use super::*;
    use crate::change::SourcePart;

    fn events() -> Vec<Change> {
        vec![
            Change::Set(ConfigMap::new("a", "one", Default::default()).into()),
            Change::Live(SourcePart::Whole),
        ]
    }

    #[tokio::test]
    async fn source_that_is_too_fast_waits() {
        let mut intake = Intake::new();
        let feed = intake.feed(SourceInfo::new("a", "local", 0));
        for _ in 0..PENDING {
            feed.send(events()).await.unwrap();
        }
        let waiting = tokio::spawn(async move { feed.send(events()).await });
        yield_now().await;
        assert!(!waiting.is_finished());
        intake.next().await;
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn sources_may_come_later_and_go_again() {
        let mut intake = Intake::new();
        let mut status = intake.status();
        let feed = intake.feeds().feed(SourceInfo::new("late", "west", 0));
        feed.send(events()).await.unwrap();
        assert_eq!(intake.next().await.changes.len(), 1);
        status.changed().await.unwrap();
        assert!(status.borrow_and_update()[0].is_live());

        feed.clone().forget().await.unwrap();
        let update = intake.next().await;
        assert_eq!(update.changes.into_values().collect::<Vec<_>>(), [None]);
        assert_eq!(status.borrow_and_update().len(), 0);
        drop(intake);
        assert_eq!(feed.send(events()).await, Err(Closed));
    }
}
