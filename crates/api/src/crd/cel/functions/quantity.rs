//! Quantities of resources.

use std::cmp::Ordering;
use std::sync::Arc;

use canopus_base::quantity::Quantity;

use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::Value;

pub(super) const BUILTINS: &[Builtin] = &[
    global("quantity", 1..=1, Cost::Read, quantity),
    global("isQuantity", 1..=1, Cost::Read, is_quantity),
    method("sign", 1..=1, Cost::One, |_, args| Ok(sign(as_quantity(&args[0])?).into())),
    method("isInteger", 1..=1, Cost::One, |_, args| Ok(whole(as_quantity(&args[0])?).is_some().into())),
    method("asInteger", 1..=1, Cost::One, as_integer),
    method("asApproximateFloat", 1..=1, Cost::One, |_, args| {
        Ok(Value::Double(as_quantity(&args[0])?.as_f64()))
    }),
    method("isGreaterThan", 2..=2, Cost::One, |_, args| {
        Ok((as_quantity(&args[0])? > as_quantity(&args[1])?).into())
    }),
    method("isLessThan", 2..=2, Cost::One, |_, args| {
        Ok((as_quantity(&args[0])? < as_quantity(&args[1])?).into())
    }),
    method("compareTo", 2..=2, Cost::One, |_, args| {
        Ok((as_quantity(&args[0])?.cmp(as_quantity(&args[1])?) as i64).into())
    }),
];

fn as_quantity<'v>(value: &'v Value<'_>) -> Result<&'v Quantity> {
    match value {
        Value::Quantity(quantity) => Ok(quantity),
        _ => no_overload(),
    }
}

fn quantity<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Value::String(text) = &args[0] else { return no_overload() };
    let parsed = text.parse().map_err(|error| EvalError::new(format!("{error}")))?;
    Ok(Value::Quantity(Arc::new(parsed)))
}

fn is_quantity<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Value::String(text) = &args[0] else { return no_overload() };
    Ok(text.parse::<Quantity>().is_ok().into())
}

fn sign(quantity: &Quantity) -> i64 {
    match quantity.cmp(&Quantity::default()) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

/// The amount if it is a whole number that fits.
fn whole(quantity: &Quantity) -> Option<i64> {
    let units = quantity.value();
    (Quantity::from_units(units, quantity.notation()) == *quantity).then_some(units)
}

fn as_integer<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    whole(as_quantity(&args[0])?)
        .map(Value::Int)
        .ok_or_else(|| EvalError::new("cannot convert value to integer"))
}
