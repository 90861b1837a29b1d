//! Real components for tests and the demo: Envoy, Kubernetes with etcd and what a node runs, Consul, Helm, a gRPC
//! client, grpcurl, iptables, Go's template engine and cargo-deny.
//!
//! Owns the table of parts with their pinned versions, the recipes that fetch or build them through the ordinary clients
//! (`pip`, `go`, `cargo`, `apt-get`), and the per-user cache they live in. A part is installed once; from then on [`ensure`] and
//! [`find`] only look at a directory.
//!
//! Must not know any product crate, nor how a part is started: that is the testkit's trade.

mod cache;
mod cargo;
mod catalogue;
mod command;
mod debian;
mod error;
mod go;
mod install;
mod job;
mod progress;
mod recipe;
mod wheel;

pub use cache::cache_dir;
pub use catalogue::{Part, UnknownPart};
pub use error::{InstallError, NotInstalled};
pub use install::{Installed, debian_packages, ensure, ensure_in_lines, find, find_root};
