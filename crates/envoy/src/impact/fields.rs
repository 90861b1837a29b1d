//! The fields in which two versions of a resource differ.

use canopus_base::tree::{Node, Value};
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::json;
use canopus_proto::resource::Resource;
use serde::{Deserialize, Serialize};

use super::ResourceType;

/// Fields that are shown of one resource.
const MAX_FIELDS: usize = 24;

/// Characters that are shown of one value.
const MAX_VALUE: usize = 160;

/// A field that two versions of a resource have different values for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Where it is: `virtualHosts[reviews:9080].routes[0].route.timeout`. Items with names are called by them.
    pub path: String,
    /// The value before, shortened; `None` if there was none, or if it may be a credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The fields that differ, and how many there are beyond those.
pub(super) fn compare(kind: ResourceType, before: &Resource, after: &Resource) -> (Vec<FieldChange>, usize) {
    let (Some(before), Some(after)) = (tree(kind, before), tree(kind, after)) else { return (Vec::new(), 0) };
    let mut walk = Walk { found: Vec::new(), more: 0, hides_values: kind.has_credentials() };
    walk.compare("", Some(&before), Some(&after));
    (walk.found, walk.more)
}

fn tree(kind: ResourceType, resource: &Resource) -> Option<Node> {
    let descriptor = descriptors::message(kind.message())?;
    Some(json::write_dynamic(&DynamicMessage::decode(descriptor, resource.body.clone()).ok()?))
}

struct Walk {
    found: Vec<FieldChange>,
    more: usize,
    hides_values: bool,
}

impl Walk {
    fn compare(&mut self, path: &str, before: Option<&Node>, after: Option<&Node>) {
        match (before.map(|node| &node.value), after.map(|node| &node.value)) {
            (before, after) if before == after => {}
            (Some(Value::Map(old)), Some(Value::Map(new))) => {
                for entry in old {
                    self.compare(&field(path, &entry.key), Some(&entry.node), new.get(&entry.key));
                }
                for entry in new.iter().filter(|entry| !old.contains_key(&entry.key)) {
                    self.compare(&field(path, &entry.key), None, Some(&entry.node));
                }
            }
            (Some(Value::List(old)), Some(Value::List(new))) => self.compare_lists(path, old, new),
            _ => self.add(path, before, after),
        }
    }

    /// Items with names of their own are compared by name, others from both ends: what is left is what was put in or taken out.
    fn compare_lists(&mut self, path: &str, before: &[Node], after: &[Node]) {
        if let (Some(old), Some(new)) = (names(before), names(after)) {
            for (name, item) in &old {
                let now = new.iter().find(|(other, _)| other == name).map(|(_, item)| *item);
                self.compare(&format!("{path}[{name}]"), Some(*item), now);
            }
            for (name, item) in new.iter().filter(|(name, _)| old.iter().all(|(other, _)| other != name)) {
                self.compare(&format!("{path}[{name}]"), None, Some(*item));
            }
            let order = |items: &[(&str, &Node)], others: &[(&str, &Node)]| -> Vec<String> {
                let shared = items.iter().filter(|(name, _)| others.iter().any(|(other, _)| other == name));
                shared.map(|(name, _)| (*name).to_owned()).collect()
            };
            let (was, is) = (order(&old, &new), order(&new, &old));
            if was != is {
                self.push(format!("{path} (order)"), Some(was.join(", ")), Some(is.join(", ")));
            }
            return;
        }
        let begin = before.iter().zip(after).take_while(|(old, new)| old.value == new.value).count();
        let (old, new) = (&before[begin..], &after[begin..]);
        let end =
            old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old.value == new.value).count();
        let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
        for index in 0..old.len().max(new.len()) {
            self.compare(&format!("{path}[{}]", begin + index), old.get(index), new.get(index));
        }
    }

    fn add(&mut self, path: &str, before: Option<&Node>, after: Option<&Node>) {
        let shown = |node: &Node| short(&node.to_json().to_string());
        self.push(path.to_owned(), before.map(shown), after.map(shown));
    }

    fn push(&mut self, path: String, before: Option<String>, after: Option<String>) {
        if self.found.len() >= MAX_FIELDS {
            self.more += 1;
        } else if self.hides_values {
            self.found.push(FieldChange { path, before: None, after: None });
        } else {
            self.found.push(FieldChange { path, before, after });
        }
    }
}

fn field(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The items by their names, if each has one and no two have the same.
fn names(items: &[Node]) -> Option<Vec<(&str, &Node)>> {
    let named: Option<Vec<(&str, &Node)>> =
        items.iter().map(|item| Some((item.get("name").and_then(Node::as_str)?, item))).collect();
    let named = named?;
    let mut names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    (!names.windows(2).any(|pair| pair[0] == pair[1])).then_some(named)
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
