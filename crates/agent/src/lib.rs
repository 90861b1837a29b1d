//! The process beside every proxy, in the place of Istio's pilot-agent.
//!
//! ```text
//!                 ┌───────────────────────── canopus-agent ─────────────────────────┐
//!  CA      ◄──────┤ certificates ──► SDS server (socket) ◄──────────────┐           │
//!  control ◄──────┤ xDS proxy (socket) ◄────────────────────────────┐   │           │
//!  plane          │   ├─ last good state on disk, Wasm modules      │   │           │
//!  resolvers ◄────┤   └─ name server (DNS)                          │   │           │
//!  kubelet ──────►│ status server: readiness, probes, metrics   ┌───┴───┴───┐       │
//!  scraper        │ supervisor ── starts, drains, ends ────────►│   Envoy   │       │
//!                 └─────────────────────────────────────────────┴───────────┴───────┘
//! ```
//!
//! [`bootstrap`] and [`node`] are pure: data in, Envoy's bootstrap out. Everything else is I/O around them, put together in
//! [`proxy`]. The crate links nothing of the control plane's model: it is started once per workload, so what it holds at
//! rest counts a hundred thousand times.

pub mod address;
pub mod backoff;
pub mod bootstrap;
pub mod certificates;
pub mod command;
pub mod dns;
pub mod downward;
pub mod envoy;
pub mod fetch;
mod files;
pub mod health;
pub mod last_good;
pub mod local_http;
pub mod locality;
pub mod node;
pub mod platform;
pub mod proxy;
pub mod proxy_config;
pub mod sds;
pub mod status;
pub mod sts;
pub mod upstream;
pub mod wasm;
pub mod xds_proxy;
