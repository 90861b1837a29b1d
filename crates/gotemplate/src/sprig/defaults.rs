//! Empty values and what stands in for them.

use crate::value::{Functions, Value, Variadic};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("default", |default: Value, given: Variadic<Value>| match given.0.into_iter().next() {
            Some(given) if !is_empty(&given) => given,
            _ => default,
        })
        .add("empty", |value: Value| is_empty(&value))
        .add("coalesce", |values: Variadic<Value>| values.0.into_iter().find(|value| !is_empty(value)))
        .add("all", |values: Variadic<Value>| values.0.iter().all(|value| !is_empty(value)))
        .add("any", |values: Variadic<Value>| values.0.iter().any(|value| !is_empty(value)))
        .add("ternary", |yes: Value, no: Value, condition: bool| if condition { yes } else { no })
        .add("fail", |message: String| Err::<Value, String>(message));
}

/// Whether a value is the zero value of its type.
pub(super) fn is_empty(value: &Value) -> bool {
    !value.truth()
}
