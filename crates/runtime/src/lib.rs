//! Process scaffolding that is the same in every Canopus binary.
//!
//! Owns: the log with Istio's scopes, the metrics registry with Istio's names, the table of feature flags (the only
//! reader of environment variables), readiness, ordered shutdown, supervised tasks, the leader-election trait,
//! version information, and what a program says of its own command line: completion scripts and reference pages.
//! Must not know: meshes, Kubernetes, protocols; anything a binary is about.

pub mod arguments;
pub mod completion;
pub mod core_dumps;
pub mod flags;
pub mod leader;
pub mod log;
pub mod metrics;
pub mod ready;
pub mod reference;
pub mod shutdown;
pub mod tasks;
pub mod version;
