//! Reading typed values out of the tree, as Go's `encoding/json` would.
//!
//! Two of its rules shape this file: no value is ever converted between string and number, and `null` means "not
//! given": a struct field that is null is treated as absent, and a null element is its type's zero value.

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::raw::{KEY_WITH_POSITION, NODE_WITH_POSITION, PositionedKey, PositionedNode};
use super::{Entry, Node, Number, Pos, Value};

/// Why a tree does not fit the type it was read into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The field, from the node that was decoded: `spec.http[0].route`. Empty for that node itself.
    pub path: String,
    /// Where the offending value (or the unknown key) stands.
    pub at: Pos,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if self.at.is_known() {
            write!(f, " at {}", self.at)?;
        }
        Ok(())
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { path: String::new(), at: Pos::default(), message: message.to_string() }
    }
}

impl DecodeError {
    /// Gives the error a place unless something further in already did.
    fn located(mut self, at: Pos) -> Self {
        if !self.at.is_known() {
            self.at = at;
        }
        self
    }

    fn under_key(mut self, key: &str) -> Self {
        let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$'));
        let segment = if plain && !key.is_empty() { key.to_owned() } else { format!("[{key:?}]") };
        self.path = match self.path.as_str() {
            "" => segment,
            rest if rest.starts_with('[') => segment + rest,
            rest => format!("{segment}.{rest}"),
        };
        self
    }

    fn under_index(mut self, index: usize) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("[{index}]{separator}{}", self.path);
        self
    }
}

impl Node {
    /// Reads a typed value that may borrow strings from this tree.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DecodeError> {
        T::deserialize(self).map_err(|error| error.located(self.at))
    }

    fn unexpected(&self) -> Unexpected<'_> {
        match &self.value {
            Value::Null => Unexpected::Other("null"),
            Value::Bool(truth) => Unexpected::Bool(*truth),
            Value::Number(Number::Int(int)) => Unexpected::Signed(*int),
            Value::Number(Number::UInt(int)) => Unexpected::Unsigned(*int),
            Value::Number(Number::Float(float)) => Unexpected::Float(*float),
            Value::String(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Seq,
            Value::Map(_) => Unexpected::Map,
        }
    }
}

/// `null` read as a scalar is that type's zero; everything else is read as it stands.
macro_rules! null_is_zero {
    ($($method:ident => $visit:ident($zero:expr),)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            if self.is_null() { visitor.$visit($zero) } else { self.deserialize_any(visitor) }
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Number(Number::Int(int)) => visitor.visit_i64(*int),
            Value::Number(Number::UInt(int)) => visitor.visit_u64(*int),
            Value::Number(Number::Float(float)) => visitor.visit_f64(*float),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { rest: items.iter().enumerate() }),
            Value::Map(map) => visitor.visit_map(Entries::all(map.iter())),
        }
    }

    null_is_zero! {
        deserialize_bool => visit_bool(false),
        deserialize_i8 => visit_i8(0),
        deserialize_i16 => visit_i16(0),
        deserialize_i32 => visit_i32(0),
        deserialize_i64 => visit_i64(0),
        deserialize_u8 => visit_u8(0),
        deserialize_u16 => visit_u16(0),
        deserialize_u32 => visit_u32(0),
        deserialize_u64 => visit_u64(0),
        deserialize_f32 => visit_f32(0.0),
        deserialize_f64 => visit_f64(0.0),
        deserialize_str => visit_borrowed_str(""),
        deserialize_string => visit_borrowed_str(""),
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == NODE_WITH_POSITION {
            return visitor.visit_seq(PositionedNode::new(self));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.is_null() {
            return visitor.visit_seq(SeqDeserializer::<std::iter::Empty<()>, _>::new(std::iter::empty()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.is_null() {
            return visitor
                .visit_map(MapDeserializer::<std::iter::Empty<((), ())>, _>::new(std::iter::empty()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Map(map) => visitor.visit_map(Entries::given(map.iter())),
            Value::Null => self.deserialize_map(visitor),
            // A struct is a mapping in JSON; serde's own habit of reading one from a list is not Go's.
            _ => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::String(text) => visitor.visit_enum(BorrowedStrDeserializer::new(text)),
            Value::Map(map) if map.len() == 1 => {
                visitor.visit_enum(de::value::MapAccessDeserializer::new(Entries::all(map.iter())))
            }
            Value::Map(_) => {
                Err(de::Error::invalid_value(Unexpected::Map, &"a string or a map with a single key"))
            }
            _ => Err(de::Error::invalid_type(self.unexpected(), &"a string or a map with a single key")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

impl<'de> IntoDeserializer<'de, DecodeError> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The items of a list, one by one.
struct Items<'de> {
    rest: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, node)) = self.rest.next() else {
            return Ok(None);
        };
        let value = seed.deserialize(node).map_err(|error| error.located(node.at).under_index(index))?;
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The entries of a map, one by one.
struct Entries<'de> {
    rest: std::slice::Iter<'de, Entry>,
    current: Option<&'de Entry>,
    skip_null: bool,
}

impl<'de> Entries<'de> {
    fn all(rest: std::slice::Iter<'de, Entry>) -> Self {
        Self { rest, current: None, skip_null: false }
    }

    fn given(rest: std::slice::Iter<'de, Entry>) -> Self {
        Self { rest, current: None, skip_null: true }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let skip_null = self.skip_null;
        let Some(entry) = self.rest.find(|entry| !(skip_null && entry.node.is_null())) else {
            return Ok(None);
        };
        self.current = Some(entry);
        let key = seed
            .deserialize(Key(entry))
            .map_err(|error| error.located(entry.key_at).under_key(&entry.key))?;
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some(entry) = self.current.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(&entry.node).map_err(|error| error.located(entry.node.at).under_key(&entry.key))
    }

    fn size_hint(&self) -> Option<usize> {
        (!self.skip_null).then(|| self.rest.len())
    }
}

/// A map's key. Typed keys other than strings are read from their text, as JSON has no others.
struct Key<'de>(&'de Entry);

macro_rules! number_from_key {
    ($($method:ident => $visit:ident($type:ty),)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            match self.0.key.parse::<$type>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => Err(de::Error::invalid_type(Unexpected::Str(&self.0.key), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_str(&self.0.key)
    }

    number_from_key! {
        deserialize_i8 => visit_i8(i8),
        deserialize_i16 => visit_i16(i16),
        deserialize_i32 => visit_i32(i32),
        deserialize_i64 => visit_i64(i64),
        deserialize_u8 => visit_u8(u8),
        deserialize_u16 => visit_u16(u16),
        deserialize_u32 => visit_u32(u32),
        deserialize_u64 => visit_u64(u64),
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == KEY_WITH_POSITION {
            return visitor.visit_seq(PositionedKey::new(self.0));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(BorrowedStrDeserializer::new(&self.0.key))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}
