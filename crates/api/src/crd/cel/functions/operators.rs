//! Arithmetic, comparison, membership, indexing.

use std::cmp::Ordering;
use std::sync::Arc;

use canopus_base::duration::Duration;
use jiff::SignedDuration;

use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::{List, Value};

pub(super) const BUILTINS: &[Builtin] = &[
    global("_+_", 2..=2, Cost::Own, add),
    global("_-_", 2..=2, Cost::One, subtract),
    global("_*_", 2..=2, Cost::One, multiply),
    global("_/_", 2..=2, Cost::One, divide),
    global("_%_", 2..=2, Cost::One, remainder),
    global("-_", 1..=1, Cost::One, negate),
    global("!_", 1..=1, Cost::One, not),
    global("_==_", 2..=2, Cost::Compare, |meter, args| Ok(args[0].equals(&args[1], meter)?.into())),
    global("_!=_", 2..=2, Cost::Compare, |meter, args| Ok((!args[0].equals(&args[1], meter)?).into())),
    global("_<_", 2..=2, Cost::Compare, |_, args| ordered(&args, Ordering::is_lt)),
    global("_<=_", 2..=2, Cost::Compare, |_, args| ordered(&args, Ordering::is_le)),
    global("_>_", 2..=2, Cost::Compare, |_, args| ordered(&args, Ordering::is_gt)),
    global("_>=_", 2..=2, Cost::Compare, |_, args| ordered(&args, Ordering::is_ge)),
    global("@in", 2..=2, Cost::Own, contains),
    global("_[_]", 2..=2, Cost::One, index),
    global("_[?_]", 2..=2, Cost::One, optional_index),
    global("size", 1..=1, Cost::One, size),
    method("size", 1..=1, Cost::One, size),
];

fn ordered<'a>(args: &[Value<'_>], holds: fn(Ordering) -> bool) -> Result<Value<'a>> {
    Ok(args[0].compare(&args[1])?.is_some_and(holds).into())
}

fn overflow<T>(kind: &str) -> Result<T> {
    Err(EvalError::out_of_range(kind))
}

fn add<'a>(meter: &mut Meter, mut args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match (args.pop(), args.pop()) {
        (Some(right), Some(left)) => sum_of(meter, left, right),
        _ => no_overload(),
    }
}

/// Two values added up, or put one behind the other.
pub(super) fn sum_of<'a>(meter: &mut Meter, left: Value<'a>, right: Value<'a>) -> Result<Value<'a>> {
    let written = match &left {
        Value::String(_) | Value::Bytes(_) => left.size().saturating_add(right.size()),
        _ => 10,
    };
    meter.charge_text(written)?;
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => {
            a.checked_add(b).map_or_else(|| overflow("integer"), |sum| Ok(sum.into()))
        }
        (Value::UInt(a), Value::UInt(b)) => {
            a.checked_add(b).map_or_else(|| overflow("unsigned integer"), |sum| Ok(Value::UInt(sum)))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => Ok(format!("{}{}", &*a, &*b).into()),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&*a, &*b].concat().into())),
        (Value::List(a), Value::List(b)) => concatenate(a, &b, meter),
        (Value::Duration(a), Value::Duration(b)) => {
            let sum = a.as_nanos().checked_add(b.as_nanos());
            sum.map_or_else(|| overflow("duration"), |nanos| Ok(Value::Duration(Duration::from_nanos(nanos))))
        }
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            let moved = at.checked_add(SignedDuration::from_nanos(by.as_nanos()));
            moved.map_or_else(|_| overflow("timestamp"), |at| Ok(Value::Timestamp(at)))
        }
        _ => no_overload(),
    }
}

/// Puts one list behind another, in place where nobody else has the first.
fn concatenate<'a>(left: List<'a>, right: &List<'a>, meter: &mut Meter) -> Result<Value<'a>> {
    let mut items = match left {
        List::Made(items) => Arc::try_unwrap(items).or_else(|shared| {
            meter.charge(shared.len() as u64)?;
            Ok((*shared).clone())
        })?,
        data @ List::Data(_) => {
            meter.charge(data.len() as u64)?;
            data.values().collect::<Result<Vec<_>>>()?
        }
    };
    meter.charge(right.len() as u64 / 2)?;
    for item in right.values() {
        items.push(item?);
    }
    Ok(items.into())
}

