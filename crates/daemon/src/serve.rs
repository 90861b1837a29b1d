//! Ports: what listens, and what answers there.

mod admission_rate;
mod call;
pub(crate) mod certificates;
mod counted;
pub mod grpc;
mod health;
pub mod identity_documents;
pub mod issuing;
mod peer_allowance;
pub(crate) mod ports;
mod reflection;
pub mod tls;
pub(crate) mod web;
pub mod webhook;

pub(crate) use admission_rate::AdmissionRate;
pub(crate) use peer_allowance::PeerAllowance;
