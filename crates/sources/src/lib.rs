//! Where objects come from.
//!
//! A [`Source`] follows something outside (files, a Kubernetes API server, a Consul catalogue, another control plane), decodes
//! what is there into typed objects and says what changed in [`Change`]s. All sources feed one bounded queue; the [`Intake`] at
//! its end keeps the [`World`](world::World), decides which object counts where several sources have the same one, and yields
//! what changed as an [`Update`].
//!
//! An object never goes because nobody could look: what cannot be reached or read keeps its last good state, and how far
//! each source can be trusted is told by its [status].
//!
//! Must not know what objects are used for.

mod change;
pub mod consul;
mod feed;
pub mod files;
pub mod kubernetes;
pub mod mcp;
pub mod memory;
mod retry;
pub mod snapshot;
pub mod status;
pub mod world;

pub use change::{Batch, Change, ProblemScope, SourceInfo, SourcePart};
pub use feed::{Closed, Feed, Feeds, Intake, Source};
pub use world::Update;
