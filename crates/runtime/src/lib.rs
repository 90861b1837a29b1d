//! Process scaffolding that is the same in every Canopus binary.
//!
//! Owns: the log with Istio's scopes, the metrics registry with Istio's names, the table of feature flags (the only
//! reader of environment variables), readiness, ordered shutdown, supervised tasks, the leader-election trait and
//! version information. Must not know: meshes, Kubernetes, protocols; anything a binary is about.

pub mod core_dumps;
pub mod flags;
pub mod leader;
pub mod log;
pub mod metrics;
pub mod ready;
pub mod shutdown;
pub mod tasks;
pub mod version;
