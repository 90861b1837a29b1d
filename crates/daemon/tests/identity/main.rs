//! The control plane as an authority and as a server of TLS, as a process without Kubernetes.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../../support/local_mesh.rs"]
mod local_mesh;

mod callers;
mod exchange;
mod external;
mod federation;
mod join_tokens;
mod keys;
mod memory;
mod negative;
mod plane;
mod revocation;
mod signing;
mod tls_policy;
mod without_authority;
