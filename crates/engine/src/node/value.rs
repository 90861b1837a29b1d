//! Values without their types, and the ways a query can fail.

use std::any::Any;
use std::sync::Arc;

use super::subject::Subject;
use crate::QueryError;
use crate::ids::NodeId;

/// A value of an input or a query. The family of the node knows its type.
pub(crate) type Erased = Arc<dyn Any + Send + Sync>;

/// Restores the type of a value.
pub(crate) fn downcast<T: Send + Sync + 'static>(value: Erased) -> Arc<T> {
    value.downcast().expect("a family has one value type")
}

/// What a query evaluated to.
#[derive(Clone)]
pub(crate) enum Outcome {
    Value(Erased),
    Failure(Arc<Failure>),
}

impl Outcome {
    /// The value with its type, or the error without what only the engine needs of it.
    pub(crate) fn into_result<T: Send + Sync + 'static>(self) -> Result<Arc<T>, QueryError> {
        match self {
            Self::Value(value) => Ok(downcast(value)),
            Self::Failure(failure) => Err(failure.error.clone()),
        }
    }

    /// Whether both are the same allocation, not merely equal.
    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => Arc::ptr_eq(one, other),
            (Self::Failure(one), Self::Failure(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Why a query has no value.
pub(crate) struct Failure {
    pub(crate) error: QueryError,
    pub(crate) cycle: Option<Cycle>,
}

/// Queries that depend on each other.
pub(crate) struct Cycle {
    pub(crate) members: Box<[Subject]>,
    /// What the members read besides each other. Every member is memoised with these reads in place of its own. So memos
    /// never form a cycle, and a change to any of these reads makes all members dirty.
    pub(crate) reads: Box<[Subject]>,
}

impl Failure {
    /// The cycle, if the query of this id is a member of it.
    pub(crate) fn cycle_with(&self, id: NodeId) -> Option<&Cycle> {
        self.cycle.as_ref().filter(|cycle| cycle.members.iter().any(|member| member.id() == id))
    }
}
