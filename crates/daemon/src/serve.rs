//! Ports: what listens, and what answers there.

mod call;
pub(crate) mod certificates;
mod counted;
pub mod grpc;
mod health;
pub mod issuing;
pub(crate) mod ports;
mod reflection;
pub mod tls;
pub(crate) mod web;
pub mod webhook;
