//! The dependency graph at one revision: inputs, buckets and memos, what each memo read, and who reads each node.
//!
//! A graph is persistent: copies are cheap, share what they have in common, and never affect each other. Readers keep the
//! graph they started with while a writer edits a copy ([`Draft`](crate::draft::Draft)).
//!
//! Invariants of a published graph: every memo is up to date; every edge is recorded at both of its ends; a node exists only
//! if it is set from outside, read by a memo, watched, or among the idle memos.

use std::sync::{Arc, OnceLock};

use crate::idmap::IdMap;
use crate::ids::NodeId;
use crate::idset::IdSet;
use crate::node::{Erased, Outcome};
use crate::{Key, Revision, RootId, Subject};

/// All nodes and edges at one revision.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) revision: Revision,
    pub(crate) nodes: IdMap<Arc<Node>>,
    /// The lazy memos that read each node. Kept apart from the nodes, so that a new reader does not copy the node it reads.
    pub(crate) lazy_readers: IdMap<IdSet>,
    /// The eager memos that read each node. Kept apart from the lazy ones, because marks spread through the eager layer
    /// first and must not pass over thousands of lazy readers to find one eager reader.
    pub(crate) eager_readers: IdMap<IdSet>,
    pub(crate) watches: IdMap<Watch>,
    pub(crate) totals: Totals,
}

/// The size of a graph.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Inputs that have a value.
    pub(crate) inputs: usize,
    pub(crate) memos: usize,
    pub(crate) roots: usize,
    pub(crate) edges: usize,
    /// Estimated memory of all nodes, with their keys and values but without edges.
    pub(crate) bytes: usize,
}

/// An input, a bucket or a memo.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) subject: Subject,
    pub(crate) content: Content,
}

#[derive(Clone)]
pub(crate) enum Content {
    /// An input. It has no value if the node exists only because a memo read the input's absence.
    Input(Option<Erased>),
    /// A bucket, or all keys of an input family. Boxed because buckets are few and large.
    Bucket(Box<Bucket>),
    /// The memoised result of a query.
    Memo(Memo),
}

/// The inputs that belong to a bucket.
#[derive(Clone, Default)]
pub(crate) struct Bucket {
    pub(crate) ids: IdSet,
    /// The keys in order, as a [`SortedKeys`], built when a query first asks for them.
    pub(crate) sorted: OnceLock<Erased>,
}

/// A slice of sorted keys in a sized wrapper, so that it can be stored as [`Erased`].
pub(crate) struct SortedKeys<K>(pub(crate) Arc<[K]>);

impl<K: Key> SortedKeys<K> {
    pub(crate) fn downcast(sorted: &Erased) -> Arc<[K]> {
        let sorted: &Self = sorted.downcast_ref().expect("a family has one key type");
        Arc::clone(&sorted.0)
    }
}

/// The result of a query and the reads it depends on.
#[derive(Clone)]
pub(crate) struct Memo {
    pub(crate) outcome: Outcome,
    /// Distinct nodes in the order they were first read.
    pub(crate) reads: Arc<[NodeId]>,
}

/// The guards that watch one query.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) root: RootId,
    pub(crate) guards: u32,
}

impl Graph {
    /// The same graph without its watches.
    pub(crate) fn without_watches(mut self) -> Self {
        self.watches = IdMap::default();
        self.totals.roots = 0;
        self
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(id)
    }

    pub(crate) fn input(&self, id: NodeId) -> Option<&Erased> {
        match &self.node(id)?.content {
            Content::Input(value) => value.as_ref(),
            Content::Bucket(_) | Content::Memo(_) => None,
        }
    }

    pub(crate) fn bucket(&self, id: NodeId) -> Option<&Bucket> {
        match &self.node(id)?.content {
            Content::Bucket(bucket) => Some(bucket),
            Content::Input(_) | Content::Memo(_) => None,
        }
    }

    pub(crate) fn memo(&self, id: NodeId) -> Option<&Memo> {
        self.node(id)?.memo()
    }

    /// The memos of both layers that read a node.
    pub(crate) fn readers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.eager_readers(id).chain(self.lazy_readers(id))
    }

    pub(crate) fn eager_readers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.eager_readers.get(id).into_iter().flat_map(IdSet::iter)
    }

    pub(crate) fn lazy_readers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.lazy_readers.get(id).into_iter().flat_map(IdSet::iter)
    }

    pub(crate) fn has_readers(&self, id: NodeId) -> bool {
        self.has_lazy_readers(id) || self.eager_readers.get(id).is_some()
    }

    pub(crate) fn has_lazy_readers(&self, id: NodeId) -> bool {
        self.lazy_readers.get(id).is_some()
    }

    /// The root of a query, if it is watched.
    pub(crate) fn root(&self, id: NodeId) -> Option<RootId> {
        self.watches.get(id).map(|watch| watch.root)
    }

    /// Whether nothing holds a node: no memo reads it, nobody watches it, and it was not set from outside.
    pub(crate) fn is_unheld(&self, node: &Node) -> bool {
        let id = node.subject.id();
        !self.has_readers(id)
            && match &node.content {
                Content::Input(value) => value.is_none(),
                Content::Bucket(bucket) => bucket.ids.is_empty(),
                Content::Memo(_) => self.watches.get(id).is_none(),
            }
    }
}

impl Node {
    pub(crate) fn memo(&self) -> Option<&Memo> {
        match &self.content {
            Content::Memo(memo) => Some(memo),
            Content::Input(_) | Content::Bucket(_) => None,
        }
    }

    /// Estimated memory, without edges and without what keys and values own on the heap.
    pub(crate) fn footprint(&self) -> usize {
        // 16 bytes are the counters of the `Arc`, 12 the share of the maps' inner nodes at their usual load.
        let node = size_of::<Self>() + 16 + 12 + size_of::<IdSet>();
        let value = self.subject.value_size().map_or(0, |size| size + 16);
        node + value + self.subject.0.footprint()
    }
}
