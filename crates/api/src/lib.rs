//! Every object kind a mesh reads, as typed and well-formed Rust values.
//!
//! This crate owns the catalogue of kinds (Kubernetes, Istio, Gateway API, MCS), decoding and defaulting of
//! user input, the labels and annotations those objects carry, and mesh configuration with its defaults. It is
//! the only place where user input is decoded. It must not know clients, servers, or how configuration for a
//! proxy is generated.
//!
//! [`Object::decode`] reads one object from a document tree; [`Kind`] is the registry of all kinds.

pub mod annotations;
pub mod builtin;
pub mod catalogue;
pub mod crd;
pub mod credential;
pub mod decode;
pub mod docs;
mod documents;
mod field;
pub mod gateway_api;
pub mod gateway_protocol;
pub mod inference;
pub mod istio;
pub mod jwt;
mod kinds;
pub mod kube;
pub mod labels;
mod macros;
pub mod mcs;
pub mod mesh_config;
mod meta;
pub mod node;
mod print;
pub mod registry;
mod resource;
pub mod security;
mod text;
pub mod url;
pub mod validate;
pub mod value;
pub mod visibility;

pub use decode::{DecodeError, Decoded, Options, Problem, Unknown};
pub use documents::{Outcome, decode_documents};
pub use kinds::{Kind, LookupError, Object, ObjectKey, Typed};
pub use meta::{Meta, OwnerReference, Relevance};
pub use resource::Resource;
