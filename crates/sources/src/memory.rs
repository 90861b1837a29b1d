//! Objects that somebody hands over: for programs that embed the mesh, and for tests.

use canopus_api::{Object, ObjectKey};

use crate::change::{Change, SourcePart};
use crate::feed::{Closed, Feed};

/// A source whose objects are what it is told.
#[derive(Clone, Debug)]
pub struct Memory {
    feed: Feed,
}

impl Memory {
    /// A source without objects, of which nothing is known before the first [`replace`](Self::replace).
    pub fn new(feed: Feed) -> Self {
        Self { feed }
    }

    /// Replaces all objects by these.
    pub async fn replace(&self, objects: impl IntoIterator<Item = Object>) -> Result<(), Closed> {
        let mut events = vec![Change::Begin(SourcePart::Whole)];
        events.extend(objects.into_iter().map(Change::Set));
        events.push(Change::End(SourcePart::Whole));
        self.feed.send(events).await
    }

    /// Adds or changes these objects.
    pub async fn set(&self, objects: impl IntoIterator<Item = Object>) -> Result<(), Closed> {
        self.feed.send(objects.into_iter().map(Change::Set).collect()).await
    }

    /// Removes these objects.
    pub async fn remove(&self, keys: impl IntoIterator<Item = ObjectKey>) -> Result<(), Closed> {
        self.feed.send(keys.into_iter().map(Change::Remove).collect()).await
    }

    /// Reports that the source can no longer be followed.
    pub async fn lose(&self, reason: impl Into<String>) -> Result<(), Closed> {
        self.feed.send(vec![Change::Lost(SourcePart::Whole, reason.into())]).await
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::kube::ConfigMap;

    use super::*;
    use crate::{Intake, SourceInfo};

    fn map(name: &str) -> Object {
        ConfigMap::new("a", name, Default::default()).into()
    }

    #[tokio::test]
    async fn world_is_what_was_handed_over() {
        let mut intake = Intake::new();
        let memory = Memory::new(intake.feed(SourceInfo::new("memory", "local", 0)));
        memory.set([map("one")]).await.unwrap();
        intake.next().await;
        assert!(!intake.world().is_whole(), "what was set may not be all there is");

        memory.replace([map("two"), map("three")]).await.unwrap();
        memory.remove([map("three").key()]).await.unwrap();
        let update = intake.next().await;
        let there = |name| intake.world().get("local", &map(name).key()).is_some();
        assert_eq!([there("one"), there("two"), there("three")], [false, true, false]);
        assert_eq!(update.changes.len(), 3, "one update takes all that was said");
        assert!(intake.world().is_whole());

        memory.lose("asleep").await.unwrap();
        assert_eq!(intake.next().await.changes.len(), 0);
        assert!(!intake.world().status()[0].is_live());
    }
}
