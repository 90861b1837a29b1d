//! A persistent map from dense ids: a radix tree with copy-on-write nodes.
//!
//! Cloning copies one pointer. Writing copies the path from the root to the written leaf, and only as far as another clone
//! shares it: a path of its own is written in place. That is what makes graphs cheap to copy and drafts cheap to edit.

use std::sync::Arc;

use crate::ids::NodeId;

const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

/// A persistent map. `height` is the number of branch levels above the leaves.
pub(crate) struct IdMap<T> {
    root: Option<Arc<Tree<T>>>,
    height: u32,
}

#[derive(Clone)]
enum Tree<T> {
    Branch([Option<Arc<Tree<T>>>; WIDTH]),
    Leaf([Option<T>; WIDTH]),
}

impl<T> Clone for IdMap<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), height: self.height }
    }
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self { root: None, height: 0 }
    }
}

impl<T: Clone> IdMap<T> {
    pub(crate) fn get(&self, id: NodeId) -> Option<&T> {
        if !self.covers(id) {
            return None;
        }
        let mut tree = self.root.as_deref()?;
        let mut level = self.height;
        loop {
            match tree {
                Tree::Branch(children) => tree = children[slot_index(id, level)].as_deref()?,
                Tree::Leaf(values) => return values[slot_index(id, level)].as_ref(),
            }
            level -= 1;
        }
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut T> {
        // Looked up first: an absent id must not cost a copy of its path.
        self.get(id)?;
        self.slot_mut(id).as_mut()
    }

    pub(crate) fn get_or_insert_with(&mut self, id: NodeId, make: impl FnOnce() -> T) -> &mut T {
        self.slot_mut(id).get_or_insert_with(make)
    }

    pub(crate) fn insert(&mut self, id: NodeId, value: T) {
        *self.slot_mut(id) = Some(value);
    }

    pub(crate) fn remove(&mut self, id: NodeId) {
        if self.get(id).is_none() {
            return;
        }
        let is_empty = self.root.as_mut().is_some_and(|root| Arc::make_mut(root).remove(id, self.height));
        if is_empty {
            *self = Self::default();
        }
    }

    /// Calls `visit` with every value in ascending order of id.
    #[cfg(test)]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&T)) {
        if let Some(root) = &self.root {
            root.for_each(&mut visit);
        }
    }

    /// The slot of `id`. Nodes on the path are created if missing and copied if shared.
    fn slot_mut(&mut self, id: NodeId) -> &mut Option<T> {
        while !self.covers(id) {
            self.grow();
        }
        let height = self.height;
        let root = self.root.get_or_insert_with(|| Arc::new(Tree::empty(height)));
        let mut tree = Arc::make_mut(root);
        let mut level = height;
        loop {
            match tree {
                Tree::Branch(children) => {
                    let child = children[slot_index(id, level)]
                        .get_or_insert_with(|| Arc::new(Tree::empty(level - 1)));
                    tree = Arc::make_mut(child);
                }
                Tree::Leaf(values) => return &mut values[slot_index(id, level)],
            }
            level -= 1;
        }
    }

    /// Whether the tree is high enough for `id`.
    fn covers(&self, id: NodeId) -> bool {
        u64::from(id.0) >> (BITS * (self.height + 1)) == 0
    }

    fn grow(&mut self) {
        self.height += 1;
        if let Some(old) = self.root.take() {
            let mut children = [const { None }; WIDTH];
            children[0] = Some(old);
            self.root = Some(Arc::new(Tree::Branch(children)));
        }
    }
}

impl<T: Clone> Tree<T> {
    fn empty(level: u32) -> Self {
        if level == 0 { Self::Leaf([const { None }; WIDTH]) } else { Self::Branch([const { None }; WIDTH]) }
    }

    /// Removes the value of `id`. Returns whether the tree is now empty.
    fn remove(&mut self, id: NodeId, level: u32) -> bool {
        match self {
            Self::Branch(children) => {
                let child = &mut children[slot_index(id, level)];
                let is_empty = child.as_mut().is_some_and(|tree| Arc::make_mut(tree).remove(id, level - 1));
                if is_empty {
                    *child = None;
                }
                children.iter().all(Option::is_none)
            }
            Self::Leaf(values) => {
                values[slot_index(id, level)] = None;
                values.iter().all(Option::is_none)
            }
        }
    }

    #[cfg(test)]
    fn for_each(&self, visit: &mut impl FnMut(&T)) {
        match self {
            Self::Branch(children) => children.iter().flatten().for_each(|child| child.for_each(visit)),
            Self::Leaf(values) => values.iter().flatten().for_each(visit),
        }
    }
}

fn slot_index(id: NodeId, level: u32) -> usize {
    (id.0 >> (BITS * level)) as usize & (WIDTH - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_map_and_clones_are_independent(
            steps in prop::collection::vec((0u32..2000, prop::option::of(any::<u16>()), 0u8..50), 0..300),
        ) {
            let mut map = IdMap::default();
            let mut model = BTreeMap::new();
            let mut clones = Vec::new();
            for (id, value, clone) in steps {
                match value {
                    Some(value) => {
                        map.insert(NodeId(id), value);
                        model.insert(id, value);
                    }
                    None => {
                        map.remove(NodeId(id));
                        model.remove(&id);
                    }
                }
                if clone == 0 {
                    clones.push((map.clone(), model.clone()));
                }
            }
            clones.push((map, model));
            for (map, model) in clones {
                let mut visited = Vec::new();
                map.for_each(|value| visited.push(*value));
                prop_assert_eq!(visited, model.values().copied().collect::<Vec<_>>());
                for id in 0..2000 {
                    prop_assert_eq!(map.get(NodeId(id)), model.get(&id));
                }
            }
        }
    }

    #[test]
    fn highest_id_fits() {
        let mut map = IdMap::default();
        map.insert(NodeId(u32::MAX), 1);
        map.insert(NodeId(0), 2);
        assert_eq!((map.get(NodeId(u32::MAX)), map.get(NodeId(0))), (Some(&1), Some(&2)));
        map.remove(NodeId(u32::MAX));
        map.remove(NodeId(0));
        assert!(map.root.is_none());
    }
}
