//! Every message that travels between the control plane and anything else, and the generic operations on them.
//!
//! Owns the generated Envoy, xDS, Istio, ztunnel and CA types, the descriptor set of all of them, `Any`, proto-JSON and
//! proto merge. It is the only crate that names `prost`: others use [`Message`] and [`Name`] from here.
//!
//! Must not know Kubernetes, meshes or proxies.
//!
//! Three properties hold for every type: map fields are ordered, so equal messages encode to equal bytes; `bytes` fields
//! (and so `Any.value`) are shared buffers, so an encoded resource can be part of many responses without a copy; and
//! every type is in [`descriptors`], so an `Any` can always be opened.

mod any;
pub mod descriptors;
pub mod json;
pub mod merge;
pub mod resource;
mod well_known;

/// The generated types, in modules named after their protobuf packages.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/wire.rs"));
}

pub use any::{AnyError, type_url};
pub use prost::{DecodeError, Message, Name};
pub use wire::{cel, envoy, google, io, istio, opentelemetry, stats, udpa, validate, xds};

pub use google::protobuf::Any;
