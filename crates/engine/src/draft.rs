//! Edits to a graph before it is published.
//!
//! A draft starts as a copy of a published graph and is seen by one writer only. Its methods keep both ends of every edge
//! and the totals in step. Editing may leave nodes that nothing holds any more; the draft lists the candidates, and
//! [`Draft::sweep`] removes those that are still unheld, together with whatever only they held. That is reference counting
//! without the counts: nothing is traced that an edit did not touch.

use std::sync::Arc;

use crate::graph::{Bucket, Content, Graph, Memo, Node, Watch};
use crate::idmap::IdMap;
use crate::ids::NodeId;
use crate::idset::IdSet;
use crate::node::{Erased, Outcome};
use crate::{RootId, Subject, SubjectKind};

/// Memory of an edge: one id among the reads of a memo, and one among the readers of the node it read.
pub(crate) const EDGE_BYTES: usize = 2 * size_of::<NodeId>();

/// A graph that is being edited.
pub(crate) struct Draft {
    pub(crate) graph: Graph,
    /// Nodes that may be unheld. May name nodes that are held again, or gone.
    sweep_candidates: Vec<NodeId>,
}

impl Draft {
    pub(crate) fn new(graph: Graph) -> Self {
        Self { graph, sweep_candidates: Vec::new() }
    }

    /// Sets or removes the value of an input.
    pub(crate) fn set_input(&mut self, subject: &Subject, value: Option<Erased>) {
        let node = self.node_or_insert(subject);
        let Content::Input(current) = &mut node.content else { return };
        let (before, after) = (usize::from(current.is_some()), usize::from(value.is_some()));
        *current = value;
        let totals = &mut self.graph.totals;
        totals.inputs = totals.inputs + after - before;
        self.add_sweep_candidate(subject.id());
    }

    /// A bucket, to be edited.
    pub(crate) fn bucket_mut(&mut self, subject: &Subject) -> Option<&mut Bucket> {
        self.add_sweep_candidate(subject.id());
        match &mut self.node_or_insert(subject).content {
            Content::Bucket(bucket) => Some(bucket),
            Content::Input(_) | Content::Memo(_) => None,
        }
    }

    /// Records the result of a query. Every query among its reads must have been recorded before.
    pub(crate) fn install(&mut self, subject: &Subject, outcome: Outcome, reads: &[Subject]) {
        let id = subject.id();
        let old = self.graph.memo(id).map(|memo| Arc::clone(&memo.reads));
        let same_reads = old.filter(|old| old.iter().copied().eq(reads.iter().map(Subject::id)));
        let reads = same_reads.unwrap_or_else(|| self.replace_reads(subject, reads));
        match self.node_mut(id) {
            Some(Node { content: Content::Memo(memo), .. }) => {
                memo.outcome = outcome;
                memo.reads = reads;
            }
            _ => {
                self.insert(subject, Content::Memo(Memo { outcome, reads }));
                self.graph.totals.memos += 1;
            }
        }
    }

    /// Adds a guard to a query. `new_root` names the query if it was not watched yet.
    pub(crate) fn watch(&mut self, id: NodeId, new_root: impl FnOnce() -> RootId) -> RootId {
        let totals = &mut self.graph.totals;
        let watch = self.graph.watches.get_or_insert_with(id, || {
            totals.roots += 1;
            Watch { root: new_root(), guards: 0 }
        });
        watch.guards += 1;
        watch.root
    }

    /// Removes a guard from a query. Returns whether nothing holds its memo any more.
    pub(crate) fn unwatch(&mut self, id: NodeId) -> bool {
        let Some(watch) = self.graph.watches.get_mut(id) else { return false };
        watch.guards -= 1;
        if watch.guards > 0 {
            return false;
        }
        self.graph.watches.remove(id);
        self.graph.totals.roots -= 1;
        !self.graph.has_readers(id)
    }

    /// Marks a node to be checked by the next [`Draft::sweep`].
    pub(crate) fn add_sweep_candidate(&mut self, id: NodeId) {
        self.sweep_candidates.push(id);
    }

