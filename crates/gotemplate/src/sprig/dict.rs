//! Maps.

use super::defaults::is_empty;
use super::text_of;
use crate::error::CallError;
use crate::limits::{Budget, LimitError, MAX_VALUE_DEPTH};
use crate::value::{Functions, List, Map, MapKind, Str, Value, Variadic};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("dict", dict)
        .add("get", |map: Map, key: Str| map.get(&key).unwrap_or_else(|| Value::string("")))
        .add("set", |map: Map, key: Str, value: Value| {
            insert(&map, key, value)?;
            Ok::<_, CallError>(map)
        })
        .add("unset", |map: Map, key: Str| {
            map.remove(&key);
            map
        })
        .add("hasKey", |map: Map, key: Str| map.contains_key(&key))
        .add("pluck", |key: Str, maps: Variadic<Map>| {
            maps.0.iter().filter_map(|map| map.get(&key)).collect::<Vec<Value>>()
        })
        .add("keys", |budget: &Budget, maps: Variadic<Map>| {
            let mut keys = Vec::new();
            for map in &maps.0 {
                charge(budget, map)?;
                keys.extend(map.entries().into_iter().map(|(key, _)| key));
            }
            Ok::<_, LimitError>(keys)
        })
        .add("values", |budget: &Budget, map: Map| {
            charge(budget, &map)?;
            Ok::<_, LimitError>(map.entries().into_iter().map(|(_, value)| value).collect::<Vec<_>>())
        })
        .add("pick", |map: Map, keys: Variadic<Str>| {
            keys.0.into_iter().filter_map(|key| map.get(&key).map(|value| (key, value))).collect::<Map>()
        })
        .add("omit", |budget: &Budget, map: Map, keys: Variadic<Str>| {
            charge(budget, &map)?;
            let kept = map.entries().into_iter().filter(|(key, _)| !keys.0.contains(key));
            Ok::<_, LimitError>(kept.collect::<Map>())
        })
        .add("dig", dig);
    for (name, overwrite) in
        [("merge", false), ("mustMerge", false), ("mergeOverwrite", true), ("mustMergeOverwrite", true)]
    {
        functions.add(name, move |budget: &Budget, target: Map, sources: Variadic<Map>| {
            let target = if target.is_nil() { Map::new() } else { target };
            for source in &sources.0 {
                merge(budget, &target, source, overwrite, 0)?;
            }
            Ok::<_, CallError>(target.with_kind(MapKind::Any))
        });
    }
    for name in ["deepCopy", "mustDeepCopy"] {
        functions.add(name, |budget: &Budget, value: Value| match value {
            Value::Nil => Err("reflect: call of reflect.Value.Type on zero Value".into()),
            value => deep_copy(budget, &value, 0),
        });
    }
}

fn charge(budget: &Budget, map: &Map) -> Result<(), LimitError> {
    budget.charge_steps(u64::try_from(map.len()).unwrap_or(u64::MAX))?;
    budget.charge_bytes(map.len().saturating_mul(size_of::<(Str, Value)>()))
}

fn insert(map: &Map, key: Str, value: Value) -> Result<(), CallError> {
    map.try_insert(key, value).map_err(|error| error.to_string().into())
}

fn dict(budget: &Budget, pairs: Variadic<Value>) -> Result<Map, LimitError> {
    let mut entries = Vec::with_capacity(pairs.0.len().div_ceil(2));
    let mut pairs = pairs.0.into_iter();
    while let Some(key) = pairs.next() {
        entries.push((text_of(budget, &key)?, pairs.next().unwrap_or_else(|| Value::string(""))));
    }
    Ok(entries.into_iter().collect())
}

fn dig(args: Variadic<Value>) -> Result<Value, CallError> {
    let [keys @ .., default, map] = &*args.0 else { return Err("dig needs at least three arguments".into()) };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let mut value = map.clone();
    for key in keys {
        let map = match &value {
            Value::Map(map) if map.kind() == MapKind::Any => map,
            other => return Err(not_a(other, "map[string]interface {}")),
        };
        let Value::String(key) = key else { return Err(not_a(key, "string")) };
        match map.get(key) {
            Some(found) => value = found,
            None => return Ok(default.clone()),
        }
    }
    Ok(value)
}

/// The words of a failed type assertion.
fn not_a(value: &Value, wanted: &str) -> CallError {
    let is = if value.is_nil() { "nil".into() } else { value.type_name() };
    format!("interface conversion: interface {{}} is {is}, not {wanted}").into()
}

/// Merges a map into another, maps inside maps likewise.
///
/// Without `overwrite`, what the target has counts unless it is empty: `false`, `0` and `""` give way.
fn merge(budget: &Budget, target: &Map, source: &Map, overwrite: bool, depth: u32) -> Result<(), CallError> {
    if depth > MAX_VALUE_DEPTH {
        return Err(LimitError::ValueDepth.into());
    }
    charge(budget, source)?;
    for (key, value) in source.entries() {
        if value.is_nil() {
            if overwrite {
                insert(target, key, value)?;
            }
            continue;
        }
        let present = target.get(&key);
        if let (Value::Map(inner), Some(Value::Map(present))) = (&value, &present) {
            if !present.is_nil() {
                merge(budget, present, inner, overwrite, depth + 1)?;
            }
            if !present.is_empty() {
                continue;
            }
        }
        if overwrite || present.as_ref().is_none_or(is_empty) {
            insert(target, key, value)?;
        }
    }
    Ok(())
}

pub(crate) fn deep_copy(budget: &Budget, value: &Value, depth: u32) -> Result<Value, CallError> {
    if depth > MAX_VALUE_DEPTH {
        return Err(LimitError::ValueDepth.into());
    }
    match value {
        Value::List(list) if !list.is_nil() => {
            budget.charge_steps(u64::try_from(list.len()).unwrap_or(u64::MAX))?;
            budget.charge_bytes(list.len().saturating_mul(size_of::<Value>()))?;
            let items = list.items().iter().map(|item| deep_copy(budget, item, depth + 1));
            Ok(Value::List(List::typed(list.elem(), items.collect::<Result<_, _>>()?)))
        }
        Value::Map(map) if !map.is_nil() => {
            charge(budget, map)?;
            let entries = map.entries().into_iter();
            let entries = entries.map(|(key, value)| Ok((key, deep_copy(budget, &value, depth + 1)?)));
            Ok(Value::Map(Map::typed(map.kind(), entries.collect::<Result<_, CallError>>()?)))
        }
        other => Ok(other.clone()),
    }
}
