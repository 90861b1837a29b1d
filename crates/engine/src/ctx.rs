//! What a query sees of the world.

use std::cell::OnceCell;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::Arc;

use crate::eval::Asker;
use crate::frame::Frame;
use crate::intern::NodeId;
use crate::stage::Stage;
use crate::subject::{All, Bucket, Memo, Role, Value};
use crate::value::{Erased, Failure, Outcome, typed};
use crate::{EagerQuery, Input, Query, QueryError, Subject};

/// A query's only window on the world; every answer it gives is recorded as a read of the query that asked.
///
/// Inputs and buckets are read through [`EagerCtx`], which this derefs to.
pub struct Ctx<'a>(EagerCtx<'a>);

/// What an [`EagerQuery`] sees of the world: inputs, buckets and other eager queries. Functions that read nothing else take
/// this, and can be called from queries of both kinds.
pub struct EagerCtx<'a> {
    stage: &'a Stage,
    frame: &'a Frame<'a>,
    /// The cycle the query turned out to be a member of.
    cycle: OnceCell<Arc<Failure>>,
}

impl<'a> Deref for Ctx<'a> {
    type Target = EagerCtx<'a>;

    fn deref(&self) -> &EagerCtx<'a> {
        &self.0
    }
}

impl<'a> Ctx<'a> {
    /// The value of another query; if that has none, the asking query ends here with the same error.
    pub fn get<Q: Query>(&self, key: &Q::Key) -> Arc<Q::Value> {
        self.0.resolve_or_abort::<Q>(key)
    }

    /// The value of another query or why it has none, for a caller that can do without it.
    ///
    /// A query that is itself part of a cycle never sees that cycle's error: it ends with it.
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

    /// Gives the cycle the query is a member of, whatever the query made of it.
    pub(crate) fn end(self) -> Option<Arc<Failure>> {
        self.0.cycle.into_inner()
    }
}

impl EagerCtx<'_> {
    /// The value of an input, or `None` where it is not set; both are recorded.
    pub fn read<I: Input>(&self, key: &I::Key) -> Option<Arc<I::Value>> {
        self.stage.input::<I>(self.record::<Value<I>>(key))
    }

    /// The keys of the inputs in a bucket, sorted; a change to a member's value alone does not touch the reader.
    pub fn members<I: Input>(&self, index: &I::Index) -> Arc<[I::Key]> {
        self.stage.sorted::<I>(self.record::<Bucket<I>>(index))
    }

    /// All keys of an input family, sorted.
    pub fn keys<I: Input>(&self) -> Arc<[I::Key]> {
        self.stage.sorted::<I>(self.record::<All<I>>(&()))
    }

    /// The value of another eager query; as [`Ctx::get`].
    pub fn get<Q: EagerQuery>(&self, key: &<Q as EagerQuery>::Key) -> Arc<<Q as EagerQuery>::Value> {
        self.resolve_or_abort::<Q>(key)
    }

    /// The value of another eager query or why it has none; as [`Ctx::try_get`].
    pub fn try_get<Q: EagerQuery>(
        &self,
        key: &<Q as EagerQuery>::Key,
    ) -> Result<Arc<<Q as EagerQuery>::Value>, QueryError> {
        self.try_resolve::<Q>(key)
    }

    /// The values of another eager query for many keys; as [`Ctx::get_all`].
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
            if failure.cycle_of(self.frame.id()).is_some() {
                return abort(failure);
            }
            failure.error.clone()
        })
    }

    fn resolve_all<Q: Query>(&self, keys: &[Q::Key]) -> Vec<Arc<Q::Value>> {
        let intern = |key| self.stage.registry.intern::<Memo<Q>>(key);
        let queries: Vec<Subject> = keys.iter().map(intern).collect();
        let resolve = |query: &Subject| self.resolve(query.clone()).map_or_else(abort, typed);
        self.stage.helped(&queries, self.frame.site, || queries.iter().map(resolve).collect())
    }

    fn record<R: Role>(&self, key: &R::Key) -> NodeId {
        let subject = self.stage.registry.intern::<R>(key);
        let id = subject.id();
        self.frame.record(subject);
        id
    }

    fn resolve_key<Q: Query>(&self, key: &Q::Key) -> Result<Arc<Q::Value>, Arc<Failure>> {
        self.resolve(self.stage.registry.intern::<Memo<Q>>(key)).map(typed)
    }

    fn resolve(&self, query: Subject) -> Result<Erased, Arc<Failure>> {
        let resolved = self.stage.resolve(&query, Asker::Query(self.frame));
        self.frame.add_hits(u64::from(resolved.hit));
        // Only now, so that it can be handed over: what is being read is no part of what has been.
        self.frame.record(query);
        match resolved.outcome {
            Outcome::Value(value) => Ok(value),
            Outcome::Failure(failure) => {
                if failure.cycle_of(self.frame.id()).is_some() {
                    // A second cycle is not looked for: the first one ends the query.
                    let _ = self.cycle.set(Arc::clone(&failure));
                }
                Err(failure)
            }
        }
    }
}

/// Ends the query that asked with the failure of the one it asked for.
fn abort<V>(failure: Arc<Failure>) -> V {
    resume_unwind(Box::new(Aborted(failure)))
}

/// Unwinding payload of a query that ends because one it needs has no value.
pub(crate) struct Aborted(pub(crate) Arc<Failure>);
