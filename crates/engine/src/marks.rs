//! What a batch may have invalidated.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Subject;
use crate::intern::NodeId;
use crate::world::World;

/// The inputs and buckets a batch changed, and every memo above them.
#[derive(Default)]
pub(crate) struct Marks {
    changed: FxHashSet<NodeId>,
    /// Memos that rest on a change, each with those of its reads that are marked themselves.
    suspects: FxHashMap<NodeId, Suspicions>,
}

pub(crate) type Suspicions = SmallVec<[NodeId; 4]>;

impl Marks {
    /// Follows the edges of a world up from what changed.
    pub(crate) fn spread(world: &World, changed: Vec<NodeId>) -> Self {
        let mut marks = Self { changed: changed.iter().copied().collect(), suspects: FxHashMap::default() };
        let mut open = changed;
        while let Some(id) = open.pop() {
            for reader in world.readers(id) {
                let suspicions = marks.suspects.entry(reader).or_default();
                if suspicions.is_empty() {
                    open.push(reader);
                }
                suspicions.push(id);
            }
        }
        marks
    }

    /// Whether a memo may be out of date.
    pub(crate) fn suspects(&self, id: NodeId) -> bool {
        !self.suspects.is_empty() && self.suspects.contains_key(&id)
    }

    /// The marked reads of a memo, in no particular order.
    pub(crate) fn suspicions(&self, id: NodeId) -> Option<&Suspicions> {
        self.suspects.get(&id)
    }

    /// Whether an input or bucket is known to have changed.
    pub(crate) fn changed(&self, id: NodeId) -> bool {
        self.changed.contains(&id)
    }

    /// The watched queries that may be out of date.
    pub(crate) fn roots(&self, world: &World) -> Vec<Subject> {
        let watched = self.suspects.keys().filter(|id| world.root(**id).is_some());
        let mut roots: Vec<Subject> =
            watched.filter_map(|id| world.node(*id)).map(|node| node.subject.clone()).collect();
        roots.sort_by_key(Subject::id);
        roots
    }

    pub(crate) fn into_suspects(self) -> impl Iterator<Item = NodeId> {
        self.suspects.into_keys()
    }
}
