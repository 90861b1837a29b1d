//! Evaluation: queries, what they see while they run, and how one is brought up to date.
//!
//! A [`Stage`] is a graph that queries are evaluated on. Asking it for a query claims a [`Job`], which at most one thread works
//! on; that thread has a [`Frame`] and hands the query a [`Ctx`], through which it asks the stage for others. The parts depend
//! on each other because a query may ask for any other query; together they depend on the graph and the nodes alone.
//!
//! Start reading at `eval`, then `ctx` and `job`.

mod ctx;
mod eval;
mod frame;
mod job;
mod query;
mod stage;
mod workers;

pub use ctx::{Ctx, EagerCtx};
pub(crate) use job::{Job, Jobs};
#[doc(hidden)]
pub use query::Layer;
pub(crate) use query::QueryNode;
pub use query::{EagerQuery, Query};
pub(crate) use stage::Stage;
pub(crate) use workers::WorkerPool;
