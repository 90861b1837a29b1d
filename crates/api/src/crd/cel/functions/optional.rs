//! Optional values.

use std::sync::Arc;

use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::Value;

pub(super) const BUILTINS: &[Builtin] = &[
    global("optional.of", 1..=1, Cost::One, |_, mut args| Ok(Value::some(args.remove(0)))),
    global("optional.none", 0..=0, Cost::One, |_, _| Ok(Value::Optional(None))),
    global("optional.ofNonZeroValue", 1..=1, Cost::One, of_non_zero),
    method("hasValue", 1..=1, Cost::One, |_, args| Ok(inner(&args[0])?.is_some().into())),
    method("value", 1..=1, Cost::One, value),
    method("or", 2..=2, Cost::One, or),
    method("orValue", 2..=2, Cost::One, or_value),
];

fn inner<'v, 'a>(value: &'v Value<'a>) -> Result<Option<&'v Arc<Value<'a>>>> {
    match value {
        Value::Optional(inner) => Ok(inner.as_ref()),
        _ => no_overload(),
    }
}

fn of_non_zero<'a>(_: &mut Meter, mut args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let is_zero = match &args[0] {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::UInt(0) | Value::Optional(None) => true,
        Value::Double(double) => *double == 0.0,
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => value.size() == 0,
        Value::Duration(duration) => duration.as_nanos() == 0,
        _ => false,
    };
    Ok(if is_zero { Value::Optional(None) } else { Value::some(args.remove(0)) })
}

fn value<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match inner(&args[0])? {
        Some(value) => Ok((**value).clone()),
        None => Err(EvalError::new("optional.none() dereference")),
    }
}

fn or<'a>(_: &mut Meter, mut args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let keep = usize::from(inner(&args[0])?.is_none());
    inner(&args[1])?;
    Ok(args.swap_remove(keep))
}

fn or_value<'a>(_: &mut Meter, mut args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match inner(&args[0])? {
        Some(value) => Ok((**value).clone()),
        None => Ok(args.swap_remove(1)),
    }
}
