//! The analyzers, by the kind they are about.

pub(crate) mod annotations;
pub(crate) mod authorization_policy;
pub(crate) mod conditions;
pub(crate) mod deployment;
pub(crate) mod deprecation;
pub(crate) mod destination;
pub(crate) mod destination_rule;
pub(crate) mod envoy_filter;
pub(crate) mod gateway;
pub(crate) mod gateway_api;
mod host;
mod in_mesh;
pub(crate) mod injection;
pub(crate) mod jwks;
pub(crate) mod multicluster;
pub(crate) mod schema;
mod selector;
pub(crate) mod service;
pub(crate) mod service_entry;
pub(crate) mod sidecar;
pub(crate) mod telemetry;
#[cfg(test)]
mod tests;
pub(crate) mod virtual_service;
pub(crate) mod webhook;
