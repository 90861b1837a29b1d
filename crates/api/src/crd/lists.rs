//! Lists whose items must differ: `x-kubernetes-list-type: set` and `map`.

use std::collections::BTreeSet;

use canopus_base::tree::{Map, Node, Value};

use super::error::{ErrorKind, FieldError, shown};
use super::path::Path;
use super::schema::{ListType, Schema};

/// Every item that repeats an earlier one where items must differ.
pub(super) fn check(schema: &Schema, object: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, Path::ROOT, &mut errors);
    errors
}

/// Whether no item equals another.
pub(super) fn are_distinct<'a>(items: impl Iterator<Item = &'a Node>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().all(|item| seen.insert(canonical(item)))
}

fn walk(schema: &Schema, node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    match &node.value {
        Value::Map(map) => {
            for entry in map {
                if let Some(property) = schema.properties.get(&entry.key) {
                    walk(property, &entry.node, path.field(&entry.key), errors);
                } else if let Some(values) = schema.values() {
                    walk(values, &entry.node, path.key(&entry.key), errors);
                }
            }
        }
        Value::List(items) => {
            repeats(schema, items, path, errors);
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn repeats(schema: &Schema, items: &[Node], path: Path<'_>, errors: &mut Vec<FieldError>) {
    let keys: Vec<Node> = match &schema.list_type {
        ListType::Atomic => return,
        ListType::Set => items.to_vec(),
        ListType::Map(fields) => {
            if let Some(index) = items.iter().position(|item| item.as_map().is_none() && !item.is_null()) {
                let detail = "must be an object for an array of list-type map".to_owned();
                errors.push(error(
                    ErrorKind::Invalid,
                    path.index(index),
                    &items[index],
                    shown(&items[index]),
                    detail,
                ));
                return;
            }
            items.iter().map(|item| key(item, fields)).collect()
        }
    };
    let mut seen = BTreeSet::new();
    let mut told = BTreeSet::new();
    for (index, key) in keys.iter().enumerate() {
        let canonical = canonical(key);
        if seen.contains(&canonical) && told.insert(canonical.clone()) {
            errors.push(error(
                ErrorKind::Duplicate,
                path.index(index),
                &items[index],
                shown(key),
                String::new(),
            ));
        }
        seen.insert(canonical);
    }
}

fn error(kind: ErrorKind, path: Path<'_>, node: &Node, value: Box<str>, detail: String) -> FieldError {
    FieldError { kind, path: path.to_string(), at: node.at, value: Some(value), detail }
}

/// The fields that tell an item of a list apart.
fn key(item: &Node, fields: &[Box<str>]) -> Node {
    let found = fields.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
    Value::Map(found.collect::<Map>()).into()
}

/// A text that equal values have in common, whatever the order of their keys.
fn canonical(node: &Node) -> String {
    node.to_json().to_string()
}
