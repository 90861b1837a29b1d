//! The context of a running query: its only access to inputs and other queries.
//!
//! Every answer is recorded as a read of the running query, including answers that found nothing. The recorded reads are
//! what the engine knows about dependencies, so a query that learnt something from elsewhere would not be evaluated again
//! when that changes.
//!
//! There is a context for each layer. [`EagerCtx`] gives access to inputs, buckets and eager queries; [`Ctx`] derefs to it and
//! adds lazy queries. The types keep the eager layer closed: an eager query cannot name a lazy one.

use std::cell::OnceCell;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::Arc;

use super::eval::Requester;
use super::frame::Frame;
use super::query::{EagerQuery, Query, QueryNode};
use super::stage::Stage;
use crate::ids::NodeId;
use crate::node::{
    AllKeysNode, BucketNode, Erased, Failure, InputNode, NodeFamily, Outcome, Subject, downcast,
};
use crate::{Input, QueryError};

/// The context of a [`Query`]. Inputs and buckets are read through [`EagerCtx`], to which it derefs.
pub struct Ctx<'a>(EagerCtx<'a>);

/// The context of an [`EagerQuery`]: inputs, buckets and other eager queries.
///
/// Functions that need nothing else take this context, so that queries of both layers can call them.
pub struct EagerCtx<'a> {
    stage: &'a Stage,
    frame: &'a Frame<'a>,
    /// The cycle that the running query turned out to be a member of.
    cycle: OnceCell<Arc<Failure>>,
}

impl<'a> Deref for Ctx<'a> {
    type Target = EagerCtx<'a>;

    fn deref(&self) -> &EagerCtx<'a> {
        &self.0
    }
}

impl<'a> Ctx<'a> {
    /// The value of another query. If that query failed, the running query ends here with the same error.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Arc<Q::Value> {
        self.0.resolve_or_abort::<Q>(key)
    }

    /// The value of another query, or why it has none, for a caller that can do without it.
    ///
    /// A query that is itself a member of a cycle never sees that cycle's error: it ends with it.
    pub fn try_get<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        self.0.try_resolve::<Q>(key)
    }

    /// The values of another query for many keys, in their order: [`Ctx::get`] of each, evaluated in parallel.
    pub fn get_all<Q: Query>(&self, keys: &[Q::Key]) -> Vec<Arc<Q::Value>> {
        self.0.resolve_all::<Q>(keys)
    }

    pub(crate) fn new(stage: &'a Stage, frame: &'a Frame<'a>) -> Self {
        Self(EagerCtx { stage, frame, cycle: OnceCell::new() })
    }

    /// The cycle that the query is a member of, even if the query caught its error.
    pub(crate) fn into_cycle(self) -> Option<Arc<Failure>> {
        self.0.cycle.into_inner()
    }
}

impl EagerCtx<'_> {
    /// The value of an input, or `None` if it is not set. Both are recorded.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.stage.input::<I>(self.record::<InputNode<I>>(key))
    }

    /// The keys of the inputs in a bucket, sorted. A member whose value changes does not make the reader dirty.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.stage.sorted_keys::<I>(self.record::<BucketNode<I>>(index))
    }

    /// All keys of an input family, sorted.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.stage.sorted_keys::<I>(self.record::<AllKeysNode<I>>(&()))
    }

    /// The value of another eager query; see [`Ctx::get`].
    pub fn get<Q: EagerQuery>(&self, key: &<Q as EagerQuery>::Key) -> Arc<<Q as EagerQuery>::Value> {
        self.resolve_or_abort::<Q>(key)
    }

    /// The value of another eager query, or why it has none; see [`Ctx::try_get`].
    pub fn try_get<Q: EagerQuery>(
        &self,
        key: &<Q as EagerQuery>::Key,
    ) -> Result<Arc<<Q as EagerQuery>::Value>, QueryError> {
        self.try_resolve::<Q>(key)
    }

    /// The values of another eager query for many keys; see [`Ctx::get_all`].
    pub fn get_all<Q: EagerQuery>(
        &self,
        keys: &[<Q as EagerQuery>::Key],
    ) -> Vec<Arc<<Q as EagerQuery>::Value>> {
        self.resolve_all::<Q>(keys)
    }

    fn resolve_or_abort<Q: Query>(&self, key: &Q::Key) -> Arc<Q::Value> {
        self.resolve_key::<Q>(key).unwrap_or_else(abort)
    }

    fn try_resolve<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, QueryError> {
        self.resolve_key::<Q>(key).map_err(|failure| {
            if failure.cycle_with(self.frame.id()).is_some() {
                return abort(failure);
            }
            failure.error.clone()
        })
    }

    fn resolve_all<Q: Query>(&self, keys: &[Q::Key]) -> Vec<Arc<Q::Value>> {
        let queries: Vec<Subject> = keys.iter().map(|key| self.subject::<QueryNode<Q>>(key)).collect();
        let resolve = |query: &Subject| self.resolve(query.clone()).map_or_else(abort, downcast);
        self.stage.with_helpers(&queries, self.frame.spawner, || queries.iter().map(resolve).collect())
    }

    fn record<F: NodeFamily>(&self, key: &F::Key) -> NodeId {
        let subject = self.subject::<F>(key);
        let id = subject.id();
        self.frame.record(subject);
        id
    }

    /// The subject of a key. The one that is expected next is tried first: comparing one key is cheaper than interning it.
    fn subject<F: NodeFamily>(&self, key: &F::Key) -> Subject {
        let expected = self.frame.expected_read().and_then(|id| self.stage.graph.node(id));
        let expected = expected.filter(|node| node.subject.key_in::<F>() == Some(key));
        let subject = match expected {
            Some(node) => node.subject.clone(),
            None => self.stage.interner.intern::<F>(key),
        };
        self.frame.update_expected(subject.id());
        subject
    }

    fn resolve_key<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, Arc<Failure>> {
        self.resolve(self.subject::<QueryNode<Q>>(key)).map(downcast)
    }

    fn resolve(&self, query: Subject) -> Result<Erased, Arc<Failure>> {
        let resolved = self.stage.resolve(&query, Requester::Query(self.frame));
        self.frame.add_hits(u64::from(resolved.hit));
        // Recorded after it is resolved: in a cycle, the reads so far must not contain the one that closes it.
        self.frame.record(query);
        match resolved.outcome {
            Outcome::Value(value) => Ok(value),
            Outcome::Failure(failure) => {
                if failure.cycle_with(self.frame.id()).is_some() {
                    // The first cycle ends the query, so a second one is not recorded.
                    let _ = self.cycle.set(Arc::clone(&failure));
                }
                Err(failure)
            }
        }
    }
}

/// Ends the running query with the failure of one that it needs.
fn abort<V>(failure: Arc<Failure>) -> V {
    resume_unwind(Box::new(Aborted(failure)))
}

/// Unwinding payload of a query that ends because one that it needs has failed.
pub(crate) struct Aborted(pub(crate) Arc<Failure>);
