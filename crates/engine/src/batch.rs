//! Changes to inputs, applied together.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::graph::Draft;
use crate::intern::{NodeId, Registry};
use crate::subject::{All, Bucket, Value};
use crate::value::{Erased, typed};
use crate::world::Sorted;
use crate::{Input, Key, Subject};

/// Changes to inputs that take effect together; the last change to a key wins.
#[derive(Default)]
pub struct Batch {
    changes: BTreeMap<TypeId, Box<dyn Changes>>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an input.
    pub fn set<I: Input>(&mut self, key: I::Key, value: I::Value) -> &mut Self {
        self.set_shared::<I>(key, Arc::new(value))
    }

    /// Sets an input to a value that is already shared.
    pub fn set_shared<I: Input>(&mut self, key: I::Key, value: Arc<I::Value>) -> &mut Self {
        self.changes_of::<I>().insert(key, Some(value));
        self
    }

    /// Removes an input; no change if it is not there.
    pub fn remove<I: Input>(&mut self, key: &I::Key) -> &mut Self {
        self.changes_of::<I>().insert(key.clone(), None);
        self
    }

    /// Whether nothing has been set or removed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Makes the changes and lists the inputs and buckets that are no longer as they were.
    pub(crate) fn make(self, draft: &mut Draft, registry: &Registry) -> Vec<NodeId> {
        self.changes.into_values().flat_map(|changes| changes.make(draft, registry)).collect()
    }

    fn changes_of<I: Input>(&mut self) -> &mut BTreeMap<I::Key, Option<Arc<I::Value>>> {
        let changes: &mut dyn Any = self
            .changes
            .entry(TypeId::of::<I>())
            .or_insert_with(|| Box::new(TypedChanges::<I>(BTreeMap::new())))
            .as_mut();
        &mut changes.downcast_mut::<TypedChanges<I>>().expect("keyed by the type id of I").0
    }
}

/// Changes to one family of inputs, by type.
pub(crate) struct TypedChanges<I: Input>(BTreeMap<I::Key, Option<Arc<I::Value>>>);

/// Changes to one family of inputs.
pub(crate) trait Changes: Any + Send {
    fn make(self: Box<Self>, draft: &mut Draft, registry: &Registry) -> Vec<NodeId>;
}

impl<I: Input> Changes for TypedChanges<I> {
    fn make(self: Box<Self>, draft: &mut Draft, registry: &Registry) -> Vec<NodeId> {
        let mut changed = Vec::new();
        let mut buckets: BTreeMap<I::Index, Moves<I::Key>> = BTreeMap::new();
        let mut all = Moves::default();
        for (key, new) in self.0 {
            let subject = registry.intern::<Value<I>>(&key);
            let old: Option<Arc<I::Value>> = draft.world.input(subject.id()).cloned().map(typed);
            if same(old.as_ref(), new.as_ref()) {
                continue;
            }
            let (before, after) = (indexes::<I>(&key, old.as_deref()), indexes::<I>(&key, new.as_deref()));
            for index in after.difference(&before) {
                buckets.entry(index.clone()).or_default().enter(&subject, &key);
            }
            for index in before.difference(&after) {
                buckets.entry(index.clone()).or_default().leave(&subject, &key);
            }
            match (old.is_some(), new.is_some()) {
                (false, true) => all.enter(&subject, &key),
                (true, false) => all.leave(&subject, &key),
                _ => {}
            }
            draft.set_input(&subject, new.map(|value| value as Erased));
            changed.push(subject.id());
        }
        for (index, moves) in buckets {
            let bucket = registry.intern::<Bucket<I>>(&index);
            moves.make(draft, &bucket);
            changed.push(bucket.id());
        }
        if !all.is_empty() {
            let bucket = registry.intern::<All<I>>(&());
            all.make(draft, &bucket);
            changed.push(bucket.id());
        }
        changed
    }
}

fn same<T: PartialEq>(old: Option<&Arc<T>>, new: Option<&Arc<T>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
        (old, new) => old.is_none() && new.is_none(),
    }
}

fn indexes<I: Input>(key: &I::Key, value: Option<&I::Value>) -> BTreeSet<I::Index> {
    value.map(|value| I::index(key, value)).into_iter().flatten().collect()
}

/// Keys that enter and leave a bucket, each in ascending order.
struct Moves<K> {
    entering: Vec<(NodeId, K)>,
    leaving: Vec<(NodeId, K)>,
}

impl<K> Default for Moves<K> {
    fn default() -> Self {
        Self { entering: Vec::new(), leaving: Vec::new() }
    }
}

impl<K: Key + Ord> Moves<K> {
    fn enter(&mut self, subject: &Subject, key: &K) {
        self.entering.push((subject.id(), key.clone()));
    }

    fn leave(&mut self, subject: &Subject, key: &K) {
        self.leaving.push((subject.id(), key.clone()));
    }

    fn is_empty(&self) -> bool {
        self.entering.is_empty() && self.leaving.is_empty()
    }

    fn make(self, draft: &mut Draft, bucket: &Subject) {
        let is_read = draft.world.is_read(bucket.id());
        let Some(members) = draft.members_mut(bucket) else { return };
        for (id, _) in &self.leaving {
            members.ids.remove(*id);
        }
        for (id, _) in &self.entering {
            members.ids.insert(*id);
        }
        // A bucket that is read will be asked for its keys again: merging is cheaper than sorting anew.
        let merged =
            members.sorted.take().filter(|_| is_read).map(|sorted| self.merge(&Sorted::open(&sorted)));
        members.sorted = merged.map_or_else(OnceLock::new, OnceLock::from);
    }

    fn merge(self, old: &[K]) -> Erased {
        let mut keys = Vec::with_capacity(old.len() + self.entering.len());
        let mut leaving = self.leaving.into_iter().map(|(_, key)| key).peekable();
        let mut entering = self.entering.into_iter().map(|(_, key)| key).peekable();
        for key in old {
            while let Some(earlier) = entering.next_if(|entering| entering < key) {
                keys.push(earlier);
            }
            if leaving.next_if_eq(key).is_none() {
                keys.push(key.clone());
            }
        }
        keys.extend(entering);
        Arc::new(Sorted::<K>(keys.into()))
    }
}
