//! A world to evaluate queries on.
//!
//! The world of a stage does not change. What is evaluated on it is kept beside it, as jobs, and becomes part of a later
//! world.

use std::sync::Arc;

use crate::crew::Crew;
use crate::intern::{NodeId, Registry};
use crate::job::{Job, Jobs};
use crate::marks::Marks;
use crate::stats::Counters;
use crate::subject::{All, Bucket, Value};
use crate::value::typed;
use crate::world::{Sorted, World};
use crate::{Input, Subject};

/// A world, what of it is in doubt, and the evaluations made on it.
pub(crate) struct Stage {
    pub(crate) world: World,
    /// Empty once published.
    pub(crate) marks: Marks,
    /// Shared by the stages of a revision.
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) crew: Arc<Crew>,
}

impl Stage {
    pub(crate) fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        let subject = self.registry.find::<Value<I>>(key)?;
        self.input::<I>(subject.id())
    }

    pub(crate) fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        let subject = self.registry.find::<Bucket<I>>(index);
        subject.map(|subject| self.sorted::<I>(subject.id())).unwrap_or_default()
    }

    pub(crate) fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        let subject = self.registry.find::<All<I>>(&());
        subject.map(|subject| self.sorted::<I>(subject.id())).unwrap_or_default()
    }

    pub(crate) fn input<I: Input>(&self, id: NodeId) -> Option<Arc<I::Value>> {
        self.world.input(id).cloned().map(typed)
    }

    /// The keys in a bucket of family `I`, sorted.
    pub(crate) fn sorted<I: Input>(&self, bucket: NodeId) -> Arc<[I::Key]> {
        let Some(members) = self.world.members(bucket) else { return Arc::default() };
        let sorted = members.sorted.get_or_init(|| {
            let nodes = members.ids.iter().filter_map(|id| self.world.node(id));
            let mut keys: Vec<I::Key> =
                nodes.filter_map(|node| node.subject.key_as::<Value<I>>()).cloned().collect();
            keys.sort_unstable();
            Arc::new(Sorted::<I::Key>(keys.into()))
        });
        Sorted::open(sorted)
    }

    /// The subject of a node.
    pub(crate) fn subject(&self, id: NodeId) -> Option<Subject> {
        self.world.node(id).map(|node| node.subject.clone())
    }

    /// The evaluation of a query on this stage, if it has ended.
    pub(crate) fn finished(&self, id: NodeId) -> Option<Arc<Job>> {
        self.jobs.find(id).filter(|job| job.done().is_some())
    }
}
