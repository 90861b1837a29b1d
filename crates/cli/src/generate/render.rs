//! Resources as text.

use canopus_base::tree::{Map, Node, Value};
use canopus_base::yaml;

use super::resource::{Printed, Resources};

/// Lists of resources by type; the list alone if one type is wanted.
pub(super) fn tree(mut resources: Resources, canonical: bool) -> Node {
    let list = |printed: Vec<Printed>| {
        Node::from(Value::List(printed.into_iter().map(|one| entry(one, canonical)).collect()))
    };
    if canonical {
        for (_, printed) in &mut resources {
            printed.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    let mut tree = match resources.len() {
        1 => resources.into_iter().map(|(_, printed)| list(printed)).next().unwrap_or_default(),
        _ => {
            let lists = resources.into_iter().map(|(kind, printed)| (kind.name(), list(printed)));
            Value::Map(lists.collect()).into()
        }
    };
    if canonical {
        sort_keys(&mut tree);
    }
    tree
}

fn entry(printed: Printed, canonical: bool) -> Node {
    let mut entry = Map::new();
    entry.insert("name", Value::from(printed.name).into());
    if !canonical {
        entry.insert("version", Value::from(printed.version).into());
    }
    entry.insert("resource", printed.body);
    Value::Map(entry).into()
}

/// Sorts the keys of every mapping.
pub(super) fn sort_keys(node: &mut Node) {
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(sort_keys),
        Value::Map(map) => {
            let mut entries = std::mem::take(map).into_entries();
            entries.sort_by(|a, b| a.key.cmp(&b.key));
            for entry in &mut entries {
                sort_keys(&mut entry.node);
            }
            *map = entries.into_iter().map(|entry| (entry.key, entry.node)).collect();
        }
        _ => {}
    }
}

pub(super) fn json(tree: &Node) -> String {
    format!("{:#}\n", tree.to_json())
}

pub(super) fn yaml(tree: &Node) -> String {
    yaml::node_to_string(tree)
}

/// A line for each resource.
pub(super) fn short(resources: &Resources) -> String {
    let all =
        || resources.iter().flat_map(|(kind, printed)| printed.iter().map(move |one| (kind.name(), one)));
    let width = all().map(|(_, one)| one.name.chars().count()).max().unwrap_or_default().max("NAME".len());
    let mut text = format!("{:4}  {:width$}  {:>9}  {}\n", "TYPE", "NAME", "BYTES", "VERSION");
    for (kind, one) in all() {
        text += &format!("{kind:4}  {:width$}  {:>9}  {}\n", one.name, one.bytes, one.version);
    }
    text
}
