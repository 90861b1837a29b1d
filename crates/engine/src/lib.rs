//! Incremental computation: inputs, tracked reads, memoised queries, watched roots.
//!
//! Inputs are keyed values set in batches. Queries are pure functions of inputs and other queries; what a query reads is
//! recorded as it reads it, including reads that found nothing. After a batch, [`Engine::apply`] says exactly which
//! watched queries have a new value. The crate knows nothing of meshes, does no I/O and is not async.
//!
//! ```
//! use canopus_engine::{Batch, Ctx, Engine, Input, Query};
//!
//! /// How many of each fruit there are, by shop and fruit.
//! struct Stock;
//! impl Input for Stock {
//!     const NAME: &'static str = "stock";
//!     type Key = (&'static str, &'static str);
//!     type Value = u32;
//!     type Index = &'static str;
//!     fn index((shop, _): &Self::Key, _: &u32) -> Vec<&'static str> {
//!         vec![shop]
//!     }
//! }
//!
//! /// How much fruit a shop has.
//! struct Total;
//! impl Query for Total {
//!     const NAME: &'static str = "total";
//!     type Key = &'static str;
//!     type Value = u32;
//!     fn run(ctx: &Ctx<'_>, shop: &&'static str) -> u32 {
//!         ctx.members::<Stock>(shop).iter().filter_map(|key| ctx.read::<Stock>(key)).map(|count| *count).sum()
//!     }
//! }
//!
//! let engine = Engine::new();
//! let north = engine.watch::<Total>("north");
//! let south = engine.watch::<Total>("south");
//!
//! let mut batch = Batch::new();
//! batch.set::<Stock>(("north", "apple"), 3).set::<Stock>(("north", "pear"), 4);
//! let applied = engine.apply(batch);
//!
//! assert_eq!(applied.changed, [north.id()]);
//! assert_eq!(*north.value().unwrap(), 7);
//! assert_eq!(*south.value().unwrap(), 0);
//! ```

mod adopt;
mod apply;
mod batch;
mod core;
mod crew;
mod ctx;
mod engine;
mod error;
mod eval;
mod evict;
mod fork;
mod frame;
mod graph;
mod idmap;
mod idset;
mod input;
mod intern;
mod job;
mod key;
mod marks;
mod provenance;
mod query;
mod reads;
mod root;
mod stage;
mod stats;
mod subject;
#[cfg(test)]
mod tests;
mod typemap;
mod value;
mod watch;
mod world;

pub use batch::Batch;
pub use ctx::{Ctx, EagerCtx};
pub use engine::{Applied, Engine, Options, Revision, Snapshot};
pub use error::QueryError;
pub use input::Input;
pub use key::Key;
pub use provenance::{Dependent, Read, ReadKind};
#[doc(hidden)]
pub use query::Layer;
pub use query::{EagerQuery, Query};
pub use root::{Root, RootId};
pub use stats::Stats;
pub use subject::{Subject, SubjectKind};
