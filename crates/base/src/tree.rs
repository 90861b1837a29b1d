//! The document tree every decoder reads: what YAML or JSON said, and where it said it.
//!
//! YAML and JSON both become a [`Node`]; typed objects are read from it by `serde` (see [`Node`]'s `Deserializer`
//! implementation) and protobuf specs by `proto`'s JSON reader. Because each node knows its position, an error found at
//! any later stage can still name line and column.

use std::fmt;

/// Where a node starts in its source text; both count from one, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pos {
    /// Line, from 1. Zero means "not from a text" (a tree built in memory).
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A value and the place it came from. Equality ignores the place.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// What stands there.
    pub value: Value,
    /// Where it starts.
    pub at: Pos,
}

/// JSON's value space, with integers kept exact.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null`, or an empty YAML scalar.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(Box<str>),
    /// A list.
    List(Vec<Node>),
    /// A mapping.
    Map(Map),
}

/// An exact integer where possible, else a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Fits `i64`.
    Int(i64),
    /// Above `i64::MAX`, fits `u64`.
    UInt(u64),
    /// Anything else.
    Float(f64),
}

/// A mapping in source order. Keys are unique: the readers refuse duplicates.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: Vec<Entry>,
}

/// One `key: value` of a [`Map`].
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key, always a string as in JSON.
    pub key: Box<str>,
    /// Where the key starts.
    pub key_at: Pos,
    /// The value.
    pub node: Node,
}
