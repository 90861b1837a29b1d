//! Guards that keep queries up to date.

use std::sync::Arc;

use crate::{Engine, Query, QueryError};

/// Names a watched query in [`Applied`](crate::Applied); never used twice by an engine or its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootId(pub(crate) u64);

/// Keeps a query up to date for as long as it lives.
#[must_use = "dropping the guard ends the watch"]
pub struct Root<Q: Query> {
    engine: Engine,
    id: RootId,
    key: Q::Key,
}

impl<Q: Query> Root<Q> {
    pub(crate) fn new(engine: Engine, id: RootId, key: Q::Key) -> Self {
        Self { engine, id, key }
    }

    /// The name under which [`Applied`](crate::Applied) reports it.
    pub fn id(&self) -> RootId {
        self.id
    }

    /// The key of the watched query.
    pub fn key(&self) -> &Q::Key {
        &self.key
    }

    /// The value as of the latest revision.
    pub fn value(&self) -> Result<Arc<Q::Value>, QueryError> {
        self.engine.get::<Q>(&self.key)
    }
}

impl<Q: Query> Drop for Root<Q> {
    fn drop(&mut self) {
        self.engine.state.lock().borrow_mut().unwatch::<Q>(&self.key);
    }
}
