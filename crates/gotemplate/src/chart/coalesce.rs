//! The values a chart is rendered with: the user's over its own, and its dependencies' inside them.

use super::load::{Chart, ChartError};
use crate::limits::Budget;
use crate::sprig::deep_copy;
use crate::value::{Map, Value};

const GLOBAL: &str = "global";

/// A copy that shares nothing with the original.
pub(super) fn copy(budget: &Budget, map: &Map) -> Result<Map, ChartError> {
    match deep_copy(budget, &Value::Map(map.clone()), 0)? {
        Value::Map(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

/// Completes the given values with those of a chart and its dependencies. Nulls take values away, unless they are kept for
/// a later round.
pub(super) fn coalesce(
    budget: &Budget,
    chart: &Chart,
    given: &Map,
    keeps_nulls: bool,
) -> Result<Map, ChartError> {
    own_values(budget, chart, given, keeps_nulls)?;
    for dependency in &chart.dependencies {
        let name = dependency.name();
        let inner = match given.get(name) {
            None => Map::new(),
            Some(Value::Map(map)) => map,
            Some(_) => return Err(ChartError::NotATable(name.to_owned())),
        };
        globals(budget, &inner, given)?;
        let inner = coalesce(budget, dependency, &inner, keeps_nulls)?;
        given.insert(name, Value::Map(inner));
    }
    Ok(given.clone())
}

fn own_values(budget: &Budget, chart: &Chart, given: &Map, keeps_nulls: bool) -> Result<(), ChartError> {
    for (key, own) in copy(budget, &chart.values)?.entries() {
        match given.get(&key) {
            // A null of the user's takes the chart's value away.
            Some(Value::Nil) if !keeps_nulls => {
                given.remove(&key);
            }
            Some(Value::Map(target)) => {
                if let Value::Map(own) = &own {
                    let of_dependency = chart.dependencies.iter().any(|dependency| key == *dependency.name());
                    let keeps_nulls = keeps_nulls || of_dependency;
                    if !keeps_nulls {
                        remove_nulls(own);
                    }
                    merge_tables(&target, own, keeps_nulls);
                }
            }
            Some(_) => {}
            None => {
                if let Value::Map(own) = &own
                    && !keeps_nulls
                {
                    remove_nulls(own);
                }
                if keeps_nulls || !own.is_nil() {
                    given.insert(key, own);
                }
            }
        }
    }
    Ok(())
}

/// Completes a map from another. Nulls take values away, unless they are to be kept for a later merge.
fn merge_tables(target: &Map, source: &Map, keeps_nulls: bool) {
    for (key, value) in source.entries() {
        match (target.get(&key), &value) {
            (Some(Value::Nil), value) if !keeps_nulls && !value.is_nil() => {
                target.remove(&key);
            }
            (None, _) => target.insert(key, value),
            (Some(Value::Map(target)), Value::Map(source)) => merge_tables(&target, source, keeps_nulls),
            _ => {}
        }
    }
}

fn remove_nulls(map: &Map) {
    for (key, value) in map.entries() {
        match value {
            Value::Nil => {
                map.remove(&key);
            }
            Value::Map(inner) => remove_nulls(&inner),
            _ => {}
        }
    }
}

/// Hands the parent's globals down to a dependency; they win over its own.
fn globals(budget: &Budget, inner: &Map, outer: &Map) -> Result<(), ChartError> {
    let target = match inner.get(GLOBAL) {
        None => Map::new(),
        Some(Value::Map(map)) => map,
        Some(_) => return Ok(()),
    };
    let source = match outer.get(GLOBAL) {
        None => Map::new(),
        Some(Value::Map(map)) => map,
        Some(_) => return Ok(()),
    };
    for (key, value) in source.entries() {
        match (&value, target.get(&key)) {
            (Value::Map(map), None) => target.insert(key, Value::Map(copy(budget, map)?)),
            (Value::Map(map), Some(Value::Map(present))) => {
                let merged = copy(budget, map)?;
                merge_tables(&merged, &present, true);
                target.insert(key, Value::Map(merged));
            }
            (Value::Map(_), Some(_)) | (_, Some(Value::Map(_))) => {}
            _ => target.insert(key, value),
        }
    }
    inner.insert(GLOBAL, Value::Map(target));
    Ok(())
}
