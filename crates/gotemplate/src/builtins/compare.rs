//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use std::cmp::Ordering;

use super::{arg, typed};
use crate::error::CallError;
use crate::gofmt;
use crate::limits::Budget;
use crate::value::{Slot, Value};

/// The kinds that compare among themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BasicKind {
    Bool,
    Complex,
    Int,
    Float,
    String,
    Uint,
}

const BAD_TYPE: &str = "invalid type for comparison";

fn basic_kind(value: &Value) -> Option<BasicKind> {
    match value {
        Value::Bool(_) => Some(BasicKind::Bool),
        Value::Int(..) => Some(BasicKind::Int),
        Value::Uint(..) => Some(BasicKind::Uint),
        Value::Float(_) => Some(BasicKind::Float),
        Value::Complex(..) => Some(BasicKind::Complex),
        Value::String(_) => Some(BasicKind::String),
        _ => None,
    }
}

pub(super) fn eq(budget: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    let Some((first, others)) = slots.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Err("missing argument for comparison".into());
    };
    for other in others {
        if equal(budget, first.value(), other.value())? {
            return typed(true);
        }
    }
    typed(false)
}

pub(super) fn ne(budget: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    typed(!equal(budget, arg(slots, 0).value(), arg(slots, 1).value())?)
}

pub(super) fn lt(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    typed(order(slots)? == Some(Ordering::Less))
}

pub(super) fn le(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    typed(matches!(order(slots)?, Some(Ordering::Less | Ordering::Equal)))
}

// Parity: Go negates, so a comparison with NaN holds for these two.
pub(super) fn gt(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    typed(!matches!(order(slots)?, Some(Ordering::Less | Ordering::Equal)))
}

pub(super) fn ge(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    typed(order(slots)? != Some(Ordering::Less))
}

fn order(slots: &[Slot]) -> Result<Option<Ordering>, CallError> {
    let (a, b) = (arg(slots, 0).value().underlying(), arg(slots, 1).value().underlying());
    if basic_kind(&a).is_none() || basic_kind(&b).is_none() {
        return Err(BAD_TYPE.into());
    }
    match (&*a, &*b) {
        (Value::Int(a, _), Value::Int(b, _)) => Ok(Some(a.cmp(b))),
        (Value::Uint(a, _), Value::Uint(b, _)) => Ok(Some(a.cmp(b))),
        (Value::Int(a, _), Value::Uint(b, _)) => Ok(Some(i128::from(*a).cmp(&i128::from(*b)))),
        (Value::Uint(a, _), Value::Int(b, _)) => Ok(Some(i128::from(*a).cmp(&i128::from(*b)))),
        (Value::Float(a), Value::Float(b)) => Ok(a.partial_cmp(b)),
        (Value::String(a), Value::String(b)) => Ok(Some(a.cmp(b))),
        (a, b) if basic_kind(a) == basic_kind(b) => Err(BAD_TYPE.into()),
        (a, b) => Err(incompatible(a, b)),
    }
}

fn incompatible(a: &Value, b: &Value) -> CallError {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name()).into()
}

fn equal(budget: &Budget, a: &Value, b: &Value) -> Result<bool, CallError> {
    let (a, b) = (a.underlying(), b.underlying());
    match (&*a, &*b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Int(a, _), Value::Int(b, _)) => Ok(a == b),
        (Value::Uint(a, _), Value::Uint(b, _)) => Ok(a == b),
        (Value::Int(a, _), Value::Uint(b, _)) | (Value::Uint(b, _), Value::Int(a, _)) => {
            Ok(i128::from(*a) == i128::from(*b))
        }
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Complex(a, c), Value::Complex(b, d)) => Ok(a == b && c == d),
        (Value::String(a), Value::String(b)) => Ok(a == b),
        (Value::Nil, Value::Nil) => Ok(true),
        (a, b) if basic_kind(a) != basic_kind(b) => {
            if a.is_nil() || b.is_nil() {
                Ok(false)
            } else {
                Err(incompatible(a, b))
            }
        }
        (a, b) => equal_containers(budget, a, b),
    }
}

/// Slices and maps only compare to nil.
fn equal_containers(budget: &Budget, a: &Value, b: &Value) -> Result<bool, CallError> {
    let show = |verb: &str, value: &Value| {
        let text = gofmt::sprintf(budget, verb.as_bytes(), std::slice::from_ref(value));
        text.map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    if a.kind() != b.kind() && !a.is_nil() && !b.is_nil() {
        let (a_text, b_text) = (show("%s", a)?, show("%v", b)?);
        let message =
            format!("non-comparable types {a_text}: {}, {}: {b_text}", a.type_name(), b.type_name());
        return Err(message.into());
    }
    let (a_nil, b_nil) = (is_nil(a), is_nil(b));
    if a_nil || b_nil {
        return Ok(a_nil == b_nil);
    }
    if let (Value::Object(a), Value::Object(b)) = (a, b) {
        return Ok(std::sync::Arc::ptr_eq(a, b));
    }
    Err(format!("non-comparable type {}: {}", show("%s", b)?, b.type_name()).into())
}

fn is_nil(value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::List(list) => list.is_nil(),
        Value::Map(map) => map.is_nil(),
        _ => false,
    }
}
