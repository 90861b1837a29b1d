//! A persistent set of ids, for the readers of a node and the members of a bucket.
//!
//! Most nodes have a few readers, and some have a hundred thousand. A small set is one sorted run, inline if very small. A large one is
//! a list of sorted chunks that clones share: adding an id copies one chunk and the list of chunks.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::ids::NodeId;

/// Up to this many ids are one sorted run.
const RUN_MAX: usize = 64;
/// A chunk that reaches this size is split.
const CHUNK_MAX: usize = 512;

/// A sorted set of ids.
#[derive(Clone)]
pub(crate) enum IdSet {
    Run(SmallVec<[NodeId; 4]>),
    Chunked(Arc<Chunks>),
}

/// Sorted, non-empty chunks; every id of a chunk is below every id of the next.
#[derive(Clone, Default)]
pub(crate) struct Chunks {
    len: usize,
    list: Vec<Arc<Vec<NodeId>>>,
}

impl Default for IdSet {
    fn default() -> Self {
        Self::Run(SmallVec::new())
    }
}

impl IdSet {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run(ids) => ids.len(),
            Self::Chunked(chunks) => chunks.len,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an id. Returns whether it was new.
    pub(crate) fn insert(&mut self, id: NodeId) -> bool {
        match self {
            Self::Run(ids) => {
                let Err(at) = ids.binary_search(&id) else { return false };
                ids.insert(at, id);
                if ids.len() > RUN_MAX {
                    let chunk = Arc::new(ids.to_vec());
                    *self = Self::Chunked(Arc::new(Chunks { len: chunk.len(), list: vec![chunk] }));
                }
                true
            }
            Self::Chunked(chunks) => !chunks.contains(id) && Arc::make_mut(chunks).insert(id),
        }
    }

    /// Removes an id. Returns whether it was present.
    pub(crate) fn remove(&mut self, id: NodeId) -> bool {
        match self {
            Self::Run(ids) => {
                let Ok(at) = ids.binary_search(&id) else { return false };
                ids.remove(at);
                true
            }
            Self::Chunked(chunks) => {
                if !chunks.contains(id) {
                    return false;
                }
                let chunks = Arc::make_mut(chunks);
                chunks.remove(id);
                // Well below the limit, so that a set near it does not change its form with every edit.
                if chunks.len < RUN_MAX / 2 {
                    *self = Self::Run(chunks.list.iter().flat_map(|chunk| chunk.iter().copied()).collect());
                }
                true
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        let (run, chunks): (&[NodeId], &[Arc<Vec<NodeId>>]) = match self {
            Self::Run(ids) => (ids, &[]),
            Self::Chunked(chunks) => (&[], &chunks.list),
        };
        run.iter().chain(chunks.iter().flat_map(|chunk| chunk.iter())).copied()
    }
}

impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Chunked(one), Self::Chunked(other)) if Arc::ptr_eq(one, other) => true,
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

impl Chunks {
    /// The position of the chunk that contains `id` or would take it.
    fn chunk_index(&self, id: NodeId) -> usize {
        self.list.partition_point(|chunk| chunk[0] <= id).saturating_sub(1)
    }

    fn contains(&self, id: NodeId) -> bool {
        self.list.get(self.chunk_index(id)).is_some_and(|chunk| chunk.binary_search(&id).is_ok())
    }

    fn insert(&mut self, id: NodeId) -> bool {
        let at = self.chunk_index(id);
        let chunk = Arc::make_mut(&mut self.list[at]);
        let Err(position) = chunk.binary_search(&id) else { return false };
        chunk.insert(position, id);
        self.len += 1;
        if chunk.len() >= CHUNK_MAX {
            // Ids mostly arrive in ascending order. Leaving the left part nearly full keeps chunks well filled.
            let keep = if position + 1 == chunk.len() { CHUNK_MAX - CHUNK_MAX / 8 } else { CHUNK_MAX / 2 };
            let rest = chunk.split_off(keep);
            self.list.insert(at + 1, Arc::new(rest));
        }
        true
    }

    fn remove(&mut self, id: NodeId) {
        let at = self.chunk_index(id);
        let chunk = Arc::make_mut(&mut self.list[at]);
        let Ok(position) = chunk.binary_search(&id) else { return };
        chunk.remove(position);
        self.len -= 1;
        if chunk.is_empty() {
            self.list.remove(at);
        } else if at > 0 && self.list[at].len() + self.list[at - 1].len() < CHUNK_MAX / 2 {
            let merged = self.list.remove(at);
            Arc::make_mut(&mut self.list[at - 1]).extend_from_slice(&merged);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set_and_clones_are_independent(
            preload in 0u32..3000,
            steps in prop::collection::vec((0u32..4000, any::<bool>(), 0u8..100), 0..500),
        ) {
            let mut set = IdSet::default();
            let mut model = BTreeSet::new();
            let mut clones = Vec::new();
            for id in 0..preload {
                prop_assert!(set.insert(NodeId(id)));
                model.insert(id);
            }
            for (id, add, clone) in steps {
                if add {
                    prop_assert_eq!(set.insert(NodeId(id)), model.insert(id));
                } else {
                    prop_assert_eq!(set.remove(NodeId(id)), model.remove(&id));
                }
                if clone == 0 {
                    clones.push((set.clone(), model.clone()));
                }
            }
            clones.push((set, model));
            for (set, model) in clones {
                prop_assert_eq!(set.len(), model.len());
                prop_assert!(set.iter().map(|id| id.0).eq(model.iter().copied()));
            }
        }
    }

    #[test]
    fn emptied_set_keeps_no_chunks() {
        let mut set = IdSet::default();
        (0..10_000).for_each(|id| assert!(set.insert(NodeId(id))));
        (0..10_000).rev().for_each(|id| assert!(set.remove(NodeId(id))));
        assert!(matches!(&set, IdSet::Run(ids) if ids.is_empty()));
    }

    #[test]
    fn sets_with_the_same_ids_are_equal_whatever_their_history() {
        let (mut grown, mut shrunk) = (IdSet::default(), IdSet::default());
        (0..70).for_each(|id| assert!(shrunk.insert(NodeId(id))));
        (40..70).for_each(|id| assert!(shrunk.remove(NodeId(id))));
        (0..40).for_each(|id| assert!(grown.insert(NodeId(id))));
        assert!(grown == shrunk);
        assert!(shrunk.remove(NodeId(3)));
        assert!(grown != shrunk);
    }
}
