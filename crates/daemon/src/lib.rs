//! The control plane as a process: flags, wiring and ports.
//!
//! This is the composition root. Sources feed one apply loop, the loop feeds the engine, and the xDS server asks the
//! engine for what each proxy's view holds.
//!
//! Must not know the command line tool.

mod apply;
pub mod authentication;
pub mod command;
pub mod control_plane;
pub mod debug;
pub mod discovery;
mod envoy_filters;
pub mod http;
mod jwks;
pub mod metrics;
mod objects;
mod pace;
pub mod push;
pub mod quarantine;
mod secret_access;
pub mod serve;
mod settings;
mod sources;
pub mod spans;
mod timer;
mod wire;

/// A proxy that says little about itself.
#[cfg(test)]
pub(crate) fn test_proxy(name: &str) -> canopus_mesh::proxy::Proxy {
    let id = format!("sidecar~10.0.0.1~{name}.default~default.svc.cluster.local");
    let node = canopus_proto::envoy::config::core::v3::Node { id, ..Default::default() };
    canopus_mesh::proxy::Proxy::new(&node, None).expect("the node id is complete")
}
