//! Which memos a batch may have made stale.
//!
//! Marks spread upwards from what changed, along the edges from what was read to who read it. A marked memo is *dirty*: it
//! may be stale, and is verified before anybody gets it. A memo without a mark is up to date.
//!
//! Marks spread in two steps. First within the eager layer, from the inputs and buckets that a batch changed. Once the eager
//! memos are up to date it is known which of them have a new value, and only from those, and from the inputs and buckets
//! themselves, do marks spread into the rest of the graph. That misses nothing, as eager memos rest on nothing but inputs,
//! buckets and other eager memos.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Subject;
use crate::intern::NodeId;
use crate::world::World;

/// What is known to have changed, and the dirty memos above it.
#[derive(Default)]
pub(crate) struct Marks {
    changed: FxHashSet<NodeId>,
    /// Dirty memos, each with those of its reads that changed or are dirty themselves.
    dirty: FxHashMap<NodeId, DirtyReads>,
}

pub(crate) type DirtyReads = SmallVec<[NodeId; 4]>;

impl Marks {
    /// Marks the eager memos above inputs and buckets that changed.
    pub(crate) fn spread_eager(world: &World, changed: &[NodeId]) -> Self {
        Self::spread(changed, |id| world.eager_readers(id))
    }

    /// Marks the memos above inputs, buckets and eager memos that changed, but for eager ones, which are up to date.
    pub(crate) fn spread_lazy(world: &World, changed: &[NodeId]) -> Self {
        Self::spread(changed, |id| world.lazy_readers(id))
    }

    fn spread<I: Iterator<Item = NodeId>>(changed: &[NodeId], readers: impl Fn(NodeId) -> I) -> Self {
        let mut marks = Self { changed: changed.iter().copied().collect(), dirty: FxHashMap::default() };
        let mut open = changed.to_vec();
        while let Some(id) = open.pop() {
            for reader in readers(id) {
                let dirty_reads = marks.dirty.entry(reader).or_default();
                if dirty_reads.is_empty() {
                    open.push(reader);
                }
                dirty_reads.push(id);
            }
        }
        marks
    }

    /// How many memos are dirty.
    pub(crate) fn len(&self) -> usize {
        self.dirty.len()
    }

    /// Whether a memo may be stale.
    pub(crate) fn is_dirty(&self, id: NodeId) -> bool {
        !self.dirty.is_empty() && self.dirty.contains_key(&id)
    }

    /// The reads of a dirty memo that changed or are dirty, in no particular order.
    pub(crate) fn dirty_reads(&self, id: NodeId) -> Option<&DirtyReads> {
        self.dirty.get(&id)
    }

    /// Whether something is known to have changed.
    pub(crate) fn is_changed(&self, id: NodeId) -> bool {
        self.changed.contains(&id)
    }

    /// The dirty memos that are watched, and those that other than eager memos read: what must be up to date before marks
    /// spread further.
    pub(crate) fn needed(&self, world: &World) -> Vec<Subject> {
        let needed = |id: &NodeId| world.root(*id).is_some() || world.is_read_lazily(*id);
        self.select(world, needed)
    }

    /// The dirty memos that are watched.
    pub(crate) fn watched(&self, world: &World) -> Vec<Subject> {
        self.select(world, |id| world.root(*id).is_some())
    }

    pub(crate) fn into_dirty(self) -> impl Iterator<Item = NodeId> {
        self.dirty.into_keys()
    }

    fn select(&self, world: &World, is_selected: impl Fn(&NodeId) -> bool) -> Vec<Subject> {
        let selected = self.dirty.keys().filter(|id| is_selected(id));
        let mut subjects: Vec<Subject> =
            selected.filter_map(|id| world.node(*id)).map(|node| node.subject.clone()).collect();
        subjects.sort_by_key(Subject::id);
        subjects
    }
}
