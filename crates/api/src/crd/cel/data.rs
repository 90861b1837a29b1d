//! The object as values: what its schema makes of it.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use canopus_base::tree::{self, Node, Number};
use jiff::tz::TimeZone;

use super::error::{EvalError, Result};
use super::program::{escape, unescape};
use super::value::{List, Map, Text, Value};
use crate::crd::check::{date, duration, instant};
use crate::crd::schema::{Schema, Type};

/// A list of the object.
#[derive(Clone, Copy, Debug)]
pub(in crate::crd) struct Items<'a> {
    items: &'a [Node],
    schema: &'a Schema,
}

/// A map or an object within the object.
#[derive(Clone, Copy, Debug)]
pub(in crate::crd) struct Entries<'a> {
    map: &'a tree::Map,
    schema: &'a Schema,
    /// Whether it is an object with fields, not a map with keys.
    has_fields: bool,
    /// Whether it is a whole object of Kubernetes.
    is_object: bool,
}

/// The fields of every object of Kubernetes that rules may look at.
static OBJECT: LazyLock<Schema> = LazyLock::new(|| {
    let string = || Schema { kind: Some(Type::String), ..Schema::default() };
    let object = |properties: Vec<(&str, Schema)>| Schema {
        kind: Some(Type::Object),
        properties: properties.into_iter().map(|(name, schema)| (name.into(), schema)).collect(),
        ..Schema::default()
    };
    let metadata = object(vec![("name", string()), ("generateName", string())]);
    object(vec![("apiVersion", string()), ("kind", string()), ("metadata", metadata)])
});

impl<'a> Value<'a> {
    /// What a schema makes of a part of the object.
    pub(in crate::crd) fn from_node(node: &'a Node, schema: &'a Schema) -> Result<Self> {
        Self::from_object_node(node, schema, schema.is_embedded_object)
    }

    /// As [`Value::from_node`]; `is_object` says whether it is a whole object of Kubernetes.
    pub(in crate::crd) fn from_object_node(
        node: &'a Node,
        schema: &'a Schema,
        is_object: bool,
    ) -> Result<Self> {
        let wrong = |expected: &str| {
            Err(EvalError::new(format!("invalid data, expected {expected}, got {}", node.kind_name())))
        };
        if node.is_null() {
            let message = "invalid data, got null for schema with nullable=false";
            return if schema.nullable { Ok(Self::Null) } else { Err(EvalError::new(message)) };
        }
        if schema.int_or_string {
            return match &node.value {
                tree::Value::String(text) => Ok(Self::from(&**text)),
                tree::Value::Number(Number::Int(int)) => Ok(Self::Int(*int)),
                _ => Err(EvalError::new(
                    "invalid data, expected XIntOrString value to be either a string or integer",
                )),
            };
        }
        match (schema.kind, &node.value) {
            (Some(Type::Object), tree::Value::Map(map)) => {
                let has_fields = is_object || schema.values().is_none();
                Ok(Self::Map(Map::Data(Entries { map, schema, has_fields, is_object })))
            }
            (Some(Type::Array), tree::Value::List(items)) => match schema.items.as_deref() {
                Some(schema) => Ok(Self::List(List::Data(Items { items, schema }))),
                None => Err(EvalError::new("invalid array type, expected Items with a non-empty Schema")),
            },
            (Some(Type::String), tree::Value::String(text)) => string(text, schema),
            (Some(Type::Number), tree::Value::Number(number)) => Ok(Self::Double(number.as_f64())),
            (Some(Type::Integer), tree::Value::Number(Number::Int(int))) => Ok(Self::Int(*int)),
            (Some(Type::Boolean), tree::Value::Bool(truth)) => Ok(Self::Bool(*truth)),
            (Some(kind), _) => wrong(kind.name()),
            (None, _) => wrong("a value of a type that the schema gives"),
        }
    }
}

/// A text, or what its format says it stands for.
fn string<'a>(text: &'a str, schema: &Schema) -> Result<Value<'a>> {
    let invalid = |what: &str| EvalError::new(format!("Invalid {what} {text}"));
    match schema.format.as_deref() {
        Some("duration") => duration(text).map(Value::Duration).ok_or_else(|| invalid("duration")),
        Some("date") => {
            let midnight = |date: jiff::civil::Date| date.to_zoned(TimeZone::UTC).ok();
            let at = date(text).and_then(midnight).ok_or_else(|| invalid("date formatted string"))?;
            Ok(Value::Timestamp(at.timestamp()))
        }
        Some("date-time") => {
            instant(text).map(Value::Timestamp).ok_or_else(|| invalid("date-time formatted string"))
        }
        Some("byte") => {
            let bytes = URL_SAFE.decode(text).map_err(|_| invalid("byte formatted string"))?;
            Ok(Value::Bytes(Arc::from(bytes)))
        }
        _ => Ok(Value::from(text)),
    }
}

impl<'a> Items<'a> {
    pub(super) const fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn get(&self, index: usize) -> Result<Value<'a>> {
        match self.items.get(index) {
            Some(node) => Value::from_node(node, self.schema),
            None => Err(EvalError::new(format!("index out of bounds: {index}"))),
        }
    }
}

impl<'a> Entries<'a> {
    pub(super) const fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn keys(&self) -> Vec<Value<'a>> {
        let key = |entry: &'a tree::Entry| match escape(&entry.key) {
            Some(escaped) if self.has_fields => Value::String(Text::Shared(escaped.into())),
            _ => Value::from(&*entry.key),
        };
        self.map.iter().map(key).collect()
    }

    pub(super) fn find(&self, key: &str) -> Result<Option<Value<'a>>> {
        if !self.has_fields {
            return self.value(key);
        }
        unescape(key).map_or(Ok(None), |name| self.value(&name))
    }

    fn value(&self, key: &str) -> Result<Option<Value<'a>>> {
        let Some(node) = self.map.get(key) else { return Ok(None) };
        // A field that is null is as good as absent; a key that is null is there.
        if node.is_null() && self.has_fields {
            return Ok(None);
        }
        let of_every_object = || if self.is_object { OBJECT.properties.get(key) } else { None };
        match self.schema.under(key).or_else(of_every_object) {
            Some(schema) => Value::from_node(node, schema).map(Some),
            None => Ok(None),
        }
    }
}
