//! The engine's front door.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::simple::{self, Entry, State};
use crate::{Batch, Dependent, Input, Query, QueryError, Read, ReadKind, Root, RootId, Stats, Subject};

/// Counts the batches that changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The number of batches so far that changed something.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What a batch did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The revision the batch led to; the one before if it changed nothing.
    pub revision: Revision,
    /// Exactly the watched roots whose value is no longer what it was, ascending.
    pub changed: Vec<RootId>,
}

/// A world of inputs and the queries over it. Clones are handles to the same world; see [`Engine::fork`] for a copy.
#[derive(Clone, Default)]
pub struct Engine {
    pub(crate) state: Arc<Mutex<RefCell<State>>>,
}

impl Engine {
    /// An engine without inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the changes of a batch together and brings every watched query up to date.
    pub fn apply(&self, batch: Batch) -> Applied {
        let state = self.state.lock();
        let mut changed = false;
        for changes in batch.changes.into_values() {
            changed |= changes.apply(&mut state.borrow_mut());
        }
        if !changed {
            return Applied { revision: state.borrow().revision, changed: Vec::new() };
        }
        state.borrow_mut().revision.0 += 1;
        let changed = simple::refresh(&state);
        Applied { revision: state.borrow().revision, changed }
    }

    /// The revision the world is at.
    pub fn revision(&self) -> Revision {
        self.state.lock().borrow().revision
    }

    /// The value of a query now.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        simple::evaluate::<Q>(&self.state.lock(), key, None)
    }

    /// The value of an input now, read from outside any query.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.state.lock().borrow().value::<I>(key)
    }

    /// The keys in a bucket now, sorted, read from outside any query.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.state.lock().borrow().members::<I>(index)
    }

    /// All keys of an input family now, sorted, read from outside any query.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.state.lock().borrow().keys::<I>()
    }

    /// Keeps a query up to date, evaluating it if need be, until the guard is dropped.
    ///
    /// Guards for the same query share one [`RootId`].
    pub fn watch<Q: Query>(&self, key: Q::Key) -> Root<Q> {
        let state = self.state.lock();
        // The root's value is asked for where it is used; evaluating here makes later changes comparable.
        let _ = simple::evaluate::<Q>(&state, &key, None);
        let id = state.borrow_mut().watch::<Q>(&key);
        Root::new(self.clone(), id, key)
    }

    /// Watches many queries of one family; cheaper than one by one, and evaluated in parallel.
    pub fn watch_all<Q: Query>(&self, keys: impl IntoIterator<Item = Q::Key>) -> Vec<Root<Q>> {
        keys.into_iter().map(|key| self.watch::<Q>(key)).collect()
    }

    /// Everything the value of a query rests on: its own reads and, through other queries, theirs, down to inputs.
    ///
    /// Breadth first in the order the queries made their reads, each subject once.
    pub fn reads_of<Q: Query>(&self, key: &Q::Key) -> Vec<Read> {
        let state = self.state.lock();
        let _ = simple::evaluate::<Q>(&state, key, None);
        let state = state.borrow();
        let mut reads: Vec<Read> = Vec::new();
        let mut queue = VecDeque::from([(state.memos.get(&simple::memo_key::<Q>(key)).cloned(), None)]);
        while let Some((entry, via)) = queue.pop_front() {
            let depth = via.map_or(1, |at: usize| reads[at].depth + 1);
            for (subject, kind) in entry.iter().flat_map(|entry| &entry.reads) {
                if reads.iter().any(|read| read.subject.0.same(subject.0.as_ref())) {
                    continue;
                }
                reads.push(Read { subject: subject.clone(), kind: *kind, depth, via });
                if *kind == ReadKind::Query {
                    queue.push_back((find(&state, subject), Some(reads.len() - 1)));
                }
            }
        }
        reads
    }

    /// Every memoised query that rests on an input, or on the presence of its key in a bucket, nearest first.
    pub fn dependents_of<I: Input>(&self, key: &I::Key) -> Vec<Dependent> {
        let state = self.state.lock();
        let state = state.borrow();
        let mut seeds = vec![(simple::input_subject::<I>(key), true), (simple::keys_subject::<I>(), false)];
        if let Some(value) = state.value::<I>(key) {
            seeds.extend(
                I::index(key, &value).iter().map(|index| (simple::bucket_subject::<I>(index), false)),
            );
        }
        let mut found: Vec<Dependent> = Vec::new();
        let mut queue: VecDeque<_> = seeds.into_iter().map(|(subject, value)| (subject, value, 1)).collect();
        while let Some((subject, value, depth)) = queue.pop_front() {
            for (memo_key, entry) in &state.memos {
                if !entry.reads.iter().any(|(read, _)| read.0.same(subject.0.as_ref())) {
                    continue;
                }
                if found.iter().any(|known| known.subject.0.same(entry.subject.0.as_ref())) {
                    continue;
                }
                let root = state.roots.get(memo_key).map(|root| root.id);
                found.push(Dependent { subject: entry.subject.clone(), root, depth, value });
                queue.push_back((entry.subject.clone(), value, depth + 1));
            }
        }
        found
    }

    /// A second world that starts as this one; what is applied to either never shows in the other.
    ///
    /// Roots watched here are watched there too, under the same ids.
    pub fn fork(&self) -> Self {
        let fork = self.state.lock().borrow().fork();
        Self { state: Arc::new(Mutex::new(RefCell::new(fork))) }
    }

    /// Size and work so far.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        let state = state.borrow();
        Stats {
            inputs: state.input_count(),
            memos: state.memos.len(),
            roots: state.roots.len(),
            edges: state.memos.values().map(|entry| entry.reads.len()).sum(),
            ..state.stats
        }
    }
}

fn find(state: &State, subject: &Subject) -> Option<Arc<Entry>> {
    state.memos.values().find(|entry| entry.subject.0.same(subject.0.as_ref())).cloned()
}
