//! What the API server does to an object before it checks it: drop what the schema does not know, fill in defaults.

use canopus_base::tree::{Entry, Map, Node, Value};

use super::path::Path;
use super::schema::{Additional, Schema};

/// The fields that every object of Kubernetes has.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Takes out of an object what its schema does not know; the paths of what was taken, sorted.
pub(super) fn prune(schema: &Schema, object: &mut Node) -> Vec<String> {
    let mut pruner = Pruner::default();
    if let Some(map) = object.as_map_mut() {
        pruner.map(schema, map, true, schema.preserves_unknown, Path::ROOT);
    }
    pruner.unknown.sort();
    pruner.unknown
}

#[derive(Default)]
struct Pruner {
    unknown: Vec<String>,
}

impl Pruner {
    /// `preserve` is said of the items of a list that keeps what it does not know.
    fn value(&mut self, schema: Option<&Schema>, node: &mut Node, preserve: bool, path: Path<'_>) {
        let preserve = preserve || schema.is_some_and(|schema| schema.preserves_unknown);
        match (&mut node.value, schema) {
            (Value::Map(map), Some(schema)) => {
                self.map(schema, map, schema.is_embedded_object, preserve, path);
            }
            (Value::Map(map), None) if !preserve => {
                let entries = std::mem::take(map).into_entries();
                self.unknown.extend(entries.iter().map(|entry| path.field(&entry.key).to_string()));
            }
            (Value::List(items), _) => {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(schema, item, preserve, path.index(index));
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, schema: &Schema, map: &mut Map, is_object: bool, preserve: bool, path: Path<'_>) {
        change_entries(map, |entry| {
            let here = path.field(&entry.key);
            if is_object && OBJECT_FIELDS.contains(&&*entry.key) {
                return true;
            }
            if let Some(property) = schema.properties.get(&entry.key) {
                self.value(Some(property), &mut entry.node, false, here);
                return true;
            }
            match &schema.additional {
                Some(Additional::Values(values)) => self.value(Some(values), &mut entry.node, false, here),
                Some(Additional::Allowed(_)) => self.value(None, &mut entry.node, false, here),
                None if preserve => {}
                None => {
                    self.unknown.push(here.to_string());
                    return false;
                }
            }
            true
        });
    }
}

/// Takes out nulls where the schema allows none and has nothing to put in their place.
pub(super) fn drop_nulls(schema: Option<&Schema>, node: &mut Node) {
    match &mut node.value {
        Value::Map(map) => change_entries(map, |entry| {
            let schema = schema.and_then(|schema| schema.under(&entry.key));
            if entry.node.is_null() {
                return schema.is_none_or(|schema| schema.nullable || schema.default.is_some());
            }
            drop_nulls(schema, &mut entry.node);
            true
        }),
        Value::List(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(schema, item));
        }
        _ => {}
    }
}

/// Fills in the defaults of a schema.
pub(super) fn fill(schema: &Schema, node: &mut Node) {
    match &mut node.value {
        Value::Map(map) => {
            for (name, property) in &schema.properties {
                let is_due = map.get(name).is_none_or(|node| node.is_null() && !property.nullable);
                if let Some(default) = property.default.as_ref().filter(|_| is_due) {
                    map.insert(name, default.clone());
                }
            }
            change_entries(map, |entry| {
                if let Some(schema) = schema.under(&entry.key) {
                    fill_in_place(schema, &mut entry.node);
                }
                true
            });
        }
        Value::List(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill_in_place(schema, item));
            }
        }
        _ => {}
    }
}

fn fill_in_place(schema: &Schema, node: &mut Node) {
    if node.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        node.value = default.value.clone();
    }
    fill(schema, node);
}

/// Changes every entry of a map, and keeps those of which `change` says so.
fn change_entries(map: &mut Map, mut change: impl FnMut(&mut Entry) -> bool) {
    let mut entries = std::mem::take(map).into_entries();
    entries.retain_mut(|entry| change(entry));
    *map = Map::from_entries(entries).expect("the keys are those of a map");
}
