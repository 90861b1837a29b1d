//! Every message that travels between the control plane and anything else, and the generic operations on them.
//!
//! Owns the generated Envoy, xDS, Istio, ztunnel and CA types, the descriptor set of all of them, `Any`, proto-JSON, proto
//! merge and the wire format itself ([`wire`]). It is the only crate that names `prost`: others
//! use [`Message`] and [`Name`] from here.
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
pub mod wire;

/// The generated types, in modules named after their protobuf packages.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/generated.rs"));
}

pub use any::{AnyError, type_url};
pub use generated::{cel, envoy, google, grpc, io, istio, opentelemetry, stats, udpa, validate, xds};
pub use prost::{DecodeError, Message, Name};
pub use wire::fields;

pub use google::protobuf::Any;
