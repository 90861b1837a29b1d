//! Proto-JSON, both ways, with Go `protojson`'s rules, and the liberties of its predecessor that Istio reads objects with.
//!
//! Reading goes from a positioned [`Node`] straight to wire bytes, driven by descriptors, so every problem has a field
//! path and a line. It is written here because no kept library reports all problems at once with positions, survives
//! unknown enum names, and keeps up with a watch of thousands of objects. Writing goes from wire bytes to a [`Node`].

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

use canopus_base::tree::{Node, Pos};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, MessageDescriptor};

use crate::descriptors;

/// What to do with a field or enum name the schema does not have, and with what only a liberal reader takes: null in a
/// list, or two members of a oneof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The document is rejected with a problem.
    Reject,
    /// The field is left out of the message and listed in [`Decoded::ignored`].
    Report,
}

/// One thing wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `http[0].route[1].weight`. Empty for the message itself.
    pub path: String,
    /// Where the offending value (for an unknown field: its name) stands.
    pub at: Pos,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if self.at.is_known() { write!(f, " ({})", self.at) } else { Ok(()) }
    }
}

/// All problems of a document; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Problems(pub Vec<Problem>);

/// A message read from JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    /// The message.
    pub value: T,
    /// What was left out of it under [`Unknown::Report`].
    pub ignored: Vec<Problem>,
}

/// Reads a typed message.
pub fn read<M: Message + Name + Default>(node: &Node, unknown: Unknown) -> Result<Decoded<M>, Problems> {
    let wire = read_wire(&descriptors::message_descriptor::<M>(), node, unknown)?;
    let value = M::decode(wire.value.as_slice()).map_err(|e| malformed(node, &e))?;
    Ok(Decoded { value, ignored: wire.ignored })
}

/// Reads a message whose type is known only at run time.
pub fn read_dynamic(
    descriptor: &MessageDescriptor,
    node: &Node,
    unknown: Unknown,
) -> Result<Decoded<DynamicMessage>, Problems> {
    let wire = read_wire(descriptor, node, unknown)?;
    let value =
        DynamicMessage::decode(descriptor.clone(), wire.value.as_slice()).map_err(|e| malformed(node, &e))?;
    Ok(Decoded { value, ignored: wire.ignored })
}

/// Reads a message of the given type to its canonical encoding.
pub fn read_wire(
    descriptor: &MessageDescriptor,
    node: &Node,
    unknown: Unknown,
) -> Result<Decoded<Vec<u8>>, Problems> {
    read::wire(descriptor, node, unknown)
}

/// The JSON of a typed message: camelCase names, enum names, 64-bit integers as strings, `Any` expanded.
pub fn write<M: Message + Name>(message: &M) -> Node {
    write::message(&descriptors::to_dynamic(message))
}

/// The JSON of a dynamic message.
pub fn write_dynamic(message: &DynamicMessage) -> Node {
    write::message(message)
}

/// The reader writes only well-formed fields, so this is nesting beyond what the wire decoder accepts.
fn malformed(node: &Node, error: &prost::DecodeError) -> Problems {
    Problems(vec![Problem { path: String::new(), at: node.at, message: error.to_string() }])
}
