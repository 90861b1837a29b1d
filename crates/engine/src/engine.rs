//! The public handles: [`Engine`], and [`Snapshot`] for reading one revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::Core;
use crate::evaluation::{QueryNode, Stage};
use crate::evict::IdleMemos;
use crate::graph::Graph;
use crate::options::Options;
use crate::provenance;
use crate::{Batch, Dependent, Input, Query, QueryError, Read, Revision, Root, RootId, Stats};

/// The result of applying a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The revision after the batch. The previous one if the batch changed nothing.
    pub revision: Revision,
    /// Exactly the watched roots that have a new value, ascending.
    pub changed: Vec<RootId>,
}

/// Inputs, and the queries derived from them.
///
/// Clones are handles to the same engine; see [`Engine::fork`] for a copy. An engine must not be used from inside a query:
/// queries read through [`Ctx`](crate::Ctx) only.
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

    /// An engine without inputs, with these options.
    pub fn with_options(options: Options) -> Self {
        let idle = IdleMemos::new(options.idle);
        Self { core: Arc::new(Core::new(options, Arc::default(), Graph::default(), idle)) }
    }

    /// Applies the changes of a batch together and brings every watched query up to date.
    ///
    /// One batch is applied at a time. Readers see the previous revision until the whole batch is done.
    pub fn apply(&self, batch: Batch) -> Applied {
        self.core.apply(batch)
    }

    /// The current revision, unaffected by batches applied later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { core: Arc::clone(&self.core), stage: self.core.current() }
    }

    /// The current revision.
    pub fn revision(&self) -> Revision {
        self.snapshot().revision()
    }

    /// The current value of a query.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        self.snapshot().get::<Q>(key)
    }

    /// The current value of an input, read from outside any query.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.snapshot().read::<I>(key)
    }

    /// The keys that are in a bucket, sorted, read from outside any query.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.snapshot().members::<I>(index)
    }

    /// All keys of an input family now, sorted, read from outside any query.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.snapshot().keys::<I>()
    }

    /// Evaluates a query and keeps it up to date until the guard is dropped.
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
            keys.into_iter().map(|key| self.core.interner.intern::<QueryNode<Q>>(&key)).collect();
        let ids = self.core.watch(&queries);
        queries.into_iter().zip(ids).map(|(query, id)| Root::new(&self.core, id, query)).collect()
    }

    /// Everything that the value of a query depends on; see [`Snapshot::provenance`].
    pub fn provenance<Q: Query>(&self, key: &Q::Key) -> Vec<Read> {
        self.snapshot().provenance::<Q>(key)
    }

    /// Every memoised query that depends on an input; see [`Snapshot::dependents`].
    pub fn dependents<I: Input>(&self, key: &I::Key) -> Vec<Dependent> {
        self.core.try_clean_up();
        self.snapshot().dependents::<I>(key)
    }

    /// The size of the engine, and the work it has done so far.
    pub fn stats(&self) -> Stats {
        self.core.try_clean_up();
        let totals = self.core.current().graph.totals;
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
            bytes: totals.bytes + totals.edges * crate::draft::EDGE_BYTES,
        }
    }

    /// Times each query family has run, by name.
    pub fn evaluations(&self) -> BTreeMap<&'static str, u64> {
        self.core.counters.evaluations()
    }
}

/// One revision of an engine.
#[derive(Clone)]
pub struct Snapshot {
    core: Arc<Core>,
    pub(crate) stage: Arc<Stage>,
}

impl Snapshot {
    /// The revision this is a snapshot of.
    pub fn revision(&self) -> Revision {
        self.stage.graph.revision
    }

    /// The value of a query, from its memo or evaluated now.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        let resolved = self.stage.get(&self.stage.interner.intern::<QueryNode<Q>>(key));
        if resolved.hit {
            self.stage.counters.add_hits(1);
        } else {
            self.core.clean_up_if_many_finished(&self.stage);
        }
        resolved.outcome.into_result()
    }

    /// The values of a query for many keys, in their order; as [`Snapshot::get`] of each, but evaluated in parallel.
    pub fn get_all<Q: Query>(
        &self,
        keys: impl IntoIterator<Item = Q::Key>,
    ) -> Result<Vec<Arc<Q::Value>>, QueryError> {
        let intern = |key| self.stage.interner.intern::<QueryNode<Q>>(&key);
        let queries: Vec<_> = keys.into_iter().map(intern).collect();
        let resolved = self.stage.get_all(&queries);
        let hits = resolved.iter().filter(|resolved| resolved.hit).count();
        self.stage.counters.add_hits(hits as u64);
        self.core.clean_up_if_many_finished(&self.stage);
        resolved.into_iter().map(|resolved| resolved.outcome.into_result()).collect()
    }

    /// Everything that the value of a query depends on: its own reads and those of the queries among them, down to inputs.
    ///
    /// Breadth first, in the order in which the queries read, each subject once. A member of a cycle depends on the reads of
    /// all members.
    pub fn provenance<Q: Query>(&self, key: &Q::Key) -> Vec<Read> {
        provenance::provenance::<Q>(&self.stage, key)
    }

    /// Every memoised query that depends on an input, or on the presence of its key in a bucket, nearest first.
    ///
    /// Removing the input may change these queries. Changing its value may change those with `value == true`, and the others
    /// only if the input changes buckets.
    pub fn dependents<I: Input>(&self, key: &I::Key) -> Vec<Dependent> {
        provenance::dependents::<I>(&self.stage, key)
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
