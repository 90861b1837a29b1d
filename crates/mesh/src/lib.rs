//! The model of the mesh: the services, endpoints, gateways, routes and policies that objects define, and which of them apply
//! to a proxy.
//!
//! Everything here is a query over the [`engine`](canopus_engine): a pure function whose reads are recorded. Objects enter as
//! the input [`world::Objects`], mesh-wide settings as [`world::Settings`].
//!
//! Modules form layers, and `cargo xtask tidy` checks that they form a DAG:
//!
//! ```text
//! dump, diagnostic                                  what people look at
//! audience                                          what generated configuration may depend on
//! scope, destination_rule, credential, extension …  what applies to a proxy
//! gateway, waypoint, target, proxy_workload         what a proxy is to the mesh
//! virtual_service ◄ gateway_api, ingress            routes, written and derived
//! endpoint, workload, network, service              what can be called
//! selector, proxy, world                            inputs and keys
//! reference, order, list, locality, trust_domain    pure helpers
//! ```
//!
//! This crate does not know Envoy's types (except the xDS `Node` by which a proxy introduces itself), Kubernetes clients, or
//! how a fact reaches a proxy.

pub mod attachment;
pub mod audience;
pub mod authorization;
pub mod blocked;
pub mod credential;
pub mod destination_rule;
pub mod diagnostic;
pub mod dump;
pub mod endpoint;
pub mod envoy_filter;
pub mod extension;
pub mod gateway;
pub mod gateway_api;
pub mod ingress;
pub mod list;
pub mod locality;
pub mod network;
mod order;
pub mod peer_authentication;
pub mod proxy;
pub mod proxy_workload;
mod reference;
pub mod registration;
pub mod request_authentication;
pub mod revision;
pub mod scope;
mod selector;
pub mod service;
pub mod target;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod trust_domain;
pub mod virtual_service;
pub mod waypoint;
pub mod workload;
pub mod world;
