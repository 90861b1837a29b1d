//! Small ids for keys, shared by an engine and its forks.
//!
//! A key has the same id for as long as anything refers to it: the world of any engine of the family, a running query or
//! a [`Subject`]. When the last reference goes, the key is forgotten and its id used again.
//!
//! Every read of every query comes through here, so the work is done by code that all families share; of each family there
//! is only what hashes, compares and clones its keys.

use std::any::TypeId;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use hashbrown::hash_table;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::subject::{AnyKey, Keyed, Role};
use crate::{RootId, Subject};

/// Names a key of any family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// A key that has an id.
pub(crate) struct Interned<K: ?Sized> {
    pub(crate) id: NodeId,
    hash: u64,
    home: Arc<Keys>,
    pub(crate) key: K,
}

impl Interned<dyn AnyKey> {
    /// Memory it takes, without what the key owns: two counters of the `Arc`, and the entry in the table at its usual load.
    pub(crate) fn footprint(&self) -> usize {
        size_of_val(self) + 16 + 2 * size_of::<Entry>()
    }
}

impl<K: ?Sized> Drop for Interned<K> {
    fn drop(&mut self) {
        self.home.forget(self.hash, self.id);
    }
}

/// The keys of an engine and its forks.
#[derive(Default)]
pub(crate) struct Registry {
    keys: Arc<Keys>,
    roots: AtomicU64,
}

impl Registry {
    /// The subject for a key, new or known.
    pub(crate) fn intern<R: Role>(&self, key: &R::Key) -> Subject {
        let hash = hash_of::<R>(key);
        let make = || {
            // First, as it may panic and an id that is taken has to be given back.
            let key = Keyed::<R>(key.clone());
            let (id, home) = (self.keys.ids.take(), Arc::clone(&self.keys));
            Subject(Arc::new(Interned { id, hash, home, key }))
        };
        self.keys.intern(hash, &|known| known.key_as::<R>() == Some(key), &make)
    }

    /// The subject for a key that something refers to.
    pub(crate) fn find<R: Role>(&self, key: &R::Key) -> Option<Subject> {
        self.keys.find(hash_of::<R>(key), &|known| known.key_as::<R>() == Some(key))
    }

    /// A root id never given out before.
    pub(crate) fn next_root(&self) -> RootId {
        RootId(self.roots.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Keys that something refers to.
    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        let pool = self.keys.ids.0.lock();
        pool.next as usize - pool.free.len()
    }
}

/// Hands out ids, the freed ones first so that the range in use stays dense.
#[derive(Default)]
struct Ids(Mutex<Pool>);

#[derive(Default)]
struct Pool {
    next: u32,
    free: Vec<NodeId>,
}

impl Ids {
    fn take(&self) -> NodeId {
        let mut pool = self.0.lock();
        pool.free.pop().unwrap_or_else(|| {
            let id = NodeId(pool.next);
            pool.next = pool.next.checked_add(1).expect("four thousand million keys do not fit in memory");
            id
        })
    }

    fn give_back(&self, id: NodeId) {
        self.0.lock().free.push(id);
    }
}

const SHARDS: usize = 64;

type Shard = Mutex<HashTable<Entry>>;

/// The keys of all families.
struct Keys {
    shards: [Shard; SHARDS],
    ids: Ids,
}

impl Default for Keys {
    fn default() -> Self {
        Self { shards: [const { Mutex::new(HashTable::new()) }; SHARDS], ids: Ids::default() }
    }
}

/// A key something refers to, or one that is about to be forgotten.
struct Entry {
    hash: u64,
    id: NodeId,
    interned: Weak<Interned<dyn AnyKey>>,
}

impl Keys {
    fn find(&self, hash: u64, is_wanted: &dyn Fn(&Subject) -> bool) -> Option<Subject> {
        let mut search = Search::new(hash, is_wanted);
        let found = self.shard(hash).lock().find(hash, |entry| search.matches(entry)).is_some();
        if found { search.held.pop() } else { None }
    }

    fn intern(&self, hash: u64, is_wanted: &dyn Fn(&Subject) -> bool, make: &dyn Fn() -> Subject) -> Subject {
        let mut search = Search::new(hash, is_wanted);
        let mut shard = self.shard(hash).lock();
        match shard.entry(hash, |entry| search.matches(entry), |entry| entry.hash) {
            hash_table::Entry::Occupied(_) => search.held.pop().expect("a match is held"),
            hash_table::Entry::Vacant(place) => {
                let subject = make();
                place.insert(Entry { hash, id: subject.id(), interned: Arc::downgrade(&subject.0) });
                subject
            }
        }
    }

    fn forget(&self, hash: u64, id: NodeId) {
        let mut shard = self.shard(hash).lock();
        if let Ok(entry) = shard.find_entry(hash, |entry| entry.id == id) {
            entry.remove();
        }
        if shard.capacity() > 64 && shard.len() * 4 < shard.capacity() {
            shard.shrink_to_fit(|entry| entry.hash);
        }
        drop(shard);
        // Only now, or the id could be in the table twice.
        self.ids.give_back(id);
    }

    fn shard(&self, hash: u64) -> &Shard {
        // Bits that the hash table itself does not look at first.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

/// Looks for a key among entries. Declared before the lock is taken, so that whatever it got hold of is let go after the
/// lock is released: the last holder of a key takes that lock to forget it.
struct Search<'a> {
    hash: u64,
    is_wanted: &'a dyn Fn(&Subject) -> bool,
    /// Every key with this hash so far; the one looked for is the last.
    held: SmallVec<[Subject; 1]>,
}

impl<'a> Search<'a> {
    fn new(hash: u64, is_wanted: &'a dyn Fn(&Subject) -> bool) -> Self {
        Self { hash, is_wanted, held: SmallVec::new() }
    }

    fn matches(&mut self, entry: &Entry) -> bool {
        if entry.hash != self.hash {
            return false;
        }
        let Some(interned) = entry.interned.upgrade() else { return false };
        // Kept before it is compared: the comparison is not ours and may panic.
        self.held.push(Subject(interned));
        self.held.last().is_some_and(self.is_wanted)
    }
}

fn hash_of<R: Role>(key: &R::Key) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one((TypeId::of::<R>(), key))
}
