//! Parts of Kubernetes objects as templates see them: Go structs with Go's field names and zero values.
//!
//! Where this differs from Go: pointers to numbers and truths are the numbers and truths themselves, so `if` takes one that
//! points to zero for false; quantities, times and `IntOrString` are plain values without methods.

use std::borrow::Cow;

use canopus_api::builtin::{FieldType, StructType};
use canopus_gotemplate::{Budget, Elem, IntKind, List, Map, MapKind, Object, Str, Value};
use serde_json::Value as Json;

/// A struct, of which only the fields that are set are held.
#[derive(Debug)]
pub(super) struct StructObject {
    kind: &'static StructType,
    /// In the order Go declares them; none for a nil pointer.
    fields: Option<Vec<(&'static str, Value)>>,
    is_pointer: bool,
}

impl StructObject {
    /// A struct with what a normalized object has.
    pub(super) fn new(kind: &'static StructType, json: Option<&Json>) -> Self {
        let json = json.and_then(Json::as_object);
        let fields = kind.fields().iter().filter_map(|field| {
            let value = json?.get(field.json_name)?;
            Some((field.json_name, convert(&field.kind, value)))
        });
        Self { kind, fields: Some(fields.collect()), is_pointer: false }
    }
}

fn convert(kind: &FieldType, json: &Json) -> Value {
    match (kind, json) {
        (FieldType::Pointer(inner), json) if !json.is_null() => match inner.as_struct() {
            Some(kind) => {
                Value::object(StructObject { is_pointer: true, ..StructObject::new(kind, Some(json)) })
            }
            None => convert(inner, json),
        },
        (FieldType::Struct(_), json) => match kind.as_struct() {
            Some(kind) => Value::object(StructObject::new(kind, Some(json))),
            None => Value::Nil,
        },
        (FieldType::List(inner), Json::Array(items)) => {
            let elem = if **inner == FieldType::String { Elem::String } else { Elem::Any };
            Value::List(List::typed(elem, items.iter().map(|item| convert(inner, item)).collect()))
        }
        (FieldType::Map(inner), Json::Object(map)) => {
            let entries = map.iter().map(|(key, value)| (Str::from(key.as_str()), convert(inner, value)));
            Value::Map(Map::typed(map_kind(inner), entries.collect()))
        }
        (FieldType::Int32, Json::Number(number)) => {
            Value::Int(number.as_i64().unwrap_or_default(), IntKind::Int32)
        }
        (FieldType::Int64 | FieldType::IntOrString, Json::Number(number)) => {
            Value::int64(number.as_i64().unwrap_or_default())
        }
        (_, Json::Null) => zero(kind),
        (_, json) => Value::from(json.clone()),
    }
}

fn map_kind(inner: &FieldType) -> MapKind {
    if *inner == FieldType::String { MapKind::String } else { MapKind::Any }
}

/// What Go has in a field that nothing was set in.
fn zero(kind: &FieldType) -> Value {
    match kind {
        FieldType::Bool => Value::Bool(false),
        FieldType::Int32 => Value::Int(0, IntKind::Int32),
        FieldType::Int64 | FieldType::IntOrString => Value::int64(0),
        FieldType::Float => Value::Float(0.0),
        FieldType::String | FieldType::Time => Value::string(""),
        FieldType::Quantity => Value::string("0"),
        FieldType::Bytes | FieldType::Any => Value::Nil,
        FieldType::Pointer(inner) => match inner.as_struct() {
            Some(kind) => Value::object(StructObject { kind, fields: None, is_pointer: true }),
            None => Value::Nil,
        },
        FieldType::List(inner) => {
            Value::List(List::nil(if **inner == FieldType::String { Elem::String } else { Elem::Any }))
        }
        FieldType::Map(inner) => Value::Map(Map::nil(map_kind(inner))),
        FieldType::Struct(_) => match kind.as_struct() {
            Some(kind) => Value::object(StructObject::new(kind, None)),
            None => Value::Nil,
        },
    }
}

impl Object for StructObject {
    fn type_name(&self) -> Cow<'static, str> {
        let name = self.kind.name.rsplit('/').next().unwrap_or(self.kind.name);
        if self.is_pointer { format!("*{name}").into() } else { name.into() }
    }

    fn field(&self, name: &str) -> Option<Value> {
        let field = self.kind.go_field(name)?;
        let set = self.fields.iter().flatten().find(|(known, _)| *known == field.json_name);
        Some(set.map_or_else(|| zero(&field.kind), |(_, value)| value.clone()))
    }

    fn is_nil(&self) -> bool {
        self.fields.is_none()
    }

    fn print(&self) -> String {
        if self.is_nil() {
            return "<nil>".to_owned();
        }
        String::from_utf8_lossy(&self.to_json().unwrap_or_default()).into_owned()
    }

    fn to_json(&self) -> Option<Vec<u8>> {
        let Some(fields) = &self.fields else { return Some(b"null".to_vec()) };
        let budget = Budget::default();
        let mut out = vec![b'{'];
        for (at, (name, value)) in fields.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend(format!("\"{name}\":").bytes());
            out.extend(value.to_json(&budget).ok()?);
        }
        out.push(b'}');
        Some(out)
    }

    fn encode(&self) -> Value {
        match &self.fields {
            None => Value::Nil,
            Some(fields) => {
                Value::Map(fields.iter().map(|(name, value)| (*name, value.clone())).collect::<Map>())
            }
        }
    }
}
