//! Guards that keep queries up to date.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::core::Core;
use crate::ids::RootId;
use crate::{Query, QueryError, Subject};

/// Keeps a query up to date for as long as it lives.
///
/// Dropping it never waits. The memo goes with the next change to the engine, or later if it is kept as an idle memo.
#[must_use = "dropping the guard ends the watch"]
pub struct Root<Q: Query> {
    core: Arc<Core>,
    id: RootId,
    query: Subject,
    family: PhantomData<fn() -> Q>,
}

impl<Q: Query> Root<Q> {
    pub(crate) fn new(core: &Arc<Core>, id: RootId, query: Subject) -> Self {
        Self { core: Arc::clone(core), id, query, family: PhantomData }
    }

    /// The name under which [`Applied`](crate::Applied) reports it.
    pub fn id(&self) -> RootId {
        self.id
    }

    /// The key of the watched query.
    pub fn key(&self) -> &Q::Key {
        self.query.query::<Q>().expect("made for a query of this family")
    }

    /// The value at the latest revision.
    pub fn value(&self) -> Result<Arc<Q::Value>, QueryError> {
        self.core.current().get(&self.query).outcome.into_result()
    }
}

impl<Q: Query> Drop for Root<Q> {
    fn drop(&mut self) {
        self.core.release(self.query.clone());
    }
}