    /// Removes every candidate that is unheld, and what only it held.
    pub(crate) fn sweep(&mut self) {
        while let Some(id) = self.sweep_candidates.pop() {
            if self.graph.node(id).is_some_and(|node| self.graph.is_unheld(node)) {
                self.remove(id);
            }
        }
    }

    /// Removes a node and its edges. The caller removes its readers too.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let Some(node) = self.graph.node(id).cloned() else { return };
        let totals = &mut self.graph.totals;
        totals.bytes -= node.footprint();
        for readers in [&mut self.graph.lazy_readers, &mut self.graph.eager_readers] {
            totals.edges -= readers.get(id).map_or(0, IdSet::len);
            readers.remove(id);
        }
        self.graph.nodes.remove(id);
        if let Some(memo) = node.memo() {
            totals.memos -= 1;
            for &read in memo.reads.iter() {
                self.remove_edge(read, &node.subject);
            }
        }
    }

    /// Replaces the edges of a memo by edges to `reads`.
    fn replace_reads(&mut self, reader: &Subject, reads: &[Subject]) -> Arc<[NodeId]> {
        let new: Arc<[NodeId]> = reads.iter().map(Subject::id).collect();
        let Some(old) = self.graph.memo(reader.id()).map(|memo| Arc::clone(&memo.reads)) else {
            reads.iter().for_each(|read| self.add_edge(read, reader));
            return new;
        };
        let (sorted_old, sorted_new) = (sorted(&old), sorted(&new));
        for read in reads {
            if sorted_old.binary_search(&read.id()).is_err() {
                self.add_edge(read, reader);
            }
        }
        for &read in old.iter() {
            if sorted_new.binary_search(&read).is_err() {
                self.remove_edge(read, reader);
            }
        }
        new
    }

    fn add_edge(&mut self, read: &Subject, reader: &Subject) {
        self.insert_if_missing(read);
        let readers = self.readers_in_layer_of(reader).get_or_insert_with(read.id(), IdSet::default);
        let is_new = readers.insert(reader.id());
        self.graph.totals.edges += usize::from(is_new);
    }

    fn remove_edge(&mut self, read: NodeId, reader: &Subject) {
        let layer = self.readers_in_layer_of(reader);
        let Some(readers) = layer.get_mut(read) else { return };
        let was_present = readers.remove(reader.id());
        if readers.is_empty() {
            layer.remove(read);
            self.add_sweep_candidate(read);
        }
        self.graph.totals.edges -= usize::from(was_present);
    }

    /// The map of readers that `reader` belongs into: that of eager or of lazy memos.
    fn readers_in_layer_of(&mut self, reader: &Subject) -> &mut IdMap<IdSet> {
        if reader.is_eager() { &mut self.graph.eager_readers } else { &mut self.graph.lazy_readers }
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.graph.nodes.get_mut(id).map(Arc::make_mut)
    }

    fn node_or_insert(&mut self, subject: &Subject) -> &mut Node {
        self.insert_if_missing(subject);
        self.node_mut(subject.id()).expect("inserted if it was missing")
    }

    /// Inserts an absent input or an empty bucket, unless the node exists.
    fn insert_if_missing(&mut self, subject: &Subject) {
        if self.graph.node(subject.id()).is_some() {
            return;
        }
        let content = match subject.kind() {
            SubjectKind::Input => Content::Input(None),
            SubjectKind::Members | SubjectKind::Keys => Content::Bucket(Box::default()),
            SubjectKind::Query => unreachable!("a query is recorded before the memos that read it"),
        };
        self.insert(subject, content);
    }

    fn insert(&mut self, subject: &Subject, content: Content) {
        let node = Node { subject: subject.clone(), content };
        self.graph.totals.bytes += node.footprint();
        self.graph.nodes.insert(subject.id(), Arc::new(node));
    }
}

fn sorted(ids: &[NodeId]) -> Vec<NodeId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}
