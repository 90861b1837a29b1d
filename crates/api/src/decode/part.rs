//! Spec and status: the parts of an object that are read and written on their own.

use canopus_base::tree::Node;
use canopus_proto::{Message, Name, json};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Decoded, Options, Problem, Unknown, lenient};

/// Where in the object a part stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPosition {
    /// Under its own key, `spec` or `status`.
    Own,
    /// Beside `metadata`, as the `data` of a Secret.
    Root,
}

/// A spec or a status: a type that can be read from a document and written back.
pub trait Part: Default + Clone + PartialEq + Send + Sync + 'static {
    /// Where it stands when it is the spec.
    const POSITION: PartPosition = PartPosition::Own;

    /// Reads the part. Everything wrong is reported, not only the first.
    fn read(node: &Node, options: Options) -> Result<Decoded<Self>, Vec<Problem>>;

    /// Writes the part, without what is at its default. `null` if there is nothing to write.
    fn write(&self) -> Node;
}

/// Kinds without a status have this one.
impl Part for () {
    fn read(_: &Node, _: Options) -> Result<Decoded<Self>, Vec<Problem>> {
        Ok(Decoded::whole(()))
    }

    fn write(&self) -> Node {
        Node::default()
    }
}

/// Reads a protobuf message.
pub(crate) fn read_proto<M: Message + Name + Default>(
    node: &Node,
    options: Options,
) -> Result<Decoded<M>, Vec<Problem>> {
    if node.is_null() {
        return Ok(Decoded::whole(M::default()));
    }
    let left_out = |problem: json::Problem| {
        Problem::from(problem).with_remedy("it was left out: correct its spelling, or remove it")
    };
    match json::read(node, options.unknown) {
        Ok(decoded) => {
            Ok(Decoded { value: decoded.value, ignored: decoded.ignored.into_iter().map(left_out).collect() })
        }
        Err(problems) => Err(problems.0.into_iter().map(Problem::from).collect()),
    }
}

/// Reads a type that holds only some of the fields its object has: the others are nobody's business.
pub(crate) fn read_slim<T: DeserializeOwned>(node: &Node) -> Result<Decoded<T>, Vec<Problem>> {
    node.decode().map(Decoded::whole).map_err(|first| lenient::all_problems::<T>(node, first))
}

/// Reads a type that holds every field its object may have: others are unknown.
pub(crate) fn read_complete<T: DeserializeOwned>(
    node: &Node,
    options: Options,
) -> Result<Decoded<T>, Vec<Problem>> {
    let mut unknown = Vec::new();
    let value = serde_ignored::deserialize(node, |path| unknown.push(lenient::unknown_field(node, &path)))
        .map_err(|first| lenient::all_problems::<T>(node, first))?;
    match options.unknown {
        Unknown::Reject if !unknown.is_empty() => Err(unknown),
        _ => Ok(Decoded { value, ignored: unknown }),
    }
}

/// Writes a serde type; an empty map counts as nothing.
pub(crate) fn write_serde<T: Serialize>(value: &T) -> Node {
    let node = serde_json::to_value(value).map_or_else(|_| Node::default(), Node::from);
    match node.as_map() {
        Some(map) if map.is_empty() => Node::default(),
        _ => node,
    }
}

/// Protobuf messages as parts.
macro_rules! proto {
    ($($message:ty),+ $(,)?) => {$(
        impl $crate::decode::Part for $message {
            fn read(
                node: &canopus_base::tree::Node,
                options: $crate::decode::Options,
            ) -> Result<$crate::decode::Decoded<Self>, Vec<$crate::decode::Problem>> {
                $crate::decode::part::read_proto(node, options)
            }

            fn write(&self) -> canopus_base::tree::Node {
                canopus_proto::json::write(self)
            }
        }
    )+};
}

/// Serde types as parts, of which unknown fields are nobody's business. `in Root` for kinds without a spec.
macro_rules! slim {
    ($($part:ident $(in $place:ident)?),+ $(,)?) => {$(
        impl $crate::decode::Part for $part {
            $(const POSITION: $crate::decode::PartPosition = $crate::decode::PartPosition::$place;)?

            fn read(
                node: &canopus_base::tree::Node,
                _: $crate::decode::Options,
            ) -> Result<$crate::decode::Decoded<Self>, Vec<$crate::decode::Problem>> {
                $crate::decode::part::read_slim(node)
            }

            fn write(&self) -> canopus_base::tree::Node {
                $crate::decode::part::write_serde(self)
            }
        }
    )+};
}

/// Serde types as parts, of which unknown fields are reported.
macro_rules! complete {
    ($($part:ty),+ $(,)?) => {$(
        impl $crate::decode::Part for $part {
            fn read(
                node: &canopus_base::tree::Node,
                options: $crate::decode::Options,
            ) -> Result<$crate::decode::Decoded<Self>, Vec<$crate::decode::Problem>> {
                $crate::decode::part::read_complete(node, options)
            }

            fn write(&self) -> canopus_base::tree::Node {
                $crate::decode::part::write_serde(self)
            }
        }
    )+};
}

pub(crate) use {complete, proto, slim};
