//! Values from Rust's own and from documents, and documents from values.

use std::collections::BTreeMap;

use canopus_base::tree::{Node, Value as Tree};

use super::{List, Map, MapKind, Str, Value};

macro_rules! from {
    ($($source:ty => |$name:ident| $make:expr;)*) => {$(
        impl From<$source> for Value {
            fn from($name: $source) -> Self {
                $make
            }
        }
    )*};
}

from! {
    bool => |truth| Self::Bool(truth);
    i64 => |int| Self::int(int);
    f64 => |float| Self::Float(float);
    &str => |text| Self::String(text.into());
    String => |text| Self::String(text.into());
    Str => |text| Self::String(text);
    List => |list| Self::List(list);
    Map => |map| Self::Map(map);
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nil, Into::into)
    }
}

/// A document as Helm and Istio read it: every number is a `float64`.
impl From<&Node> for Value {
    fn from(node: &Node) -> Self {
        match &node.value {
            Tree::Null => Self::Nil,
            Tree::Bool(truth) => Self::Bool(*truth),
            Tree::Number(number) => Self::Float(number.as_f64()),
            Tree::String(text) => Self::String(Str::from(&**text)),
            Tree::List(items) => Self::list(items.iter().map(Self::from)),
            Tree::Map(map) => {
                let entries = map.iter().map(|entry| (Str::from(&*entry.key), Self::from(&entry.node)));
                Self::Map(Map::typed(MapKind::Any, entries.collect::<BTreeMap<_, _>>()))
            }
        }
    }
}

/// A JSON value as Go's `encoding/json` decodes it into an `interface {}`: every number is a `float64`.
impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Nil,
            Json::Bool(truth) => Self::Bool(truth),
            Json::Number(number) => Self::Float(number.as_f64().unwrap_or_default()),
            Json::String(text) => Self::String(text.into()),
            Json::Array(items) => Self::list(items.into_iter().map(Self::from)),
            Json::Object(map) => Self::map(map),
        }
    }
}
