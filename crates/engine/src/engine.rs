//! The engine's front door.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use crate::core::Core;
use crate::evict::Idle;
use crate::stage::Stage;
use crate::subject::Memo;
use crate::world::World;
use crate::{Batch, Dependent, Input, Query, QueryError, Read, Root, RootId, Stats};

/// Counts the batches that changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The number of batches so far that changed something.
    pub fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
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

/// How an engine uses the machine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that evaluate together, the caller's included.
    pub threads: usize,
    /// Results that nobody watches and that are kept in case they are asked for again.
    pub idle: usize,
}

impl Default for Options {
    /// As many threads as the machine runs at once, and a thousand idle results.
    fn default() -> Self {
        Self { threads: thread::available_parallelism().map_or(1, usize::from), idle: 1000 }
    }
}

/// A world of inputs and the queries over it.
///
/// Clones are handles to the same world; see [`Engine::fork`] for a copy. An engine must not be used from inside a
/// query: queries see the world through [`Ctx`](crate::Ctx) only.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

impl Default for Engine {
    fn default() -> Self {
        Self::with_options(Options::default())
    }
}

impl Engine {
    /// An engine without inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine without inputs that uses the machine in its own way.
    pub fn with_options(options: Options) -> Self {
        Self { core: Arc::new(Core::new(options, Arc::default(), World::default(), Idle::new(options.idle))) }
    }

    /// Makes the changes of a batch together and brings every watched query up to date.
    ///
    /// One batch is applied at a time. Readers keep seeing the revision before until the whole batch is done.
    pub fn apply(&self, batch: Batch) -> Applied {
        self.core.apply(batch)
    }

    /// The world as it is now, unaffected by what is applied later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { core: Arc::clone(&self.core), stage: self.core.current() }
    }

    /// The revision the world is at.
    pub fn revision(&self) -> Revision {
        self.snapshot().revision()
    }

    /// The value of a query now.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        self.snapshot().get::<Q>(key)
    }

    /// The value of an input now, read from outside any query.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.snapshot().read::<I>(key)
    }

    /// The keys in a bucket now, sorted, read from outside any query.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.snapshot().members::<I>(index)
    }

    /// All keys of an input family now, sorted, read from outside any query.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.snapshot().keys::<I>()
    }

    /// Keeps a query up to date, evaluating it if need be, until the guard is dropped.
    ///
    /// Guards for the same query share one [`RootId`].
    pub fn watch<Q: Query>(&self, key: Q::Key) -> Root<Q> {
        self.watch_all([key]).pop().expect("one root for one key")
    }

    /// Watches many queries of one family; cheaper than one by one, and evaluated in parallel.
    ///
    /// A batch that is applied meanwhile may fall between two of them: each is up to date, and reported from then on, from
    /// the moment it is watched.
    pub fn watch_all<Q: Query>(&self, keys: impl IntoIterator<Item = Q::Key>) -> Vec<Root<Q>> {
        let queries: Vec<_> =
            keys.into_iter().map(|key| self.core.registry.intern::<Memo<Q>>(&key)).collect();
        let ids = self.core.watch(&queries);
        queries.into_iter().zip(ids).map(|(query, id)| Root::new(&self.core, id, query)).collect()
    }

    /// Everything the value of a query rests on; see [`Snapshot::reads_of`].
    pub fn reads_of<Q: Query>(&self, key: &Q::Key) -> Vec<Read> {
        self.snapshot().reads_of::<Q>(key)
    }

    /// Every memoised query that rests on an input; see [`Snapshot::dependents_of`].
    pub fn dependents_of<I: Input>(&self, key: &I::Key) -> Vec<Dependent> {
        self.core.try_tidy();
        self.snapshot().dependents_of::<I>(key)
    }

    /// Size and work so far.
    pub fn stats(&self) -> Stats {
        self.core.try_tidy();
        let totals = self.core.current().world.totals;
        let counters = &self.core.counters;
        Stats {
            inputs: totals.inputs,
            memos: totals.memos,
            roots: totals.roots,
            edges: totals.edges,
            marks: counters.marks(),
            evaluations: counters.evaluations().values().sum(),
            validations: counters.validations(),
            hits: counters.hits(),
            bytes: totals.bytes + totals.edges * crate::graph::EDGE_BYTES,
        }
    }

    /// Times each query family has run, by name.
    pub fn evaluations(&self) -> BTreeMap<&'static str, u64> {
        self.core.counters.evaluations()
    }
}

/// The world at one revision; whatever is asked of it is answered as of then.
#[derive(Clone)]
pub struct Snapshot {
    core: Arc<Core>,
    pub(crate) stage: Arc<Stage>,
}

impl Snapshot {
    /// The revision this is a snapshot of.
    pub fn revision(&self) -> Revision {
        self.stage.world.revision
    }

    /// The value of a query, evaluated if need be.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        let resolved = self.stage.get(&self.stage.registry.intern::<Memo<Q>>(key));
        if resolved.hit {
            self.stage.counters.add_hits(1);
        } else {
            self.core.tidy_if_many(&self.stage);
        }
        resolved.outcome.into_result()
    }

    /// The values of a query for many keys, in their order; as [`Snapshot::get`] of each, but evaluated in parallel.
    pub fn get_all<Q: Query>(
        &self,
        keys: impl IntoIterator<Item = Q::Key>,
    ) -> Result<Vec<Arc<Q::Value>>, QueryError> {
        let intern = |key| self.stage.registry.intern::<Memo<Q>>(&key);
        let queries: Vec<_> = keys.into_iter().map(intern).collect();
        let resolved = self.stage.get_all(&queries);
        let hits = resolved.iter().filter(|resolved| resolved.hit).count();
        self.stage.counters.add_hits(hits as u64);
        self.core.tidy_if_many(&self.stage);
        resolved.into_iter().map(|resolved| resolved.outcome.into_result()).collect()
    }

    /// The value of an input, read from outside any query.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.stage.read::<I>(key)
    }

    /// The keys in a bucket, sorted, read from outside any query.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.stage.members::<I>(index)
    }

    /// All keys of an input family, sorted, read from outside any query.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.stage.keys::<I>()
    }
}