fn subtract<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => {
            a.checked_sub(*b).map_or_else(|| overflow("integer"), |left| Ok(left.into()))
        }
        (Value::UInt(a), Value::UInt(b)) => {
            a.checked_sub(*b).map_or_else(|| overflow("unsigned integer"), |left| Ok(Value::UInt(left)))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => {
            let left = a.as_nanos().checked_sub(b.as_nanos());
            left.map_or_else(
                || overflow("duration"),
                |nanos| Ok(Value::Duration(Duration::from_nanos(nanos))),
            )
        }
        (Value::Timestamp(at), Value::Duration(by)) => {
            let moved = at.checked_sub(SignedDuration::from_nanos(by.as_nanos()));
            moved.map_or_else(|_| overflow("timestamp"), |at| Ok(Value::Timestamp(at)))
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            let nanos = i64::try_from(a.as_nanosecond() - b.as_nanosecond());
            nanos.map_or_else(
                |_| overflow("duration"),
                |nanos| Ok(Value::Duration(Duration::from_nanos(nanos))),
            )
        }
        _ => no_overload(),
    }
}

fn multiply<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => {
            a.checked_mul(*b).map_or_else(|| overflow("integer"), |product| Ok(product.into()))
        }
        (Value::UInt(a), Value::UInt(b)) => {
            a.checked_mul(*b).map_or_else(|| overflow("unsigned integer"), |product| Ok(Value::UInt(product)))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => no_overload(),
    }
}

fn divide<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::UInt(_), Value::UInt(0)) => {
            Err(EvalError::new("division by zero"))
        }
        (Value::Int(a), Value::Int(b)) => {
            a.checked_div(*b).map_or_else(|| overflow("integer"), |quotient| Ok(quotient.into()))
        }
        (Value::UInt(a), Value::UInt(b)) => Ok(Value::UInt(a / b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => no_overload(),
    }
}

fn remainder<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::UInt(_), Value::UInt(0)) => {
            Err(EvalError::new("modulus by zero"))
        }
        (Value::Int(a), Value::Int(b)) => {
            a.checked_rem(*b).map_or_else(|| overflow("integer"), |rest| Ok(rest.into()))
        }
        (Value::UInt(a), Value::UInt(b)) => Ok(Value::UInt(a % b)),
        _ => no_overload(),
    }
}

fn negate<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Int(int) => {
            int.checked_neg().map_or_else(|| overflow("integer"), |negated| Ok(negated.into()))
        }
        Value::Double(double) => Ok(Value::Double(-double)),
        Value::Duration(duration) => {
            let negated = duration.as_nanos().checked_neg();
            negated.map_or_else(
                || overflow("duration"),
                |nanos| Ok(Value::Duration(Duration::from_nanos(nanos))),
            )
        }
        _ => no_overload(),
    }
}

fn not<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bool(truth) => Ok((!truth).into()),
        _ => no_overload(),
    }
}

fn contains<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[1] {
        Value::List(list) => {
            meter.charge(list.len() as u64)?;
            for item in list.values() {
                if item?.equals(&args[0], meter)? {
                    return Ok(true.into());
                }
            }
            Ok(false.into())
        }
        Value::Map(map) => {
            meter.charge(1)?;
            Ok(map.find(&args[0], meter)?.is_some().into())
        }
        _ => no_overload(),
    }
}

fn index<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(Some(inner)) => {
            Ok(found(inner, &args[1], meter)?.map_or(Value::Optional(None), Value::some))
        }
        Value::Optional(None) => Ok(Value::Optional(None)),
        value => found(value, &args[1], meter)?.ok_or_else(|| missing(value, &args[1])),
    }
}

fn optional_index<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let found = match &args[0] {
        Value::Optional(Some(inner)) => found(inner, &args[1], meter)?,
        Value::Optional(None) => None,
        value => found(value, &args[1], meter)?,
    };
    Ok(found.map_or(Value::Optional(None), Value::some))
}

fn found<'a>(value: &Value<'a>, index: &Value<'a>, meter: &mut Meter) -> Result<Option<Value<'a>>> {
    match (value, index) {
        (Value::List(list), _) => {
            let at = match index {
                Value::Int(at) => usize::try_from(*at).ok(),
                Value::UInt(at) => usize::try_from(*at).ok(),
                Value::Double(at) if at.fract() == 0.0 && (0.0..9e15).contains(at) => Some(*at as usize),
                _ => return no_overload(),
            };
            at.filter(|at| *at < list.len()).map(|at| list.get(at)).transpose()
        }
        (Value::Map(map), _) => map.find(index, meter),
        _ => no_overload(),
    }
}

fn missing(value: &Value<'_>, index: &Value<'_>) -> EvalError {
    let index = super::text_of(index).map_or_else(|_| index.type_name().to_owned(), |text| text.to_string());
    match value {
        Value::List(_) => EvalError::new(format!("index out of bounds: {index}")),
        _ => EvalError::no_such_key(index),
    }
}

fn size<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    match &args[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => {
            Ok(Value::count(value.size()))
        }
        _ => no_overload(),
    }
}
