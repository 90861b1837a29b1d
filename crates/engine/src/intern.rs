//! Small ids for keys, shared by an engine and its forks.
//!
//! A key has the same id for as long as anything refers to it: the world of any engine of the family, a running query or
//! a [`Subject`]. When the last reference goes, the key is forgotten and its id used again.

use std::any::{Any, TypeId};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use hashbrown::hash_table;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::subject::Role;
use crate::typemap::TypeMap;
use crate::{RootId, Subject};

/// Names a key of any family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// A key that has an id.
pub(crate) struct Interned<R: Role> {
    id: NodeId,
    hash: u64,
    key: R::Key,
    home: Arc<Table<R>>,
}

impl<R: Role> Interned<R> {
    /// Two counters of the `Arc`, and the entry in the table at its usual load.
    pub(crate) const FOOTPRINT: usize = size_of::<Self>() + 16 + 2 * size_of::<Entry<R>>();

    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    pub(crate) fn key(&self) -> &R::Key {
        &self.key
    }
}

impl<R: Role> Drop for Interned<R> {
    fn drop(&mut self) {
        self.home.forget(self.hash, self.id);
    }
}

/// The keys of an engine and its forks.
#[derive(Default)]
pub(crate) struct Registry {
    /// An `Arc<Table<R>>` for each role `R`.
    tables: TypeMap<Box<dyn Any + Send + Sync>>,
    ids: Arc<Ids>,
    roots: AtomicU64,
}

impl Registry {
    /// The subject for a key, new or known.
    pub(crate) fn intern<R: Role>(&self, key: &R::Key) -> Subject {
        Subject(self.interned::<R>(key))
    }

    /// The subject for a key, new or known, by its type.
    pub(crate) fn interned<R: Role>(&self, key: &R::Key) -> Arc<Interned<R>> {
        Table::intern(self.table::<R>(), key)
    }

    /// The subject for a key that something refers to.
    pub(crate) fn find<R: Role>(&self, key: &R::Key) -> Option<Subject> {
        Some(Subject(self.table::<R>().find(key)?))
    }

    /// A root id never given out before.
    pub(crate) fn next_root(&self) -> RootId {
        RootId(self.roots.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Keys that something refers to.
    #[cfg(test)]
    pub(crate) fn live(&self) -> usize {
        let pool = self.ids.0.lock();
        pool.next as usize - pool.free.len()
    }

    fn table<R: Role>(&self) -> &Arc<Table<R>> {
        let table =
            self.tables.get_or_insert_with(TypeId::of::<R>(), || Box::new(Table::<R>::new(&self.ids)));
        table.downcast_ref().expect("tables are kept by role")
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

const SHARDS: usize = 16;

/// The keys of one role.
struct Table<R: Role> {
    shards: [Mutex<HashTable<Entry<R>>>; SHARDS],
    ids: Arc<Ids>,
}

/// A key something refers to, or one that is about to be forgotten.
struct Entry<R: Role> {
    hash: u64,
    id: NodeId,
    interned: Weak<Interned<R>>,
}

impl<R: Role> Table<R> {
    fn new(ids: &Arc<Ids>) -> Arc<Self> {
        Arc::new(Self { shards: [const { Mutex::new(HashTable::new()) }; SHARDS], ids: Arc::clone(ids) })
    }

    fn find(&self, key: &R::Key) -> Option<Arc<Interned<R>>> {
        let hash = hash_of(key);
        let mut search = Search::new(hash, key);
        let found = self.shard(hash).lock().find(hash, |entry| search.matches(entry)).is_some();
        if found { search.held.pop() } else { None }
    }

    fn intern(table: &Arc<Self>, key: &R::Key) -> Arc<Interned<R>> {
        let hash = hash_of(key);
        let mut search = Search::new(hash, key);
        let mut shard = table.shard(hash).lock();
        match shard.entry(hash, |entry| search.matches(entry), |entry| entry.hash) {
            hash_table::Entry::Occupied(_) => search.held.pop().expect("a match is held"),
            hash_table::Entry::Vacant(place) => {
                let key = key.clone();
                let id = table.ids.take();
                let interned = Arc::new(Interned { id, hash, key, home: Arc::clone(table) });
                place.insert(Entry { hash, id, interned: Arc::downgrade(&interned) });
                interned
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

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Entry<R>>> {
        // Bits that the hash table itself does not look at first.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

/// Looks for a key among entries. Declared before the lock is taken, so that whatever it got hold of is let go after the
/// lock is released: the last holder of a key takes that lock to forget it.
struct Search<'a, R: Role> {
    hash: u64,
    key: &'a R::Key,
    /// Every key with this hash so far; the one looked for is the last.
    held: SmallVec<[Arc<Interned<R>>; 1]>,
}

impl<'a, R: Role> Search<'a, R> {
    fn new(hash: u64, key: &'a R::Key) -> Self {
        Self { hash, key, held: SmallVec::new() }
    }

    fn matches(&mut self, entry: &Entry<R>) -> bool {
        if entry.hash != self.hash {
            return false;
        }
        let Some(interned) = entry.interned.upgrade() else { return false };
        // Kept before it is compared: the comparison is not ours and may panic.
        self.held.push(interned);
        self.held.last().is_some_and(|interned| interned.key == *self.key)
    }
}

fn hash_of(key: &impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(key)
}
