//! Dirty marks: which memos may be stale after a change.
//!
//! Marks spread upwards, from a changed node to the memos that read it, to the memos that read those, and so on. A marked
//! memo is *dirty*: it is verified before anybody gets its value. A memo without a mark is up to date. With each dirty memo
//! go the reads through which the mark arrived; verification checks only these.
//!
//! Spreading costs a step for every edge above the change, even where a value turns out the same a few steps up. The eager
//! layer exists to bound that cost: marks spread within it first, its memos are brought up to date, and marks enter the lazy
//! layer only from inputs, buckets and eager memos that really changed.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Subject;
use crate::graph::Graph;
use crate::ids::NodeId;

/// Changed nodes, and the dirty memos above them.
#[derive(Default)]
pub(crate) struct Marks {
    /// Inputs, buckets and, in the lazy layer, eager memos whose value is known to differ.
    changed: FxHashSet<NodeId>,
    dirty: FxHashMap<NodeId, DirtyReads>,
}

/// The reads of a dirty memo that changed or are dirty themselves, in no particular order.
pub(crate) type DirtyReads = SmallVec<[NodeId; 4]>;

impl Marks {
    /// Marks the eager memos above changed inputs and buckets.
    pub(crate) fn spread_eager(graph: &Graph, changed: &[NodeId]) -> Self {
        Self::spread(changed, |id| graph.eager_readers(id))
    }

    /// Marks the lazy memos above changed inputs, buckets and eager memos.
    pub(crate) fn spread_lazy(graph: &Graph, changed: &[NodeId]) -> Self {
        Self::spread(changed, |id| graph.lazy_readers(id))
    }

    fn spread<I: Iterator<Item = NodeId>>(changed: &[NodeId], readers: impl Fn(NodeId) -> I) -> Self {
        let mut marks = Self { changed: changed.iter().copied().collect(), dirty: FxHashMap::default() };
        let mut unvisited = changed.to_vec();
        while let Some(id) = unvisited.pop() {
            for reader in readers(id) {
                let dirty_reads = marks.dirty.entry(reader).or_default();
                if dirty_reads.is_empty() {
                    unvisited.push(reader);
                }
                dirty_reads.push(id);
            }
        }
        marks
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty()
    }

    /// The number of dirty memos.
    pub(crate) fn len(&self) -> usize {
        self.dirty.len()
    }

    /// Whether a memo may be stale.
    pub(crate) fn is_dirty(&self, id: NodeId) -> bool {
        !self.dirty.is_empty() && self.dirty.contains_key(&id)
    }

    pub(crate) fn dirty_reads(&self, id: NodeId) -> Option<&DirtyReads> {
        self.dirty.get(&id)
    }

    /// Whether the value of a node is known to differ. Dirty memos are not known to.
    pub(crate) fn is_changed(&self, id: NodeId) -> bool {
        self.changed.contains(&id)
    }

    /// The dirty eager memos that are watched or read by lazy memos. Other eager memos are refreshed if these read them.
    pub(crate) fn needed_outside_eager_layer(&self, graph: &Graph) -> Vec<Subject> {
        self.select(graph, |id| graph.root(id).is_some() || graph.has_lazy_readers(id))
    }

    /// The dirty memos that are watched.
    pub(crate) fn watched(&self, graph: &Graph) -> Vec<Subject> {
        self.select(graph, |id| graph.root(id).is_some())
    }

    pub(crate) fn into_dirty(self) -> impl Iterator<Item = NodeId> {
        self.dirty.into_keys()
    }

    /// The dirty memos that `is_selected` accepts, in a fixed order.
    fn select(&self, graph: &Graph, is_selected: impl Fn(NodeId) -> bool) -> Vec<Subject> {
        let selected = self.dirty.keys().copied().filter(|id| is_selected(*id));
        let mut subjects: Vec<Subject> =
            selected.filter_map(|id| graph.node(id)).map(|node| node.subject.clone()).collect();
        subjects.sort_by_key(Subject::id);
        subjects
    }
}
