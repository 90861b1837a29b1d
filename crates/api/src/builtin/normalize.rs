//! An object as Go would encode it after decoding it.

use canopus_base::quantity::Quantity;
use serde_json::{Map, Value as Json};

use super::table::{Field, FieldType, StructType};

/// A value has another type than its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: cannot unmarshal {found} into Go value of type {expected}")]
pub struct TypeError {
    /// Where it stands, from the object's top: `spec.containers[0].image`.
    pub path: String,
    /// The kind of value that stands there.
    pub found: &'static str,
    /// The type of the field, in Go's words.
    pub expected: String,
}

/// How deep objects nest. Kubernetes' own types end long before.
const MAX_DEPTH: u32 = 100;

impl StructType {
    /// Brings an object of this type to the form Go encodes: empty values are left out or filled in field by field, quantities
    /// are canonical, nulls are gone. Fields that the type does not have stay.
    pub fn normalize(&self, object: &mut Json) -> Result<(), TypeError> {
        normalize_struct(self, object, 0).map_err(|mut error| {
            error.path = error.path.trim_start_matches('.').to_owned();
            error
        })
    }

    /// The path of a field that the type does not have.
    pub fn unknown_field(&self, object: &Json) -> Option<String> {
        unknown_in_struct(self, object).map(|path| path.trim_start_matches('.').to_owned())
    }

    /// What Go encodes for a struct that nothing was set in.
    pub fn zero(&self) -> Json {
        let mut map = Map::new();
        add_missing(self, &mut map);
        Json::Object(map)
    }
}

impl StructType {
    /// Writes a normalized object on one line, with the fields in the order Go declares them; those that the type does not have
    /// come last.
    pub fn write_json(&self, object: &Json, out: &mut String) {
        write_struct(self, object, out);
    }
}

fn unknown_in_struct(kind: &StructType, object: &Json) -> Option<String> {
    object.as_object()?.iter().find_map(|(name, value)| match kind.field(name) {
        None => Some(format!(".{name}")),
        Some(field) => Some(format!(".{name}{}", unknown_in_value(&field.kind, value)?)),
    })
}

fn unknown_in_value(kind: &FieldType, value: &Json) -> Option<String> {
    match kind {
        FieldType::Pointer(inner) => unknown_in_value(inner, value),
        FieldType::Struct(_) => unknown_in_struct(kind.as_struct()?, value),
        FieldType::List(inner) => {
            let mut items = value.as_array()?.iter().enumerate();
            items.find_map(|(at, item)| Some(format!("[{at}]{}", unknown_in_value(inner, item)?)))
        }
        _ => None,
    }
}

fn write_struct(kind: &StructType, object: &Json, out: &mut String) {
    let Json::Object(map) = object else { return out.push_str(&object.to_string()) };
    let known = kind
        .fields()
        .iter()
        .filter_map(|field| Some((field.json_name, map.get(field.json_name)?, Some(field))));
    let unknown = map.iter().filter(|(name, _)| kind.field(name).is_none());
    let unknown = unknown.map(|(name, value)| (name.as_str(), value, None));
    out.push('{');
    for (at, (name, value, field)) in known.chain(unknown).enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&escaped(&Json::String(name.to_owned())));
        out.push(':');
        match field {
            Some(field) => write_value(&field.kind, value, out),
            None => out.push_str(&escaped(value)),
        }
    }
    out.push('}');
}

fn write_value(kind: &FieldType, value: &Json, out: &mut String) {
    match (kind, value) {
        (FieldType::Pointer(inner), value) => write_value(inner, value, out),
        (FieldType::Struct(_), Json::Object(_)) => match kind.as_struct() {
            Some(kind) => write_struct(kind, value, out),
            None => out.push_str(&escaped(value)),
        },
        (FieldType::List(inner), Json::Array(items)) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(inner, item, out);
            }
            out.push(']');
        }
        _ => out.push_str(&escaped(value)),
    }
}

/// JSON with the characters escaped that Go escapes for the sake of HTML. They can only stand in strings.
fn escaped(value: &Json) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn normalize_struct(kind: &StructType, object: &mut Json, depth: u32) -> Result<(), TypeError> {
    let map = match object {
        Json::Object(map) => map,
        Json::Null => {
            *object = kind.zero();
            return Ok(());
        }
        other => return Err(mismatch(other, &FieldType::Struct(kind.name))),
    };
    let mut failure = None;
    map.retain(|name, value| {
        let Some(field) = kind.field(name) else { return true };
        if failure.is_some() {
            return true;
        }
        if let Err(mut error) = normalize_value(&field.kind, value, depth + 1) {
            error.path = format!(".{name}{}", error.path);
            failure = Some(error);
            return true;
        }
        !is_omitted(field, value)
    });
    if let Some(error) = failure {
        return Err(error);
    }
    add_missing(kind, map);
    Ok(())
}

