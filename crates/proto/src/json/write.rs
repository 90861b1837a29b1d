//! Wire bytes to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_base::tree::{Map, Node, Number, Value as Json};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use super::read::has_own_json;
use crate::google::protobuf::{Duration, Timestamp};
use crate::{Any, descriptors};

pub(super) fn message(message: &DynamicMessage) -> Node {
    let descriptor = message.descriptor();
    let json = match descriptor.full_name().strip_prefix("google.protobuf.") {
        Some("Any") => any(message),
        Some("Duration") => {
            let (seconds, nanos) = seconds_and_nanos(message);
            Duration { seconds, nanos }.to_json().map_or(Json::Null, Json::from)
        }
        Some("Timestamp") => {
            let (seconds, nanos) = seconds_and_nanos(message);
            Timestamp { seconds, nanos }.to_json().map_or(Json::Null, Json::from)
        }
        Some("Struct") => field(message, 1).map_or_else(|| Json::Map(Map::new()), |f| entries(&f.0, &f.1)),
        Some("ListValue") => field(message, 1).map_or_else(|| Json::List(Vec::new()), |f| value(&f.0, &f.1)),
        Some("Value") => message.fields().next().map_or(Json::Null, |(f, v)| struct_value(&f, v)),
        Some("FieldMask") => field_mask(message),
        Some(name) if name.ends_with("Value") => {
            let inner = descriptor.get_field(1).expect("a wrapper has a value");
            value(&inner, &message.get_field(&inner))
        }
        _ => Json::Map(object(message)),
    };
    json.into()
}

fn object(message: &DynamicMessage) -> Map {
    message.fields().map(|(field, v)| (field.json_name().to_owned(), value(&field, v).into())).collect()
}

fn field(message: &DynamicMessage, number: u32) -> Option<(FieldDescriptor, Value)> {
    let field = message.descriptor().get_field(number)?;
    message.has_field(&field).then(|| (field.clone(), message.get_field(&field).into_owned()))
}

fn value(field: &FieldDescriptor, v: &Value) -> Json {
    match v {
        Value::List(items) => Json::List(items.iter().map(|item| Node::from(single(field, item))).collect()),
        Value::Map(_) => entries(field, v),
        single_value => single(field, single_value),
    }
}

fn entries(field: &FieldDescriptor, v: &Value) -> Json {
    let Value::Map(map) = v else { return Json::Null };
    let kind = field.kind();
    let value_field = kind.as_message().expect("a map field holds entries").map_entry_value_field();
    // The keys of a hash map have no order of their own.
    let mut sorted: Vec<_> = map.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(b.0));
    Json::Map(sorted.into_iter().map(|(k, v)| (key(k), Node::from(single(&value_field, v)))).collect())
}

fn key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(b) => b.to_string(),
        MapKey::I32(n) => n.to_string(),
        MapKey::I64(n) => n.to_string(),
        MapKey::U32(n) => n.to_string(),
        MapKey::U64(n) => n.to_string(),
        MapKey::String(s) => s.clone(),
    }
}

fn single(field: &FieldDescriptor, v: &Value) -> Json {
    match v {
        Value::Bool(b) => Json::Bool(*b),
        Value::I32(n) => Json::Number(Number::Int(i64::from(*n))),
        Value::U32(n) => Json::Number(Number::Int(i64::from(*n))),
        // 64-bit integers are text: JavaScript's numbers cannot hold them.
        Value::I64(n) => Json::from(n.to_string()),
        Value::U64(n) => Json::from(n.to_string()),
        // Through text, so that 0.1f32 is written 0.1 and not as the nearest double.
        Value::F32(n) if n.is_finite() => float(n.to_string().parse().unwrap_or_else(|_| f64::from(*n))),
        Value::F32(n) => float(f64::from(*n)),
        Value::F64(n) => float(*n),
        Value::String(s) => Json::from(s.as_str()),
        Value::Bytes(b) => Json::from(STANDARD.encode(b)),
        Value::EnumNumber(n) => enumeration(field, *n),
        Value::Message(m) => message(m).value,
        Value::List(_) | Value::Map(_) => unreachable!("lists and maps do not nest directly"),
    }
}

fn enumeration(field: &FieldDescriptor, number: i32) -> Json {
    let kind = field.kind();
    let Kind::Enum(descriptor) = &kind else {
        return Json::Null;
    };
    if descriptor.full_name() == "google.protobuf.NullValue" {
        return Json::Null;
    }
    match descriptor.get_value(number) {
        Some(value) => Json::from(value.name()),
        None => Json::Number(Number::Int(i64::from(number))),
    }
}

fn float(n: f64) -> Json {
    if n.is_nan() {
        Json::from("NaN")
    } else if n.is_infinite() {
        Json::from(if n > 0.0 { "Infinity" } else { "-Infinity" })
    } else if n.fract() == 0.0 && n.abs() < 1e15 && !(n == 0.0 && n.is_sign_negative()) {
        #[allow(clippy::cast_possible_truncation, reason = "integral and far inside i64")]
        Json::Number(Number::Int(n as i64))
    } else {
        Json::Number(Number::Float(n))
    }
}

fn struct_value(field: &FieldDescriptor, v: &Value) -> Json {
    match v {
        Value::EnumNumber(_) => Json::Null,
        other => single(field, other),
    }
}

fn seconds_and_nanos(message: &DynamicMessage) -> (i64, i32) {
    let seconds = field(message, 1).and_then(|(_, v)| v.as_i64()).unwrap_or_default();
    let nanos = field(message, 2).and_then(|(_, v)| v.as_i32()).unwrap_or_default();
    (seconds, nanos)
}

fn field_mask(message: &DynamicMessage) -> Json {
    let paths = field(message, 1).map(|(_, v)| v);
    let paths = paths.as_ref().and_then(Value::as_list).unwrap_or_default();
    Json::from(paths.iter().filter_map(Value::as_str).map(camel_case).collect::<Vec<_>>().join(","))
}

fn camel_case(snake: &str) -> String {
    let mut upper = false;
    let mut camel = String::with_capacity(snake.len());
    for c in snake.chars() {
        if c == '_' {
            upper = true;
        } else {
            camel.push(if upper { c.to_ascii_uppercase() } else { c });
            upper = false;
        }
    }
    camel
}

/// An `Any` whose type or bytes we cannot read is shown with its raw value rather than lost.
fn any(message_: &DynamicMessage) -> Json {
    let any: Any = descriptors::from_dynamic(message_).unwrap_or_default();
    if any == Any::default() {
        return Json::Map(Map::new());
    }
    let mut map = Map::new();
    map.insert("@type", Json::from(any.type_url.as_str()).into());
    match descriptors::open(&any) {
        Some(Ok(inner)) if has_own_json(any.message_name()) => {
            map.insert("value", message(&inner));
        }
        Some(Ok(inner)) => {
            for entry in object(&inner).into_entries() {
                map.insert(entry.key, entry.node);
            }
        }
        _ => {
            map.insert("value", Json::from(STANDARD.encode(&any.value)).into());
        }
    }
    Json::Map(map)
}
