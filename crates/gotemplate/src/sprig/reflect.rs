//! Types and kinds.

use crate::error::CallError;
use crate::limits::{Budget, LimitError, MAX_VALUE_DEPTH};
use crate::value::{Functions, Str, Value};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("typeOf", |value: Value| value.type_name().into_owned())
        .add("typeIs", |name: Str, value: Value| name == *value.type_name())
        .add("typeIsLike", |name: Str, value: Value| {
            let actual = value.type_name();
            name == *actual || format!("*{name}") == actual
        })
        .add("kindOf", |value: Value| value.kind().name())
        .add("kindIs", |name: Str, value: Value| name == value.kind().name())
        .add("deepEqual", |budget: &Budget, a: Value, b: Value| deep_equal(budget, &a, &b));
}

/// `reflect.DeepEqual`: types must be the same, and a nil list is no empty one.
pub(super) fn deep_equal(budget: &Budget, a: &Value, b: &Value) -> Result<bool, CallError> {
    Ok(equal(budget, a, b, 0)?)
}

fn equal(budget: &Budget, a: &Value, b: &Value, depth: u32) -> Result<bool, LimitError> {
    budget.charge_steps(1)?;
    if depth > MAX_VALUE_DEPTH {
        return Err(LimitError::ValueDepth);
    }
    Ok(match (a, b) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a, a_kind), Value::Int(b, b_kind)) => a == b && a_kind == b_kind,
        (Value::Uint(a, a_kind), Value::Uint(b, b_kind)) => a == b && a_kind == b_kind,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Complex(a, c), Value::Complex(b, d)) => a == b && c == d,
        (Value::String(a), Value::String(b)) | (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            if a.elem() != b.elem() || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.items().iter().zip(b.items()) {
                if !equal(budget, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.kind() != b.kind() || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            for ((a_key, a), (b_key, b)) in a.entries().iter().zip(&b.entries()) {
                if a_key != b_key || !equal(budget, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => a.type_name() == b.type_name() && a.print() == b.print(),
        _ => false,
    })
}
