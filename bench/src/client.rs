//! Scripted proxies on real gRPC, cheap enough to stand beside the server they load.
//!
//! A [`Proxy`] is a state machine without I/O: it subscribes as Envoy does (all clusters, then their endpoints, all
//! listeners, then their routes), acknowledges, and remembers of each resource its name, version and hash. A [`Fleet`] is
//! many of them on connections of their own. Payloads are looked into once for each distinct cluster and listener, to
//! learn what it refers to, and otherwise only hashed.

pub mod envelope;
mod fleet;
mod kind;
mod names;
mod node;
mod proxy;
mod record;
mod references;
mod stream;

pub use fleet::{Fleet, Target};
pub use kind::Kind;
pub use names::{NameId, Names};
pub use node::Role;
pub use proxy::{HeldResource, Proxy};
pub use record::{Expectation, Record, Totals};
