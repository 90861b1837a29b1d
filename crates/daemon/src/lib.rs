//! The control plane as a process: flags, wiring and ports.
//!
//! This is the composition root. Sources feed one apply loop, the loop feeds the engine, and the xDS server asks the
//! engine for what each proxy's view holds.
//!
//! Must not know the command line tool.

mod apply;
pub mod authentication;
pub mod certificate_authority;
pub mod command;
pub mod control_plane;
mod controllers;
mod day;
pub mod debug;
pub mod discovery;
mod envoy_filters;
mod family;
pub mod forecast;
mod grpc_client;
pub mod http;
mod impact;
pub mod injection;
mod jwks;
pub mod metrics;
pub mod object_history;
mod operator;
mod pace;
mod provenance;
pub mod push;
pub mod quarantine;
mod registration;
mod secret_access;
pub mod serve;
mod served_config;
mod settings;
#[cfg(test)]
mod simulation;
pub mod source_statuses;
mod sources;
pub mod spans;
mod timer;
mod trust_anchors;
mod validation_proof;

/// A proxy that says little about itself and has proved nothing.
#[cfg(test)]
pub(crate) fn test_proxy(name: &str) -> canopus_mesh::proxy::Proxy {
    test_proxy_in(name, "default.svc.cluster.local", false)
}

/// A proxy with a domain of its own, which may have proved that it is the service account of its name.
#[cfg(test)]
pub(crate) fn test_proxy_in(name: &str, domain: &str, is_proven: bool) -> canopus_mesh::proxy::Proxy {
    let id = format!("sidecar~10.0.0.1~{name}.default~{domain}");
    let node = canopus_proto::envoy::config::core::v3::Node { id, ..Default::default() };
    let identity = format!("spiffe://cluster.local/ns/default/sa/{name}").parse().expect("it is an identity");
    canopus_mesh::proxy::Proxy::new(&node, is_proven.then_some(identity)).expect("the node id is complete")
}
