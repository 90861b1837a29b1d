//! The xDS protocol: what a stream between a control plane and a proxy says, and when.
//!
//! Owns the [`session`] state machines for both variants of the protocol (no I/O in them), the ADS [`server`] that runs
//! them over gRPC, and an ADS [`client`]. What a client gets is decided behind the [`ControlPlane`] trait.
//!
//! Must not know meshes, Kubernetes, object kinds or how resources are generated.
//!
//! A resource's version is the hash of its bytes. Nothing is sent to a client that it already has: not twice on one
//! stream, and not again after it reconnects.

mod bounds;
mod chunk;
pub mod client;
mod interest;
mod mailbox;
mod mention;
mod names;
mod payload;
mod plane;
mod pool;
pub mod rejection;
mod resource;
pub mod server;
pub mod session;
mod source;
pub mod types;
mod wire;

pub use interest::Interest;
pub use mailbox::{Mailbox, Mailboxes};
pub use names::{NamePool, Names};
pub use plane::{ControlPlane, Peer};
pub use resource::{Change, Resource, ResourceSet, SetPool};
pub use session::SessionEvent;
pub use source::{Code, Refusal, Source};
