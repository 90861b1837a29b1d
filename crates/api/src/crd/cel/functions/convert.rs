//! Conversion from one type to another.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Builtin, Cost, global, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::{Text, Value};
use crate::text::number;

pub(super) const BUILTINS: &[Builtin] = &[
    global("bool", 1..=1, Cost::One, to_bool),
    global("bytes", 1..=1, Cost::Read, to_bytes),
    global("double", 1..=1, Cost::One, to_double),
    global("duration", 1..=1, Cost::One, to_duration),
    global("dyn", 1..=1, Cost::One, |_, mut args| Ok(args.remove(0))),
    global("int", 1..=1, Cost::One, to_int),
    global("string", 1..=1, Cost::Read, |_, args| text_of(&args[0]).map(Value::String)),
    global("timestamp", 1..=1, Cost::One, to_timestamp),
    global("type", 1..=1, Cost::One, |_, args| Ok(Value::Type(args[0].type_name()))),
    global("uint", 1..=1, Cost::One, to_uint),
];

/// The types expressions can name.
const TYPES: [&str; 13] = [
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// The type of this name.
pub(in crate::crd::cel) fn type_named(name: &str) -> Option<&'static str> {
    TYPES.into_iter().find(|known| *known == name)
}

/// The bounds within which a float has an integer.
const INT_LIMIT: f64 = 9_223_372_036_854_775_808.0;
const UINT_LIMIT: f64 = 18_446_744_073_709_551_616.0;

fn to_bool<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bool(truth) => Ok((*truth).into()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true.into()),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false.into()),
            _ => Err(EvalError::conversion("string", "bool")),
        },
        _ => no_overload(),
    }
}

fn to_bytes<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(Arc::clone(bytes))),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => no_overload(),
    }
}

fn to_double<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    Ok(Value::Double(match &args[0] {
        Value::Double(double) => *double,
        Value::Int(int) => *int as f64,
        Value::UInt(uint) => *uint as f64,
        Value::String(text) => text.parse().map_err(|_| EvalError::conversion("string", "double"))?,
        _ => return no_overload(),
    }))
}

fn to_int<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    Ok(Value::Int(match &args[0] {
        Value::Int(int) => *int,
        Value::UInt(uint) => i64::try_from(*uint).map_err(|_| EvalError::out_of_range("integer"))?,
        Value::Double(double) if double.abs() < INT_LIMIT => *double as i64,
        Value::Double(_) => return Err(EvalError::out_of_range("integer")),
        Value::String(text) => text.parse().map_err(|_| EvalError::conversion("string", "int"))?,
        Value::Duration(duration) => duration.as_nanos(),
        Value::Timestamp(at) => at.as_second(),
        _ => return no_overload(),
    }))
}

fn to_uint<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let overflow = || EvalError::out_of_range("unsigned integer");
    Ok(Value::UInt(match &args[0] {
        Value::UInt(uint) => *uint,
        Value::Int(int) => u64::try_from(*int).map_err(|_| overflow())?,
        Value::Double(double) if (0.0..UINT_LIMIT).contains(double) => *double as u64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => text.parse().map_err(|_| EvalError::conversion("string", "uint"))?,
        _ => return no_overload(),
    }))
}

fn to_duration<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Duration(duration) => Ok(Value::Duration(*duration)),
        Value::Int(nanos) => Ok(Value::Duration(canopus_base::duration::Duration::from_nanos(*nanos))),
        Value::String(text) => {
            let parsed =
                text.parse().map_err(|_| EvalError::conversion("string", "google.protobuf.Duration"))?;
            Ok(Value::Duration(parsed))
        }
        _ => no_overload(),
    }
}

fn to_timestamp<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let wrong = || EvalError::conversion("string", "google.protobuf.Timestamp");
    match &args[0] {
        Value::Timestamp(at) => Ok(Value::Timestamp(*at)),
        Value::Int(seconds) => {
            let at = Timestamp::from_second(*seconds).map_err(|_| EvalError::out_of_range("timestamp"))?;
            Ok(Value::Timestamp(at))
        }
        Value::String(text) => text.parse().map(Value::Timestamp).map_err(|_| wrong()),
        _ => no_overload(),
    }
}

/// A value as text.
pub(in crate::crd::cel) fn text_of<'a>(value: &Value<'a>) -> Result<Text<'a>> {
    let text = match value {
        Value::String(text) => return Ok(text.clone()),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(int) => int.to_string(),
        Value::UInt(uint) => uint.to_string(),
        Value::Double(double) => number(*double),
        Value::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))?;
            text.to_owned()
        }
        Value::Duration(duration) => format!("{}s", number(duration.as_secs_f64())),
        Value::Timestamp(at) => at.to_string(),
        Value::Url(url) => url.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(prefix) => prefix.to_string(),
        Value::Quantity(quantity) => quantity.to_string(),
        Value::Pattern(pattern) => pattern.source().to_owned(),
        Value::Null | Value::List(_) | Value::Map(_) | Value::Type(_) | Value::Optional(_) => {
            return no_overload();
        }
    };
    Ok(Text::Shared(text.into()))
}
