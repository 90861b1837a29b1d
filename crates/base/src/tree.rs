//! The document tree every decoder reads: what YAML or JSON said, and where it said it.
//!
//! YAML and JSON both become a [`Node`]; typed objects are read from it by `serde` (see [`Node`]'s `Deserializer`
//! implementation) and protobuf specs by `proto`'s JSON reader. Because each node knows its position, an error found at
//! any later stage can still name line and column.

mod decode;
mod json;
mod raw;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;

pub use decode::DecodeError;
pub use read::{Limits, ReadError, ReadErrorKind};
pub(crate) use read::{checked_text, clamp};

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
    /// Any other number.
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

impl Pos {
    /// A position; both count from one.
    pub const fn new(line: u32, column: u32) -> Self {
        Self { line, column }
    }

    /// Whether this names a place in a text, as opposed to a tree built in memory.
    pub const fn is_known(self) -> bool {
        self.line != 0
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Node {
    /// A node standing at `at`.
    pub const fn new(value: Value, at: Pos) -> Self {
        Self { value, at }
    }

    /// Whether this is `null`.
    pub const fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    pub const fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    /// The integer, if this is a number that is one and fits.
    pub const fn as_i64(&self) -> Option<i64> {
        match self.value {
            Value::Number(Number::Int(int)) => Some(int),
            _ => None,
        }
    }

    /// The number as a float, if this is a number.
    pub const fn as_f64(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    /// The items, if this is a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The items for change, if this is a list.
    pub fn as_list_mut(&mut self) -> Option<&mut Vec<Node>> {
        match &mut self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The mapping, if this is one.
    pub const fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The mapping for change, if this is one.
    pub const fn as_map_mut(&mut self) -> Option<&mut Map> {
        match &mut self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The value under `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.get(key)
    }

    /// The value under `key` for change, if this is a mapping that has it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.as_map_mut()?.get_mut(key)
    }

    /// What kind of value this is, in the words of an error message.
    pub const fn kind_name(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Map(_) => "map",
        }
    }

    /// The node at a JSON pointer (RFC 6901): `/spec/http/0/route`, where `""` is the node itself.
    pub fn pointer(&self, path: &str) -> Option<&Node> {
        if path.is_empty() {
            return Some(self);
        }
        path.strip_prefix('/')?.split('/').try_fold(self, |node, token| {
            let token = token.replace("~1", "/").replace("~0", "~");
            match &node.value {
                Value::Map(map) => map.get(&token),
                Value::List(items) => items.get(list_index(&token)?),
                _ => None,
            }
        })
    }
}

/// Reads a pointer's list index: digits alone, no leading zero.
fn list_index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with('0');
    (canonical && token.bytes().all(|b| b.is_ascii_digit())).then(|| token.parse().ok())?
}

impl Number {
    /// The nearest float.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::UInt(int) => int as f64,
            Self::Float(float) => float,
        }
    }
}

impl From<i64> for Number {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<u64> for Number {
    fn from(int: u64) -> Self {
        i64::try_from(int).map_or(Self::UInt(int), Self::Int)
    }
}

impl From<f64> for Number {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => int.fmt(f),
            Self::UInt(int) => int.fmt(f),
            Self::Float(float) => float.fmt(f),
        }
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self::new(value, Pos::default())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Number(int.into())
    }
}

/// A key was given twice to one [`Map`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("key {key:?} already set in map, at {at}")]
pub struct DuplicateKey {
    /// The key.
    pub key: Box<str>,
    /// Where the second use stands.
    pub at: Pos,
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().all(|entry| other.get(&entry.key).is_some_and(|node| *node == entry.node))
    }
}

impl Map {
    /// An empty mapping.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// A mapping of these entries in this order, refused if a key repeats.
    pub fn from_entries(entries: Vec<Entry>) -> Result<Self, DuplicateKey> {
        match first_repeat(&entries) {
            Some(entry) => Err(DuplicateKey { key: entry.key.clone(), at: entry.key_at }),
            None => Ok(Self { entries }),
        }
    }

    /// The entries in source order, taken out.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.get_entry(key).map(|entry| &entry.node)
    }

    /// The value under `key`, for change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|entry| *entry.key == *key).map(|entry| &mut entry.node)
    }

    /// The entry of `key`, with the key's own position.
    pub fn get_entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| *entry.key == *key)
    }

    /// Whether `key` is present, be its value null.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get_entry(key).is_some()
    }

    /// The entries in source order.
    pub fn iter(&self) -> std::slice::Iter<'_, Entry> {
        self.entries.iter()
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets `key` in its present place, or at the end if it is new; gives back the value it replaced.
    pub fn insert(&mut self, key: impl AsRef<str>, node: Node) -> Option<Node> {
        let key = key.as_ref();
        if let Some(present) = self.get_mut(key) {
            return Some(std::mem::replace(present, node));
        }
        self.entries.push(Entry { key: key.into(), key_at: node.at, node });
        None
    }

    /// Adds an entry at the end, refused if the key is there already.
    pub fn push(&mut self, entry: Entry) -> Result<(), DuplicateKey> {
        if self.contains_key(&entry.key) {
            return Err(DuplicateKey { key: entry.key, at: entry.key_at });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Takes `key` out, keeping the order of the rest.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        let index = self.entries.iter().position(|entry| *entry.key == *key)?;
        Some(self.entries.remove(index).node)
    }
}

/// Below this size comparing each pair of keys is cheaper than sorting them.
const SMALL_MAP: usize = 12;

/// The entry that repeats an earlier key, the first such in source order.
fn first_repeat(entries: &[Entry]) -> Option<&Entry> {
    if entries.len() <= SMALL_MAP {
        return (1..entries.len())
            .map(|at| (&entries[at], &entries[..at]))
            .find(|(entry, before)| before.iter().any(|earlier| earlier.key == entry.key))
            .map(|(entry, _)| entry);
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|&a, &b| entries[a].key.cmp(&entries[b].key));
    let repeats = order.windows(2).filter(|pair| entries[pair[0]].key == entries[pair[1]].key);
    repeats.map(|pair| pair[1]).min().map(|at| &entries[at])
}

impl<'a> IntoIterator for &'a Map {
    type Item = &'a Entry;
    type IntoIter = std::slice::Iter<'a, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: AsRef<str>> FromIterator<(K, Node)> for Map {
    /// Collects pairs; of equal keys the last one wins.
    fn from_iter<I: IntoIterator<Item = (K, Node)>>(pairs: I) -> Self {
        let mut map = Self::new();
        for (key, node) in pairs {
            map.insert(key, node);
        }
        map
    }
}
