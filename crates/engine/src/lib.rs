//! Incremental computation: inputs, tracked reads, memoised queries, watched roots.
//!
//! Inputs are keyed values, set in batches. Queries are pure functions of inputs and other queries. What a query reads is
//! recorded while it runs, including reads that found nothing. After a batch, [`Engine::apply`] reports exactly those watched
//! queries that have a new value.
//!
//! The work of a batch follows the change, not the size of the graph: marks spread from changed inputs to the memos that
//! depend on them, marked memos are verified before their queries run again, and evaluation stops where a value stays the
//! same. [`EagerQuery`] bounds the marking, too. `docs/engine.md` explains all of it with an example.
//!
//! Start reading at `apply`, then `marks`, `evaluation` and `draft`. Modules are layers: `ids` and `node` name what there is, `graph`
//! keeps it, `evaluation` brings queries up to date on it, `core` publishes graphs, `engine` is what callers hold.
//!
//! The crate knows nothing of meshes, does no I/O and is not async.
//!
//! ```
//! use canopus_engine::{Batch, Ctx, Engine, Input, Query};
//!
//! /// The number of fruits, by shop and fruit.
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
//! /// The number of fruits in a shop.
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
mod draft;
mod engine;
mod error;
mod evaluation;
mod evict;
mod fork;
mod graph;
mod idmap;
mod ids;
mod idset;
mod input;
mod key;
mod marks;
mod node;
mod options;
mod provenance;
mod reads;
mod root;
mod stats;
#[cfg(test)]
mod tests;
mod typemap;
mod watch;

pub use batch::Batch;
pub use engine::{Applied, Engine, Snapshot};
pub use error::QueryError;
#[doc(hidden)]
pub use evaluation::Layer;
pub use evaluation::{Ctx, EagerCtx, EagerQuery, Query};
pub use ids::{Revision, RootId};
pub use input::Input;
pub use key::Key;
pub use node::{Subject, SubjectKind};
pub use options::Options;
pub use provenance::{Dependent, Read, ReadKind};
pub use root::Root;
pub use stats::Stats;