fn normalize_value(kind: &FieldType, value: &mut Json, depth: u32) -> Result<(), TypeError> {
    if depth > MAX_DEPTH {
        return Err(mismatch(value, kind));
    }
    match kind {
        FieldType::Any => Ok(()),
        FieldType::Struct(_) => match kind.as_struct() {
            Some(kind) => normalize_struct(kind, value, depth),
            None => Ok(()),
        },
        FieldType::Pointer(_) | FieldType::List(_) | FieldType::Map(_) if value.is_null() => Ok(()),
        FieldType::Pointer(inner) => normalize_value(inner, value, depth),
        FieldType::List(inner) => {
            let Json::Array(items) = value else { return Err(mismatch(value, kind)) };
            for (at, item) in items.iter_mut().enumerate() {
                normalize_value(inner, item, depth + 1).map_err(|mut error| {
                    error.path = format!("[{at}]{}", error.path);
                    error
                })?;
            }
            Ok(())
        }
        FieldType::Map(inner) => {
            let Json::Object(map) = value else { return Err(mismatch(value, kind)) };
            for (key, item) in map.iter_mut() {
                normalize_value(inner, item, depth + 1).map_err(|mut error| {
                    error.path = format!(".{key}{}", error.path);
                    error
                })?;
            }
            Ok(())
        }
        scalar => normalize_scalar(scalar, value),
    }
}

fn normalize_scalar(kind: &FieldType, value: &mut Json) -> Result<(), TypeError> {
    let fits = match (kind, &*value) {
        (FieldType::Time, _) if value.is_null() => true,
        (_, Json::Null) => {
            *value = zero(kind);
            true
        }
        (FieldType::Bool, Json::Bool(_)) => true,
        (FieldType::Int32, Json::Number(number)) => {
            number.as_i64().is_some_and(|int| i32::try_from(int).is_ok() || u32::try_from(int).is_ok())
        }
        (FieldType::Int64, Json::Number(number)) => number.is_i64() || number.is_u64(),
        (FieldType::Float, Json::Number(_)) => true,
        (FieldType::String | FieldType::Time | FieldType::Bytes, Json::String(_)) => true,
        (FieldType::IntOrString, Json::String(_)) => true,
        (FieldType::IntOrString, Json::Number(number)) => number.is_i64(),
        (FieldType::Quantity, Json::String(text)) => match text.trim().parse::<Quantity>() {
            Ok(quantity) => {
                let canonical = quantity.canonical();
                if *text != canonical {
                    *value = Json::String(canonical);
                }
                true
            }
            Err(_) => false,
        },
        (FieldType::Quantity, Json::Number(number)) => match number.to_string().parse::<Quantity>() {
            Ok(quantity) => {
                *value = Json::String(quantity.canonical());
                true
            }
            Err(_) => false,
        },
        _ => false,
    };
    if fits { Ok(()) } else { Err(mismatch(value, kind)) }
}

/// Whether Go leaves the value out when it encodes the field.
fn is_omitted(field: &Field, value: &Json) -> bool {
    if field.omit_zero && matches!(field.kind, FieldType::Time) && value.is_null() {
        return true;
    }
    if !field.omit_empty {
        return false;
    }
    match (&field.kind, value) {
        (FieldType::Pointer(_), value) => value.is_null(),
        // A struct is never empty to Go, and these three are structs.
        (FieldType::Struct(_) | FieldType::Time | FieldType::Quantity | FieldType::IntOrString, _) => false,
        (_, Json::Null) => true,
        (_, Json::Bool(truth)) => !truth,
        (_, Json::Number(number)) => number.as_f64() == Some(0.0),
        (_, Json::String(text)) => text.is_empty(),
        (_, Json::Array(items)) => items.is_empty(),
        (_, Json::Object(map)) => map.is_empty(),
    }
}

/// Adds the fields that Go always encodes.
fn add_missing(kind: &StructType, map: &mut Map<String, Json>) {
    for field in kind.fields() {
        let is_struct = matches!(
            field.kind,
            FieldType::Struct(_) | FieldType::Time | FieldType::Quantity | FieldType::IntOrString
        );
        let always = (!field.omit_empty || is_struct) && !field.omit_zero;
        if always && !map.contains_key(field.json_name) {
            map.insert(field.json_name.to_owned(), zero(&field.kind));
        }
    }
}

fn zero(kind: &FieldType) -> Json {
    match kind {
        FieldType::Bool => Json::Bool(false),
        FieldType::Int32 | FieldType::Int64 | FieldType::Float | FieldType::IntOrString => Json::from(0),
        FieldType::String => Json::String(String::new()),
        FieldType::Quantity => Json::String("0".to_owned()),
        FieldType::Struct(_) => kind.as_struct().map_or_else(|| Json::Object(Map::new()), StructType::zero),
        FieldType::Time
        | FieldType::Bytes
        | FieldType::Any
        | FieldType::Pointer(_)
        | FieldType::List(_)
        | FieldType::Map(_) => Json::Null,
    }
}

fn mismatch(found: &Json, expected: &FieldType) -> TypeError {
    let found = match found {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    TypeError { path: String::new(), found, expected: expected.go_name() }
}
