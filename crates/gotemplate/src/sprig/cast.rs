//! Loose conversions to numbers: what cannot be converted is zero.

use crate::goparse;
use crate::value::Value;

pub(super) fn to_int(value: &Value) -> i64 {
    match &*value.underlying() {
        Value::Int(int, _) => *int,
        Value::Uint(int, _) => *int as i64,
        Value::Float(float) => float_to_int(*float),
        Value::String(text) => goparse::int(trim_zero_decimal(&text.to_text()), 0).unwrap_or(0),
        Value::Bool(truth) => i64::from(*truth),
        _ => 0,
    }
}

pub(super) fn to_float(value: &Value) -> f64 {
    match &*value.underlying() {
        Value::Int(int, _) => *int as f64,
        Value::Uint(int, _) => *int as f64,
        Value::Float(float) => *float,
        Value::String(text) => goparse::float(&text.to_text()).unwrap_or(0.0),
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        _ => 0.0,
    }
}

/// Parity: on amd64 a float that no integer can hold becomes the smallest one.
fn float_to_int(float: f64) -> i64 {
    const LIMIT: f64 = (1u64 << 63) as f64;
    if float.is_nan() || !(-LIMIT..LIMIT).contains(&float) {
        return i64::MIN;
    }
    float as i64
}

/// Drops a fraction of zeros: `1.00` is `1`.
fn trim_zero_decimal(text: &str) -> &str {
    let trimmed = text.trim_end_matches('0');
    match trimmed.strip_suffix('.') {
        Some(whole) if trimmed.len() < text.len() => whole,
        _ => text,
    }
}
