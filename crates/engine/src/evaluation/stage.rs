//! A graph that queries can be evaluated on.
//!
//! The graph of a stage never changes. What is evaluated on it is kept beside it as jobs, and a writer makes them part of a
//! later graph. A published stage has no marks. While a batch is applied, the writer evaluates on a stage of its own whose
//! marks say which memos to verify first.

use std::sync::Arc;

use super::job::{Job, Jobs};
use super::workers::WorkerPool;
use crate::Input;
use crate::graph::{Graph, SortedKeys};
use crate::ids::NodeId;
use crate::marks::Marks;
use crate::node::{AllKeysNode, BucketNode, InputNode, Interner, Subject, downcast};
use crate::stats::Counters;

/// A graph, its dirty marks, and the evaluations made on it.
pub(crate) struct Stage {
    pub(crate) graph: Graph,
    /// Empty once published.
    pub(crate) marks: Marks,
    /// Shared by the stages of one revision.
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) interner: Arc<Interner>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) workers: Arc<WorkerPool>,
}

impl Stage {
    pub(crate) fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        let subject = self.interner.find::<InputNode<I>>(key)?;
        self.input::<I>(subject.id())
    }

    pub(crate) fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        let subject = self.interner.find::<BucketNode<I>>(index);
        subject.map(|subject| self.sorted_keys::<I>(subject.id())).unwrap_or_default()
    }

    pub(crate) fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        let subject = self.interner.find::<AllKeysNode<I>>(&());
        subject.map(|subject| self.sorted_keys::<I>(subject.id())).unwrap_or_default()
    }

    pub(crate) fn input<I: Input>(&self, id: NodeId) -> Option<Arc<I::Value>> {
        self.graph.input(id).cloned().map(downcast)
    }

    /// The keys in a bucket of family `I`, sorted.
    pub(crate) fn sorted_keys<I: Input>(&self, bucket: NodeId) -> Arc<[I::Key]> {
        let Some(bucket) = self.graph.bucket(bucket) else { return Arc::default() };
        let sorted = bucket.sorted.get_or_init(|| {
            let nodes = bucket.ids.iter().filter_map(|id| self.graph.node(id));
            let mut keys: Vec<I::Key> =
                nodes.filter_map(|node| node.subject.key_in::<InputNode<I>>()).cloned().collect();
            keys.sort_unstable();
            Arc::new(SortedKeys::<I::Key>(keys.into()))
        });
        SortedKeys::downcast(sorted)
    }

    pub(crate) fn subject(&self, id: NodeId) -> Option<Subject> {
        self.graph.node(id).map(|node| node.subject.clone())
    }

    /// The evaluation of a query on this stage, if it has finished.
    pub(crate) fn finished_job(&self, id: NodeId) -> Option<Arc<Job>> {
        self.jobs.find(id).filter(|job| job.result().is_some())
    }
}
