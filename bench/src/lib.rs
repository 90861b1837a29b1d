//! The load rig: races canopusd against a peer that takes the same flags, and says by how much who wins what.
//!
//! Owns the scripted proxies ([`client`]), the fixture, the scenarios, how they are measured and how the figures are shown.
//! Both subjects get the same real Kubernetes API server, the same writes and the same proxies; figures come from outside
//! (`/proc`, the clock, the bytes received), not from what a subject says of itself; only how often generators ran is asked for.
//!
//! Must not know how Canopus works inside: a subject is a program with flags and ports.

mod api;
mod budget;
pub mod client;
mod figure;
mod fixture;
mod floor;
mod gate;
mod options;
mod plot;
mod report;
mod row;
mod run;
mod scale;
mod scenario;
mod stage;
mod statistics;
mod subject;
mod usage;
mod waste;

pub use options::Options;
pub use run::run;
