//! A [`Node`] as a field of a typed struct: `Deserialize` that keeps positions when read from a tree.
//!
//! Serde has no place for positions, so a `Node` asks for a newtype of a private name. Our own deserializer knows the
//! name and answers with the sequence (line, column, value); any other format falls back to the plain value.

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, U32Deserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

use super::{DecodeError, Entry, Map, Node, Pos, Value};

pub(super) const NODE_WITH_POSITION: &str = "$canopus::tree::Node";
pub(super) const KEY_WITH_POSITION: &str = "$canopus::tree::Key";

/// Serves a node as (line, column, value).
pub(super) struct PositionedNode<'de> {
    node: &'de Node,
    step: u8,
}

impl<'de> PositionedNode<'de> {
    pub(super) fn new(node: &'de Node) -> Self {
        Self { node, step: 0 }
    }
}

impl<'de> de::SeqAccess<'de> for PositionedNode<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.step += 1;
        match self.step {
            1 => seed.deserialize(number(self.node.at.line)).map(Some),
            2 => seed.deserialize(number(self.node.at.column)).map(Some),
            3 => seed.deserialize(self.node).map(Some),
            _ => Ok(None),
        }
    }
}

/// Serves a key as (line, column, text).
pub(super) struct PositionedKey<'de> {
    entry: &'de Entry,
    step: u8,
}

impl<'de> PositionedKey<'de> {
    pub(super) fn new(entry: &'de Entry) -> Self {
        Self { entry, step: 0 }
    }
}

impl<'de> de::SeqAccess<'de> for PositionedKey<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.step += 1;
        match self.step {
            1 => seed.deserialize(number(self.entry.key_at.line)).map(Some),
            2 => seed.deserialize(number(self.entry.key_at.column)).map(Some),
            3 => seed.deserialize(BorrowedStrDeserializer::new(&self.entry.key)).map(Some),
            _ => Ok(None),
        }
    }
}

fn number(int: u32) -> U32Deserializer<DecodeError> {
    int.into_deserializer()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NODE_WITH_POSITION, NodeVisitor)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;

        impl<'de> Visitor<'de> for MapVisitor {
            type Value = Map;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, access: A) -> Result<Map, A::Error> {
                read_map(access)
            }
        }

        deserializer.deserialize_map(MapVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Node::from)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let at = read_pos(&mut access)?;
        let value = access.next_element_seed(AnyValue)?;
        Ok(Node::new(value.unwrap_or_default(), at))
    }
}

fn read_pos<'de, A: de::SeqAccess<'de>>(access: &mut A) -> Result<Pos, A::Error> {
    let line = access.next_element()?.unwrap_or_default();
    let column = access.next_element()?.unwrap_or_default();
    Ok(Pos { line, column })
}

fn read_map<'de, A: de::MapAccess<'de>>(mut access: A) -> Result<Map, A::Error> {
    let mut entries = Vec::new();
    while let Some((key_at, key)) = access.next_key_seed(AnyKey)? {
        entries.push(Entry { key, key_at, node: access.next_value()? });
    }
    Map::from_entries(entries).map_err(de::Error::custom)
}

struct AnyKey;

impl<'de> DeserializeSeed<'de> for AnyKey {
    type Value = (Pos, Box<str>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_newtype_struct(KEY_WITH_POSITION, KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = (Pos, Box<str>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Ok((Pos::default(), Box::deserialize(deserializer)?))
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok((Pos::default(), key.into()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let at = read_pos(&mut access)?;
        Ok((at, access.next_element()?.unwrap_or_default()))
    }
}

struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: de::Error>(self, int: i64) -> Result<Value, E> {
        Ok(Value::Number(int.into()))
    }

    fn visit_u64<E: de::Error>(self, int: u64) -> Result<Value, E> {
        Ok(Value::Number(int.into()))
    }

    fn visit_f64<E: de::Error>(self, float: f64) -> Result<Value, E> {
        Ok(Value::Number(float.into()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(node) = access.next_element()? {
            items.push(node);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        read_map(access).map(Value::Map)
    }
}
