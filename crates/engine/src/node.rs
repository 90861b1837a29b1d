//! Nodes: what can be read, whatever its type.
//!
//! A node is named by an interned key ([`Interner`]), known to the rest of the engine as a [`Subject`] and its value as
//! [`Erased`]. Nothing here knows how a query is evaluated: a family of queries only keeps the evaluator that
//! `evaluation::query` gives it.

mod intern;
mod subject;
mod value;

pub(crate) use intern::Interner;
pub(crate) use subject::{AllKeysNode, BucketNode, InputNode, NodeFamily};
pub use subject::{Subject, SubjectKind};
pub(crate) use value::{Cycle, Erased, Failure, Outcome, downcast};
