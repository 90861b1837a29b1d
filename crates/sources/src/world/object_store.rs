//! The objects of one source.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault};

use canopus_api::{Kind, Object, ObjectKey};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxHasher;

/// Objects by kind and name. The names are those in the objects: nothing is held twice.
#[derive(Debug, Default)]
pub(super) struct ObjectStore {
    kinds: BTreeMap<Kind, HashTable<StoredObject>>,
}

/// An object and when it was last heard of.
#[derive(Debug)]
struct StoredObject {
    object: Object,
    epoch: u32,
}

impl StoredObject {
    fn is(&self, namespace: &str, name: &str) -> bool {
        let meta = self.object.meta();
        *meta.name == *name && *meta.namespace == *namespace
    }

    fn hash(&self) -> u64 {
        let meta = self.object.meta();
        hash(&meta.namespace, &meta.name)
    }
}

fn hash(namespace: &str, name: &str) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one((namespace, name))
}

impl ObjectStore {
    /// The object of this key.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Object> {
        let held = self.kinds.get(&key.kind)?;
        held.find(hash(&key.namespace, &key.name), |held| held.is(&key.namespace, &key.name))
            .map(|held| &held.object)
    }

    /// Takes an object; false if it was there already, as it is.
    pub(super) fn put(&mut self, object: Object, epoch: u32) -> bool {
        let held = StoredObject { object, epoch };
        let meta = held.object.meta();
        let same = |other: &StoredObject| other.is(&meta.namespace, &meta.name);
        match self.kinds.entry(held.object.kind()).or_default().entry(held.hash(), same, StoredObject::hash) {
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                known.epoch = epoch;
                let changed = !known.object.same_but_for_version(&held.object);
                if changed {
                    known.object = held.object;
                }
                changed
            }
            Entry::Vacant(entry) => {
                entry.insert(held);
                true
            }
        }
    }

    /// Notes that an object was heard of.
    pub(super) fn touch(&mut self, key: &ObjectKey, epoch: u32) {
        let held = self.kinds.get_mut(&key.kind).and_then(|held| {
            held.find_mut(hash(&key.namespace, &key.name), |held| held.is(&key.namespace, &key.name))
        });
        if let Some(held) = held {
            held.epoch = epoch;
        }
    }

    /// Takes an object away; false if it was not there.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> bool {
        let Some(held) = self.kinds.get_mut(&key.kind) else { return false };
        let found =
            held.find_entry(hash(&key.namespace, &key.name), |held| held.is(&key.namespace, &key.name));
        found.is_ok_and(|entry| {
            entry.remove();
            true
        })
    }

    /// The keys of the objects for which a condition holds, in order.
    pub(super) fn keys(&self, condition: impl Fn(Kind, &Object, u32) -> bool) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        for (kind, held) in &self.kinds {
            let found = held.iter().filter(|held| condition(*kind, &held.object, held.epoch));
            keys.extend(found.map(|held| held.object.key()));
        }
        keys.sort_unstable();
        keys
    }

    /// All objects, kind by kind, by namespace and name.
    pub(super) fn objects(&self) -> Vec<Object> {
        let mut objects = Vec::new();
        for held in self.kinds.values() {
            let from = objects.len();
            objects.extend(held.iter().map(|held| held.object.clone()));
            objects[from..].sort_unstable_by(|a, b| {
                let (a, b) = (a.meta(), b.meta());
                (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))
            });
        }
        objects
    }
}
