//! The tree as plain JSON values, and its serde output.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Entry, Map, Node, Number, Pos, Value};

impl Node {
    /// The same content as a JSON value; positions are lost, and a float that JSON cannot say becomes null.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(truth) => (*truth).into(),
            Value::Number(Number::Int(int)) => (*int).into(),
            Value::Number(Number::UInt(int)) => (*int).into(),
            Value::Number(Number::Float(float)) => (*float).into(),
            Value::String(text) => (&**text).into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(map) => {
                serde_json::Value::Object(map.iter().map(|e| (e.key.to_string(), e.node.to_json())).collect())
            }
        }
    }
}

impl From<serde_json::Value> for Node {
    fn from(json: serde_json::Value) -> Self {
        let value = match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(truth) => Value::Bool(truth),
            serde_json::Value::Number(number) => Value::Number(from_json_number(&number)),
            serde_json::Value::String(text) => Value::String(text.into()),
            serde_json::Value::Array(items) => Value::List(items.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(object) => Value::Map(Map {
                entries: object
                    .into_iter()
                    .map(|(key, json)| Entry { key: key.into(), key_at: Pos::default(), node: json.into() })
                    .collect(),
            }),
        };
        value.into()
    }
}

fn from_json_number(number: &serde_json::Number) -> Number {
    if let Some(int) = number.as_i64() {
        Number::Int(int)
    } else if let Some(int) = number.as_u64() {
        Number::UInt(int)
    } else {
        Number::Float(number.as_f64().unwrap_or(f64::NAN))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(truth) => serializer.serialize_bool(*truth),
            Value::Number(Number::Int(int)) => serializer.serialize_i64(*int),
            Value::Number(Number::UInt(int)) => serializer.serialize_u64(*int),
            Value::Number(Number::Float(float)) => serializer.serialize_f64(*float),
            Value::String(text) => serializer.serialize_str(text),
            Value::List(items) => serializer.collect_seq(items),
            Value::Map(map) => map.serialize(serializer),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut output = serializer.serialize_map(Some(self.len()))?;
        for entry in self {
            output.serialize_entry(&*entry.key, &entry.node)?;
        }
        output.end()
    }
}
