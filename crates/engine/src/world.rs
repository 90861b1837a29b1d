//! The graph of facts at one revision: inputs, buckets and memos, with what each memo read and who reads each.
//!
//! A world is cheap to copy and its copies are independent. In a world that has been published every memo is valid.

use std::sync::{Arc, OnceLock};

use crate::idmap::IdMap;
use crate::idset::IdSet;
use crate::intern::NodeId;
use crate::value::{Erased, Outcome};
use crate::{Key, Revision, RootId, Subject};

/// All facts at one revision.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) revision: Revision,
    pub(crate) nodes: IdMap<Arc<Node>>,
    /// The memos that read each node, but for eager ones. Apart from the nodes, which need not be copied when they are read by more or less.
    pub(crate) readers: IdMap<IdSet>,
    /// Those of the memos that are eager, apart: a change looks for them first, and must not go through all others.
    pub(crate) eager_readers: IdMap<IdSet>,
    pub(crate) watches: IdMap<Watch>,
    pub(crate) totals: Totals,
}

/// How much of everything there is.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) inputs: usize,
    pub(crate) memos: usize,
    pub(crate) roots: usize,
    pub(crate) edges: usize,
    /// Nodes of any kind, with their keys and values.
    pub(crate) bytes: usize,
}

/// One fact.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) subject: Subject,
    pub(crate) body: Body,
}

#[derive(Clone)]
pub(crate) enum Body {
    /// An input; without a value it is there because a memo read its absence.
    Input(Option<Erased>),
    /// A bucket, or all keys of a family; apart, as there are few and they are large.
    Members(Box<Members>),
    /// A query that has been evaluated.
    Memo(Memo),
}

/// The inputs in a bucket.
#[derive(Clone, Default)]
pub(crate) struct Members {
    pub(crate) ids: IdSet,
    /// The sorted keys as a `Sorted<K>`, made when first asked for.
    pub(crate) sorted: OnceLock<Erased>,
}

/// Keys in order; a sized home for a slice, so that it can be kept without its type.
pub(crate) struct Sorted<K>(pub(crate) Arc<[K]>);

impl<K: Key> Sorted<K> {
    pub(crate) fn open(sorted: &Erased) -> Arc<[K]> {
        let sorted: &Self = sorted.downcast_ref().expect("a family has one key type");
        Arc::clone(&sorted.0)
    }
}

/// The result of a query and what it rests on.
#[derive(Clone)]
pub(crate) struct Memo {
    pub(crate) outcome: Outcome,
    /// Distinct subjects in the order they were first read.
    pub(crate) reads: Arc<[NodeId]>,
}

/// Guards of a watched query.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) root: RootId,
    pub(crate) guards: u32,
}

impl World {
    /// The same facts, none of them watched.
    pub(crate) fn unwatched(mut self) -> Self {
        self.watches = IdMap::default();
        self.totals.roots = 0;
        self
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(id)
    }

    pub(crate) fn input(&self, id: NodeId) -> Option<&Erased> {
        match &self.node(id)?.body {
            Body::Input(value) => value.as_ref(),
            Body::Members(_) | Body::Memo(_) => None,
        }
    }

    pub(crate) fn members(&self, id: NodeId) -> Option<&Members> {
        match &self.node(id)?.body {
            Body::Members(members) => Some(members),
            Body::Input(_) | Body::Memo(_) => None,
        }
    }

    pub(crate) fn memo(&self, id: NodeId) -> Option<&Memo> {
        self.node(id)?.memo()
    }

    /// The memos that read a node.
    pub(crate) fn readers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.eager_readers(id).chain(self.lazy_readers(id))
    }

    /// The eager memos that read a node.
    pub(crate) fn eager_readers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.eager_readers.get(id).into_iter().flat_map(IdSet::iter)
    }

    /// The memos that read a node and are not eager.
    pub(crate) fn lazy_readers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.readers.get(id).into_iter().flat_map(IdSet::iter)
    }

    pub(crate) fn is_read(&self, id: NodeId) -> bool {
        self.is_read_lazily(id) || self.eager_readers.get(id).is_some()
    }

    /// Whether a memo that is not eager reads a node.
    pub(crate) fn is_read_lazily(&self, id: NodeId) -> bool {
        self.readers.get(id).is_some()
    }

    /// The root of a watched query.
    pub(crate) fn root(&self, id: NodeId) -> Option<RootId> {
        self.watches.get(id).map(|watch| watch.root)
    }

    /// Whether nothing reads a node, nothing watches it and it is not a fact set from outside.
    pub(crate) fn is_unheld(&self, node: &Node) -> bool {
        let id = node.subject.id();
        !self.is_read(id)
            && match &node.body {
                Body::Input(value) => value.is_none(),
                Body::Members(members) => members.ids.is_empty(),
                Body::Memo(_) => self.watches.get(id).is_none(),
            }
    }
}

impl Node {
    pub(crate) fn memo(&self) -> Option<&Memo> {
        match &self.body {
            Body::Memo(memo) => Some(memo),
            Body::Input(_) | Body::Members(_) => None,
        }
    }

    /// Memory it takes, without edges and without what keys and values own.
    pub(crate) fn footprint(&self) -> usize {
        // Counters of the node's `Arc`, and its places in the maps at their usual load.
        let node = size_of::<Self>() + 16 + 12 + size_of::<IdSet>();
        let value = self.subject.as_query().map_or(0, |query| query.value_size() + 16);
        node + value + self.subject.0.footprint()
    }
}
