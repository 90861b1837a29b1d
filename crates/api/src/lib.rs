//! Every object kind a mesh reads, as typed and well-formed Rust values.
//!
//! This crate owns the catalogue of kinds (Kubernetes, Istio, Gateway API, MCS), decoding and defaulting of
//! user input, the labels and annotations those objects carry, and mesh configuration with its defaults. It is
//! the only place where user input is decoded. It must not know clients, servers, or how configuration for a
//! proxy is generated.
