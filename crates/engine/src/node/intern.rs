//! Small ids for keys, shared by an engine and its forks.
//!
//! A key keeps its id for as long as anything refers to it: the graph of any engine of the family, a running query, or a
//! [`Subject`]. When the last reference goes, the key leaves the table and its id is used again, so ids stay dense enough to
//! index by.
//!
//! Every read of every query interns its key. The work is done by code that all families share; only hashing, comparing and
//! cloning a key is compiled once per family.

use std::any::TypeId;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use hashbrown::hash_table;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::subject::{AnyKey, FamilyKey, NodeFamily, Subject};
use crate::ids::{NodeId, RootId};

/// A key with its id.
pub(crate) struct Interned<K: ?Sized> {
    pub(crate) id: NodeId,
    hash: u64,
    table: Arc<KeyTable>,
    pub(crate) key: K,
}

impl Interned<dyn AnyKey> {
    /// Estimated memory, without what the key owns on the heap: the counters of the `Arc`, and the table entry at its usual
    /// load.
    pub(crate) fn footprint(&self) -> usize {
        size_of_val(self) + 16 + 2 * size_of::<Entry>()
    }
}

impl<K: ?Sized> Drop for Interned<K> {
    fn drop(&mut self) {
        self.table.remove(self.hash, self.id);
    }
}

/// Interns the keys, and numbers the roots, of an engine and its forks.
#[derive(Default)]
pub(crate) struct Interner {
    table: Arc<KeyTable>,
    last_root: AtomicU64,
}

impl Interner {
    /// The subject for a key, which gets an id if it has none.
    pub(crate) fn intern<F: NodeFamily>(&self, key: &F::Key) -> Subject {
        let hash = hash_key::<F>(key);
        let make = || {
            // Cloned first: cloning may panic, and an id taken before that would be lost.
            let key = FamilyKey::<F>(key.clone());
            let (id, table) = (self.table.ids.take(), Arc::clone(&self.table));
            Subject(Arc::new(Interned { id, hash, table, key }))
        };
        self.table.intern(hash, &|known| known.key_in::<F>() == Some(key), &make)
    }

    /// The subject for a key, if something refers to it.
    pub(crate) fn find<F: NodeFamily>(&self, key: &F::Key) -> Option<Subject> {
        self.table.find(hash_key::<F>(key), &|known| known.key_in::<F>() == Some(key))
    }

    /// A root id that was never given out before.
    pub(crate) fn next_root(&self) -> RootId {
        RootId(self.last_root.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The number of keys that something refers to.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let pool = self.table.ids.0.lock();
        pool.next as usize - pool.free.len()
    }
}

/// Hands out ids, freed ones first.
#[derive(Default)]
struct IdAllocator(Mutex<IdPool>);

#[derive(Default)]
struct IdPool {
    next: u32,
    free: Vec<NodeId>,
}

impl IdAllocator {
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
struct KeyTable {
    shards: [Shard; SHARDS],
    ids: IdAllocator,
}

impl Default for KeyTable {
    fn default() -> Self {
        Self { shards: [const { Mutex::new(HashTable::new()) }; SHARDS], ids: IdAllocator::default() }
    }
}

/// A key that something refers to, or that is about to be removed.
struct Entry {
    hash: u64,
    id: NodeId,
    interned: Weak<Interned<dyn AnyKey>>,
}

impl KeyTable {
    fn find(&self, hash: u64, is_wanted: &dyn Fn(&Subject) -> bool) -> Option<Subject> {
        let mut search = Search::new(hash, is_wanted);
        let is_found = self.shard(hash).lock().find(hash, |entry| search.matches(entry)).is_some();
        if is_found { search.upgraded.pop() } else { None }
    }

    fn intern(&self, hash: u64, is_wanted: &dyn Fn(&Subject) -> bool, make: &dyn Fn() -> Subject) -> Subject {
        let mut search = Search::new(hash, is_wanted);
        let mut shard = self.shard(hash).lock();
        match shard.entry(hash, |entry| search.matches(entry), |entry| entry.hash) {
            hash_table::Entry::Occupied(_) => search.upgraded.pop().expect("a match was upgraded"),
            hash_table::Entry::Vacant(vacant) => {
                let subject = make();
                vacant.insert(Entry { hash, id: subject.id(), interned: Arc::downgrade(&subject.0) });
                subject
            }
        }
    }

    fn remove(&self, hash: u64, id: NodeId) {
        let mut shard = self.shard(hash).lock();
        if let Ok(entry) = shard.find_entry(hash, |entry| entry.id == id) {
            entry.remove();
        }
        if shard.capacity() > 64 && shard.len() * 4 < shard.capacity() {
            shard.shrink_to_fit(|entry| entry.hash);
        }
        drop(shard);
        // Last, or the id could be in the table twice.
        self.ids.give_back(id);
    }

    fn shard(&self, hash: u64) -> &Shard {
        // Bits that the hash table itself does not look at first.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

/// Looks for a key among entries.
///
/// Declared before the shard's lock is taken, so that the references it upgraded are dropped after the lock is released: if
/// one of them turns out to be the last, dropping it takes the same lock.
struct Search<'a> {
    hash: u64,
    is_wanted: &'a dyn Fn(&Subject) -> bool,
    /// Every key compared so far. If the wanted one was found, it is the last.
    upgraded: SmallVec<[Subject; 1]>,
}

impl<'a> Search<'a> {
    fn new(hash: u64, is_wanted: &'a dyn Fn(&Subject) -> bool) -> Self {
        Self { hash, is_wanted, upgraded: SmallVec::new() }
    }

    fn matches(&mut self, entry: &Entry) -> bool {
        if entry.hash != self.hash {
            return false;
        }
        let Some(interned) = entry.interned.upgrade() else { return false };
        // Stored before it is compared: comparing is foreign code and may panic.
        self.upgraded.push(Subject(interned));
        self.upgraded.last().is_some_and(self.is_wanted)
    }
}

fn hash_key<F: NodeFamily>(key: &F::Key) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one((TypeId::of::<F>(), key))
}
