//! The state behind one lock: inputs, memos, roots.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ctx::{Aborted, Frame};
use crate::subject::{All, Bucket, Memo, Name, Named, Value};
use crate::{Ctx, Input, Query, QueryError, ReadKind, Revision, RootId, Stats, Subject};

pub(crate) type Erased = Arc<dyn Any + Send + Sync>;
pub(crate) type MemoKey = (TypeId, String);

pub(crate) struct Entry {
    pub(crate) subject: Subject,
    pub(crate) outcome: Result<Erased, QueryError>,
    pub(crate) reads: Vec<(Subject, ReadKind)>,
}

pub(crate) struct Watched {
    pub(crate) id: RootId,
    pub(crate) guards: usize,
    check: fn(&RefCell<State>, &Subject, &Result<Erased, QueryError>) -> bool,
}

impl Clone for Watched {
    fn clone(&self) -> Self {
        Self { id: self.id, guards: self.guards, check: self.check }
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    inputs: FxHashMap<TypeId, Box<dyn Table>>,
    pub(crate) memos: BTreeMap<MemoKey, Arc<Entry>>,
    pub(crate) roots: BTreeMap<MemoKey, Watched>,
    pub(crate) next_root: u64,
    pub(crate) stats: Stats,
}

pub(crate) trait Table: Any + Send {
    fn fork(&self) -> Box<dyn Table>;
    fn len(&self) -> usize;
}

struct Inputs<I: Input> {
    values: BTreeMap<I::Key, Arc<I::Value>>,
    buckets: BTreeMap<I::Index, BTreeSet<I::Key>>,
}

impl<I: Input> Default for Inputs<I> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), buckets: BTreeMap::new() }
    }
}

impl<I: Input> Table for Inputs<I> {
    fn fork(&self) -> Box<dyn Table> {
        Box::new(Self { values: self.values.clone(), buckets: self.buckets.clone() })
    }
    fn len(&self) -> usize {
        self.values.len()
    }
}

impl State {
    pub(crate) fn fork(&self) -> Self {
        Self {
            revision: self.revision,
            inputs: self.inputs.iter().map(|(id, table)| (*id, table.fork())).collect(),
            memos: self.memos.clone(),
            roots: self.roots.clone(),
            next_root: self.next_root,
            stats: Stats::default(),
        }
    }

    pub(crate) fn input_count(&self) -> usize {
        self.inputs.values().map(|table| table.len()).sum()
    }

    fn table<I: Input>(&self) -> Option<&Inputs<I>> {
        let table: &dyn Any = self.inputs.get(&TypeId::of::<I>())?.as_ref();
        table.downcast_ref()
    }

    pub(crate) fn set<I: Input>(&mut self, key: I::Key, value: Option<Arc<I::Value>>) -> bool {
        let table: &mut dyn Any =
            self.inputs.entry(TypeId::of::<I>()).or_insert_with(|| Box::new(Inputs::<I>::default())).as_mut();
        let table = table.downcast_mut::<Inputs<I>>().expect("keyed by the type id of I");
        if table.values.get(&key).map(AsRef::as_ref) == value.as_deref() {
            return false;
        }
        if let Some(old) = table.values.remove(&key) {
            for index in I::index(&key, &old) {
                if let Some(bucket) = table.buckets.get_mut(&index) {
                    bucket.remove(&key);
                }
            }
        }
        if let Some(value) = value {
            for index in I::index(&key, &value) {
                table.buckets.entry(index).or_default().insert(key.clone());
            }
            table.values.insert(key, value);
        }
        true
    }

