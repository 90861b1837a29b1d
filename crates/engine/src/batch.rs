//! Batches of changes to inputs.
//!
//! A batch is applied as one change: queries never see half of it. Setting an input to an equal value changes nothing, so
//! after applying a batch it is known exactly which inputs and which buckets differ. That list is where marks start.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::draft::Draft;
use crate::graph::SortedKeys;
use crate::ids::NodeId;
use crate::node::{AllKeysNode, BucketNode, Erased, InputNode, Interner, downcast};
use crate::{Input, Key, Subject};

/// Changes to inputs that take effect together. The last change to a key wins.
#[derive(Default)]
pub struct Batch {
    changes: BTreeMap<TypeId, Box<dyn FamilyChanges>>,
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
        self.family::<I>().insert(key, Some(value));
        self
    }

    /// Removes an input. No change if it is not set.
    pub fn remove<I: Input>(&mut self, key: &I::Key) -> &mut Self {
        self.family::<I>().insert(key.clone(), None);
        self
    }

    /// Whether nothing has been set or removed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Edits the draft and returns the inputs and buckets that differ from before.
    pub(crate) fn apply_to(self, draft: &mut Draft, interner: &Interner) -> Vec<NodeId> {
        self.changes.into_values().flat_map(|changes| changes.apply_to(draft, interner)).collect()
    }

    fn family<I: Input>(&mut self) -> &mut BTreeMap<I::Key, Option<Arc<I::Value>>> {
        let changes: &mut dyn Any = self
            .changes
            .entry(TypeId::of::<I>())
            .or_insert_with(|| Box::new(InputChanges::<I>(BTreeMap::new())))
            .as_mut();
        &mut changes.downcast_mut::<InputChanges<I>>().expect("keyed by the type id of I").0
    }
}

/// Changes to the inputs of one family: the new value of each key, or `None` to remove it.
struct InputChanges<I: Input>(BTreeMap<I::Key, Option<Arc<I::Value>>>);

/// [`InputChanges`] of any family.
trait FamilyChanges: Any + Send {
    fn apply_to(self: Box<Self>, draft: &mut Draft, interner: &Interner) -> Vec<NodeId>;
}

impl<I: Input> FamilyChanges for InputChanges<I> {
    fn apply_to(self: Box<Self>, draft: &mut Draft, interner: &Interner) -> Vec<NodeId> {
        let mut changed = Vec::new();
        let mut buckets: BTreeMap<I::Index, MembershipChanges<I::Key>> = BTreeMap::new();
        let mut all_keys = MembershipChanges::default();
        for (key, new) in self.0 {
            let subject = interner.intern::<InputNode<I>>(&key);
            let old: Option<Arc<I::Value>> = draft.graph.input(subject.id()).cloned().map(downcast);
            if is_same(old.as_ref(), new.as_ref()) {
                continue;
            }
            let (before, after) = (indexes::<I>(&key, old.as_deref()), indexes::<I>(&key, new.as_deref()));
            for index in after.difference(&before) {
                buckets.entry(index.clone()).or_default().add(&subject, &key);
            }
            for index in before.difference(&after) {
                buckets.entry(index.clone()).or_default().remove(&subject, &key);
            }
            match (old.is_some(), new.is_some()) {
                (false, true) => all_keys.add(&subject, &key),
                (true, false) => all_keys.remove(&subject, &key),
                _ => {}
            }
            draft.set_input(&subject, new.map(|value| value as Erased));
            changed.push(subject.id());
        }
        for (index, changes) in buckets {
            let bucket = interner.intern::<BucketNode<I>>(&index);
            changes.apply_to(draft, &bucket);
            changed.push(bucket.id());
        }
        if !all_keys.is_empty() {
            let bucket = interner.intern::<AllKeysNode<I>>(&());
            all_keys.apply_to(draft, &bucket);
            changed.push(bucket.id());
        }
        changed
    }
}

fn is_same<T: PartialEq>(old: Option<&Arc<T>>, new: Option<&Arc<T>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
        (old, new) => old.is_none() && new.is_none(),
    }
}

fn indexes<I: Input>(key: &I::Key, value: Option<&I::Value>) -> BTreeSet<I::Index> {
    value.map(|value| I::index(key, value)).into_iter().flatten().collect()
}

/// Keys that a batch adds to a bucket and removes from it, each in ascending order.
struct MembershipChanges<K> {
    added: Vec<(NodeId, K)>,
    removed: Vec<(NodeId, K)>,
}

impl<K> Default for MembershipChanges<K> {
    fn default() -> Self {
        Self { added: Vec::new(), removed: Vec::new() }
    }
}

impl<K: Key + Ord> MembershipChanges<K> {
    fn add(&mut self, subject: &Subject, key: &K) {
        self.added.push((subject.id(), key.clone()));
    }

    fn remove(&mut self, subject: &Subject, key: &K) {
        self.removed.push((subject.id(), key.clone()));
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    fn apply_to(self, draft: &mut Draft, subject: &Subject) {
        let is_read = draft.graph.has_readers(subject.id());
        let Some(bucket) = draft.bucket_mut(subject) else { return };
        for (id, _) in &self.removed {
            bucket.ids.remove(*id);
        }
        for (id, _) in &self.added {
            bucket.ids.insert(*id);
        }
        // The readers of a bucket will ask for its keys again. Merging into the sorted list is cheaper than sorting anew.
        let sorted = bucket.sorted.take().filter(|_| is_read);
        let merged = sorted.map(|sorted| self.merge_into(&SortedKeys::downcast(&sorted)));
        bucket.sorted = merged.map_or_else(OnceLock::new, OnceLock::from);
    }

    fn merge_into(self, sorted: &[K]) -> Erased {
        let mut merged = Vec::with_capacity(sorted.len() + self.added.len());
        let mut removed = self.removed.into_iter().map(|(_, key)| key).peekable();
        let mut added = self.added.into_iter().map(|(_, key)| key).peekable();
        for key in sorted {
            while let Some(smaller) = added.next_if(|added| added < key) {
                merged.push(smaller);
            }
            if removed.next_if_eq(key).is_none() {
                merged.push(key.clone());
            }
        }
        merged.extend(added);
        Arc::new(SortedKeys::<K>(merged.into()))
    }
}
