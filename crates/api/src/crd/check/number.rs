//! Ranges and multiples of numbers.

use canopus_base::tree::{Node, Number, Value};

use super::format::Format;
use super::{Outcome, Subject};
use crate::crd::schema::{Bound, Schema, Type};
use crate::text;

/// The largest whole number that every reader of JSON keeps exact.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

pub(super) fn check(
    schema: &Schema,
    format: Option<Format>,
    number: Number,
    subject: Subject<'_>,
    outcome: &mut Outcome,
) {
    if let Some(kind) = schema.kind
        && !fits(kind, format, number)
    {
        let form = format.map_or_else(
            || " (default format)".to_owned(),
            |format| format!(" with format {}", format.name()),
        );
        let path = subject.path;
        outcome.add(subject.plain(format!("Checked value must be of type {}{form} in {path}", kind.name())));
    }
    let bounds = &schema.bounds;
    if let Some(factor) = bounds.multiple_of
        && !is_multiple(number, factor)
    {
        outcome.add(subject.invalid(format_args!("should be a multiple of {}", text::number(factor))));
    }
    if let Some(bound) = bounds.minimum
        && number.is_below(bound)
    {
        let or_equal = if bound.exclusive { "" } else { " or equal to" };
        outcome
            .add(subject.invalid(format_args!("should be greater than{or_equal} {}", number.limit(bound))));
    }
    if let Some(bound) = bounds.maximum
        && number.is_above(bound)
    {
        let or_equal = if bound.exclusive { "" } else { " or equal to" };
        outcome.add(subject.invalid(format_args!("should be less than{or_equal} {}", number.limit(bound))));
    }
    outcome.passed += 2;
}

/// Comparison with one end of a range, among integers if the number is one.
trait Bounded {
    fn is_below(&self, bound: Bound) -> bool;
    fn is_above(&self, bound: Bound) -> bool;
    fn limit(&self, bound: Bound) -> String;
}

impl Bounded for Number {
    fn is_below(&self, Bound { limit, exclusive }: Bound) -> bool {
        match self {
            Self::Int(int) => *int < limit as i64 || (exclusive && *int == limit as i64),
            other => other.as_f64() < limit || (exclusive && other.as_f64() == limit),
        }
    }

    fn is_above(&self, Bound { limit, exclusive }: Bound) -> bool {
        match self {
            Self::Int(int) => *int > limit as i64 || (exclusive && *int == limit as i64),
            other => other.as_f64() > limit || (exclusive && other.as_f64() == limit),
        }
    }

    fn limit(&self, bound: Bound) -> String {
        match self {
            Self::Int(_) => (bound.limit as i64).to_string(),
            _ => text::number(bound.limit),
        }
    }
}

/// Whether a number can be held by the machine type that a schema names.
fn fits(kind: Type, format: Option<Format>, number: Number) -> bool {
    match (kind, format) {
        (Type::Integer, Some(Format::Int32)) => match number {
            Number::Int(int) => i32::try_from(int).is_ok(),
            other => {
                let float = other.as_f64();
                float.fract() == 0.0 && float >= f64::from(i32::MIN) && float <= f64::from(i32::MAX)
            }
        },
        (Type::Integer, _) => match number {
            Number::Int(_) => true,
            other => other.as_f64().fract() == 0.0 && other.as_f64().abs() < i64::MAX as f64,
        },
        (Type::Number, Some(Format::Float)) => (number.as_f64() as f32).is_finite(),
        _ => true,
    }
}

fn is_multiple(number: Number, factor: f64) -> bool {
    if factor <= 0.0 {
        return false;
    }
    match number {
        Number::Int(int) if factor >= 1.0 => int.checked_rem(factor as i64) == Some(0),
        other if factor < 1.0 => is_whole_float(1.0 / factor * other.as_f64()),
        other => is_whole_float(other.as_f64() / factor),
    }
}

/// Whether a value is a number without a fraction, as far as floats can tell.
pub(super) fn is_whole(node: &Node) -> bool {
    match node.value {
        Value::Number(Number::Int(_)) => true,
        Value::Number(other) => is_whole_float(other.as_f64()),
        _ => false,
    }
}

fn is_whole_float(float: f64) -> bool {
    if !float.is_finite() || float.abs() > MAX_SAFE {
        return false;
    }
    let away = (float - float.round()).abs();
    away < 1e-9 * float.abs().max(1.0)
}

/// Whether two values are the same, numbers by what they amount to.
pub(super) fn equal(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}
