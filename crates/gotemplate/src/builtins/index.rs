//! `index`, `slice`, `len`.

use super::{arg, typed};
use crate::error::CallError;
use crate::limits::Budget;
use crate::value::{List, MapKind, Slot, Str, UintKind, Value, list_item, map_item};

pub(super) fn len(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    let slot = arg(slots, 0);
    let length = match &*slot.value().underlying() {
        Value::Nil if matches!(slot, Slot::Invalid) => {
            return Err("reflect: call of reflect.Value.Type on zero Value".into());
        }
        Value::Nil => return Err("len of nil pointer".into()),
        Value::String(text) | Value::Bytes(text) => text.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        other => return Err(format!("len of type {}", other.type_name()).into()),
    };
    typed(i64::try_from(length).unwrap_or(i64::MAX))
}

pub(super) fn index(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    let mut item = arg(slots, 0).clone();
    if item.value().is_nil() {
        return Err("index of untyped nil".into());
    }
    for index in slots.iter().skip(1) {
        item = element(&item, index.value())?;
    }
    Ok(item)
}

fn element(item: &Slot, index: &Value) -> Result<Slot, CallError> {
    match &*item.value().underlying() {
        Value::Nil => Err("index of nil pointer".into()),
        Value::String(text) | Value::Bytes(text) => {
            let at = position(index, text.len())?;
            let byte = text.as_bytes().get(at).ok_or_else(|| out_of_range("string", at, text.len()))?;
            Ok(Slot::Typed(Value::Uint((*byte).into(), UintKind::Uint8)))
        }
        Value::List(list) => {
            let at = position(index, list.len())?;
            let value = list.items().get(at).ok_or_else(|| out_of_range("slice", at, list.len()))?;
            Ok(list_item(list, value.clone()))
        }
        Value::Map(map) => {
            let value = match index {
                Value::String(key) => map.get(key),
                Value::Nil => return Err("value is nil; should be of type string".into()),
                other => {
                    return Err(format!("value has type {}; should be string", other.type_name()).into());
                }
            };
            let missing = || if map.kind() == MapKind::String { Value::string("") } else { Value::Nil };
            Ok(map_item(map.kind(), value.unwrap_or_else(missing)))
        }
        other => Err(format!("can't index item of type {}", other.type_name()).into()),
    }
}

/// Reads an index, which may be one past the end.
fn position(index: &Value, length: usize) -> Result<usize, CallError> {
    let at = match index {
        Value::Int(int, _) => *int,
        Value::Uint(int, _) => i64::try_from(*int).unwrap_or(-1),
        Value::Nil => return Err("cannot index slice/array with nil".into()),
        other => return Err(format!("cannot index slice/array with type {}", other.type_name()).into()),
    };
    match usize::try_from(at) {
        Ok(place) if place <= length => Ok(place),
        _ => Err(format!("index out of range: {at}").into()),
    }
}

/// Parity: an index one past the end gets by the check, and `reflect` panics.
fn out_of_range(kind: &str, _at: usize, _length: usize) -> CallError {
    format!("reflect: {kind} index out of range").into()
}

pub(super) fn slice(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    let item = arg(slots, 0);
    let indexes = slots.get(1..).unwrap_or_default();
    if item.value().is_nil() {
        return Err("slice of untyped nil".into());
    }
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()).into());
    }
    let item = item.value().underlying();
    let length = match &*item {
        Value::String(_) if indexes.len() == 3 => return Err("cannot 3-index slice a string".into()),
        Value::String(text) | Value::Bytes(text) => text.len(),
        Value::List(list) => list.len(),
        other => return Err(format!("can't slice item of type {}", other.type_name()).into()),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index.value(), length)?;
    }
    let [start, end, cap] = bounds;
    for (low, high) in [(start, end), (end, cap)] {
        if low > high {
            return Err(format!("invalid slice index: {low} > {high}").into());
        }
    }
    typed(match &*item {
        Value::String(text) => Value::String(Str::from(&text.as_bytes()[start..end])),
        Value::Bytes(bytes) => Value::Bytes(Str::from(&bytes.as_bytes()[start..end])),
        Value::List(list) => Value::List(List::typed(list.elem(), list.items()[start..end].to_vec())),
        other => other.clone(),
    })
}
