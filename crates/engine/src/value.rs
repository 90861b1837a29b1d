//! Values without their types, and failures.

use std::any::Any;
use std::sync::Arc;

use crate::intern::NodeId;
use crate::{QueryError, Subject};

/// A value whose family knows its type.
pub(crate) type Erased = Arc<dyn Any + Send + Sync>;

/// Gives a value its type back.
pub(crate) fn typed<T: Send + Sync + 'static>(value: Erased) -> Arc<T> {
    value.downcast().expect("a family has one value type")
}

/// What a query came to.
#[derive(Clone)]
pub(crate) enum Outcome {
    Value(Erased),
    Failure(Arc<Failure>),
}

impl Outcome {
    /// The value or error for somebody outside, given the value's type.
    pub(crate) fn into_result<T: Send + Sync + 'static>(self) -> Result<Arc<T>, QueryError> {
        match self {
            Self::Value(value) => Ok(typed(value)),
            Self::Failure(failure) => Err(failure.error.clone()),
        }
    }

    /// Whether both are the very same result, not merely equal ones.
    pub(crate) fn is(&self, other: &Self) -> bool {
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

/// The queries that depend on each other, and what that rests on.
pub(crate) struct Cycle {
    pub(crate) members: Box<[Subject]>,
    /// What the members read besides each other. Each member is memoised with these reads in place of its own, so that
    /// the graph of memos has no cycles and a change to any of them has all members looked at again.
    pub(crate) reads: Box<[Subject]>,
}

impl Failure {
    /// The cycle, if the query is a member of one.
    pub(crate) fn cycle_of(&self, id: NodeId) -> Option<&Cycle> {
        self.cycle.as_ref().filter(|cycle| cycle.members.iter().any(|member| member.id() == id))
    }
}
