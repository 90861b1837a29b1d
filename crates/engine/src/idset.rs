//! A set of ids that is small when small and cheap to copy when large.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::intern::NodeId;

/// Up to this many ids are one sorted run.
const FEW: usize = 64;
/// A chunk that reaches this size is split.
const CHUNK: usize = 512;

/// A sorted set of ids. Large sets are chunks shared between copies, so that adding one id to a set of a hundred
/// thousand copies one chunk and the list of chunks.
#[derive(Clone)]
pub(crate) enum IdSet {
    Few(SmallVec<[NodeId; 4]>),
    Many(Arc<Chunks>),
}

/// Sorted, non-empty chunks; every id of a chunk is below every id of the next.
#[derive(Clone, Default)]
pub(crate) struct Chunks {
    len: usize,
    list: Vec<Arc<Vec<NodeId>>>,
}

impl Default for IdSet {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl IdSet {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(ids) => ids.len(),
            Self::Many(chunks) => chunks.len,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an id; says whether it was new.
    pub(crate) fn insert(&mut self, id: NodeId) -> bool {
        match self {
            Self::Few(ids) => {
                let Err(at) = ids.binary_search(&id) else { return false };
                ids.insert(at, id);
                if ids.len() > FEW {
                    let chunk = Arc::new(ids.to_vec());
                    *self = Self::Many(Arc::new(Chunks { len: chunk.len(), list: vec![chunk] }));
                }
                true
            }
            Self::Many(chunks) => !chunks.contains(id) && Arc::make_mut(chunks).insert(id),
        }
    }

    /// Removes an id; says whether it was there.
    pub(crate) fn remove(&mut self, id: NodeId) -> bool {
        match self {
            Self::Few(ids) => {
                let Ok(at) = ids.binary_search(&id) else { return false };
                ids.remove(at);
                true
            }
            Self::Many(chunks) => {
                if !chunks.contains(id) {
                    return false;
                }
                let chunks = Arc::make_mut(chunks);
                chunks.remove(id);
                // Well below the limit, so that a set that hovers around it does not change its form each time.
                if chunks.len < FEW / 2 {
                    *self = Self::Few(chunks.list.iter().flat_map(|chunk| chunk.iter().copied()).collect());
                }
                true
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        let (few, many): (&[NodeId], &[Arc<Vec<NodeId>>]) = match self {
            Self::Few(ids) => (ids, &[]),
            Self::Many(chunks) => (&[], &chunks.list),
        };
        few.iter().chain(many.iter().flat_map(|chunk| chunk.iter())).copied()
    }
}

impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Many(one), Self::Many(other)) if Arc::ptr_eq(one, other) => true,
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

impl Chunks {
    /// The chunk that has `id` or would take it.
    fn chunk_of(&self, id: NodeId) -> usize {
        self.list.partition_point(|chunk| chunk[0] <= id).saturating_sub(1)
    }

    fn contains(&self, id: NodeId) -> bool {
        self.list.get(self.chunk_of(id)).is_some_and(|chunk| chunk.binary_search(&id).is_ok())
    }

    fn insert(&mut self, id: NodeId) -> bool {
        let at = self.chunk_of(id);
        let chunk = Arc::make_mut(&mut self.list[at]);
        let Err(place) = chunk.binary_search(&id) else { return false };
        chunk.insert(place, id);
        self.len += 1;
        if chunk.len() >= CHUNK {
            // Ids are mostly handed out in ascending order: leaving the left part full keeps chunks well filled.
            let keep = if place + 1 == chunk.len() { CHUNK - CHUNK / 8 } else { CHUNK / 2 };
            let rest = chunk.split_off(keep);
            self.list.insert(at + 1, Arc::new(rest));
        }
        true
    }

    fn remove(&mut self, id: NodeId) {
        let at = self.chunk_of(id);
        let chunk = Arc::make_mut(&mut self.list[at]);
        let Ok(place) = chunk.binary_search(&id) else { return };
        chunk.remove(place);
        self.len -= 1;
        if chunk.is_empty() {
            self.list.remove(at);
        } else if at > 0 && self.list[at].len() + self.list[at - 1].len() < CHUNK / 2 {
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
        fn behaves_like_a_set_and_copies_stay_as_they_were(
            preload in 0u32..3000,
            steps in prop::collection::vec((0u32..4000, any::<bool>(), 0u8..100), 0..500),
        ) {
            let mut set = IdSet::default();
            let mut model = BTreeSet::new();
            let mut copies = Vec::new();
            for id in 0..preload {
                prop_assert!(set.insert(NodeId(id)));
                model.insert(id);
            }
            for (id, add, copy) in steps {
                if add {
                    prop_assert_eq!(set.insert(NodeId(id)), model.insert(id));
                } else {
                    prop_assert_eq!(set.remove(NodeId(id)), model.remove(&id));
                }
                if copy == 0 {
                    copies.push((set.clone(), model.clone()));
                }
            }
            copies.push((set, model));
            for (set, model) in copies {
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
        assert!(matches!(&set, IdSet::Few(ids) if ids.is_empty()));
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
