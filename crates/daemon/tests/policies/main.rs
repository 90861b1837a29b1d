//! Policies, telemetry and extensions as real traffic meets them: two stock Envoys, an agent's certificates, mutual TLS.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../../support/agent.rs"]
mod agent;
#[path = "../../support/grpc.rs"]
mod grpc;
#[path = "../../support/local_mesh.rs"]
mod local_mesh;
#[path = "../../support/sidecars.rs"]
mod sidecars;

mod credentials;
mod extensions;
mod external;
mod metrics;
mod peers;
mod reports;
mod tokens;
