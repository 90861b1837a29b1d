//! Ports: what listens, and what answers there.

pub mod grpc;
pub mod tls;