    pub(crate) fn value<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.table::<I>()?.values.get(key).cloned()
    }

    pub(crate) fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        let bucket = self.table::<I>().and_then(|table| table.buckets.get(index));
        bucket.into_iter().flatten().cloned().collect()
    }

    pub(crate) fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.table::<I>().into_iter().flat_map(|table| table.values.keys()).cloned().collect()
    }

    pub(crate) fn watch<Q: Query>(&mut self, key: &Q::Key) -> RootId {
        let next = &mut self.next_root;
        let root = self.roots.entry(memo_key::<Q>(key)).or_insert_with(|| {
            *next += 1;
            Watched { id: RootId(*next), guards: 0, check: changed::<Q> }
        });
        root.guards += 1;
        root.id
    }

    pub(crate) fn unwatch<Q: Query>(&mut self, key: &Q::Key) {
        let key = memo_key::<Q>(key);
        let Some(root) = self.roots.get_mut(&key) else { return };
        root.guards -= 1;
        if root.guards == 0 {
            self.roots.remove(&key);
            self.memos.remove(&key);
        }
    }
}

/// Runs every watched query again and says which gave something new.
pub(crate) fn refresh(state: &RefCell<State>) -> Vec<RootId> {
    let old = std::mem::take(&mut state.borrow_mut().memos);
    let roots = state.borrow().roots.clone();
    let mut changed: Vec<RootId> = Vec::new();
    for (key, root) in &roots {
        let Some(entry) = old.get(key) else { continue };
        if (root.check)(state, &entry.subject, &entry.outcome) {
            changed.push(root.id);
        }
    }
    changed.sort();
    changed
}

fn changed<Q: Query>(state: &RefCell<State>, subject: &Subject, old: &Result<Erased, QueryError>) -> bool {
    let key = subject.query::<Q>().expect("roots are kept by family");
    match (old, evaluate::<Q>(state, key, None)) {
        (Ok(old), Ok(new)) => !Q::unchanged(&typed::<Q>(old), &new),
        (Err(old), Err(new)) => *old != new,
        _ => true,
    }
}

pub(crate) fn typed<Q: Query>(value: &Erased) -> Arc<Q::Value> {
    Arc::clone(value).downcast().expect("memos are kept by family")
}

pub(crate) fn memo_key<Q: Query>(key: &Q::Key) -> MemoKey {
    (TypeId::of::<Q>(), format!("{key:?}"))
}

pub(crate) fn evaluate<Q: Query>(
    state: &RefCell<State>,
    key: &Q::Key,
    parent: Option<&Frame<'_>>,
) -> Result<Arc<Q::Value>, QueryError> {
    let memo_key = memo_key::<Q>(key);
    let found = state.borrow().memos.get(&memo_key).map(|entry| entry.outcome.clone());
    if let Some(outcome) = found {
        state.borrow_mut().stats.hits += 1;
        return outcome.map(|value| typed::<Q>(&value));
    }
    let name: Arc<dyn Named> = Arc::new(Name::<Memo<Q>>(key.clone()));
    if let Some(path) = parent.and_then(|parent| parent.path_from(name.as_ref())) {
        return Err(QueryError::Cycle { path });
    }
    let frame = Frame::new(Subject(name), parent);
    let ctx = Ctx { state, frame: &frame };
    state.borrow_mut().stats.evaluations += 1;
    let outcome = catch_unwind(AssertUnwindSafe(|| Arc::new(Q::run(&ctx, key)))).map_err(|payload| {
        match payload.downcast::<Aborted>() {
            Ok(aborted) => aborted.0,
            Err(payload) => {
                QueryError::Panicked { query: Q::NAME, key: format!("{key:?}"), message: message(&*payload) }
            }
        }
    });
    let entry = Entry {
        subject: frame.subject.clone(),
        outcome: outcome.clone().map(|value| value as Erased),
        reads: frame.reads.into_inner(),
    };
    state.borrow_mut().memos.insert(memo_key, Arc::new(entry));
    outcome
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

pub(crate) fn input_subject<I: Input>(key: &I::Key) -> Subject {
    Subject(Arc::new(Name::<Value<I>>(key.clone())))
}

pub(crate) fn bucket_subject<I: Input>(index: &I::Index) -> Subject {
    Subject(Arc::new(Name::<Bucket<I>>(index.clone())))
}

pub(crate) fn keys_subject<I: Input>() -> Subject {
    Subject(Arc::new(Name::<All<I>>(())))
}
