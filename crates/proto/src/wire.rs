//! Protobuf's wire format, for code that writes or reads messages without a generated type.
//!
//! An encoded message is its fields one after the other, in any order, and every entry of a list is a field of its own. So
//! what many messages have in common is encoded once and copied, a large message need not be in memory before it is encoded,
//! and a reader finds one field without decoding the others. The generator of Envoy's configuration, the xDS server, the agent
//! and the load rig all do this; this module is the only place that knows tags, wire types and varints.
//!
//! - [`fields`] has a constant for every field of the messages that are handled this way. They are generated from the
//!   descriptor set, and a [`Field`] names its message and its kind in its type.
//! - [`ProtoWriter`] builds a message of one type in place and takes fields of that message only. [`Encoded`] is a finished
//!   part of such a message.
//! - [`Tag`] is a field without its types, for writers of two messages at once and for readers; [`next_field`] and
//!   [`read_header`] read.
//!
//! What is written must equal what `prost` writes for the same message, byte by byte: resources are compared by their hash.
//! `prost` writes fields in the order of their numbers, so writers add them in that order wherever the message could also come
//! from a generated type.

mod encoded;
mod field;
pub mod fields;
mod read;
mod writer;

pub use encoded::{Encoded, EncodedFields};
pub use field::{
    Binary, Bool, Enumeration, Explicit, Field, Implicit, Map, Nested, Other, Presence, Tag, Text, TypeUrl,
    Unsigned, WireType,
};
pub use read::{Header, WireError, next_field, read_header, read_varint};
pub use writer::{ProtoWriter, map_entry_size, packed_size};

#[cfg(test)]
mod tests;
