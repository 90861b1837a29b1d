//! The mesh as facts: what services, endpoints, gateways and routes the objects add up to, and what a proxy may see of them.
//!
//! Everything here is a query over the [`engine`](canopus_engine): a pure function whose reads are recorded. Objects come
//! in as the input [`world::Objects`], mesh-wide settings as [`world::Settings`].
//!
//! Must not know Envoy's types, clients, or how a fact reaches a proxy.

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
