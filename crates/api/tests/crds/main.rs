//! Our definitions of Istio's kinds against those Istio ships. Without the corpus the test says so and passes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod corpus;

use std::collections::BTreeMap;

use canopus_api::crd::own;
use canopus_base::tree::{Entry, Node, Value};

/// Fields of the API that Istio ships its definitions with which are not in our descriptors, so not in our definitions.
const NOT_YET: [&str; 4] = ["backendUtilization", "ecdhCurves", "presence", "transportSocket"];

#[test]
fn definitions_are_those_istio_ships_but_for_the_prose() {
    let Some(shipped) = corpus::shipped_crds() else { return };
    let shipped: BTreeMap<String, Node> = shipped.into_iter().map(named).collect();
    let ours: BTreeMap<String, Node> = own::definitions().into_iter().map(named).collect();
    assert_eq!(ours.keys().collect::<Vec<_>>(), shipped.keys().collect::<Vec<_>>());
    let mut differences = Vec::new();
    for (name, shipped) in &shipped {
        compare(&known(shipped), &ours[name], name, &mut differences);
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn fields_that_our_descriptors_have_are_not_left_out_of_the_comparison() {
    let ours = own::definitions();
    for name in NOT_YET {
        assert!(
            ours.iter().all(|document| known_without(document, &[name]) == *document),
            "{name} is there now"
        );
    }
}

/// A shipped definition without what our descriptors do not have.
fn known(document: &Node) -> Node {
    known_without(document, &NOT_YET)
}

fn known_without(node: &Node, fields: &[&str]) -> Node {
    let is_about_one = |item: &Node| {
        let required = item.get("required").and_then(Node::as_list).and_then(<[Node]>::first);
        required.and_then(Node::as_str).is_some_and(|name| fields.contains(&name))
    };
    match &node.value {
        Value::Map(map) => {
            let kept = map.iter().filter(|entry| !fields.contains(&&*entry.key));
            Value::Map(kept.map(|entry| (&entry.key, known_without(&entry.node, fields))).collect()).into()
        }
        Value::List(items) => {
            let kept = items.iter().filter(|item| !is_about_one(item));
            Value::List(kept.map(|item| known_without(item, fields)).collect()).into()
        }
        _ => node.clone(),
    }
}

fn named(document: Node) -> (String, Node) {
    let name = document.pointer("/metadata/name").and_then(Node::as_str).unwrap().to_owned();
    (name, document)
}

fn compare(expected: &Node, found: &Node, path: &str, differences: &mut Vec<String>) {
    match (&expected.value, &found.value) {
        (Value::Map(a), Value::Map(b)) => {
            for entry in a.iter().filter(|entry| !is_prose(entry)) {
                let path = format!("{path}.{}", entry.key);
                match b.get(&entry.key) {
                    Some(found) => compare(&entry.node, found, &path, differences),
                    None => differences.push(format!("{path}: missing {}", entry.node.to_json())),
                }
            }
            for entry in b.iter().filter(|entry| !is_prose(entry) && !a.contains_key(&entry.key)) {
                differences.push(format!("{path}.{}: not expected: {}", entry.key, entry.node.to_json()));
            }
        }
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            // The order of versions, rules and required fields decides nothing.
            let (a, b) = (sorted(a), sorted(b));
            for (index, (expected, found)) in a.iter().zip(&b).enumerate() {
                compare(expected, found, &format!("{path}[{index}]"), differences);
            }
        }
        _ if expected == found => {}
        _ => differences.push(format!("{path}: {} instead of {}", found.to_json(), expected.to_json())),
    }
}

/// What describes but does not decide. A field may have that name too.
fn is_prose(entry: &Entry) -> bool {
    &*entry.key == "description" && entry.node.as_str().is_some()
}

fn sorted(items: &[Node]) -> Vec<&Node> {
    let key =
        |node: &Node| node.get("name").or_else(|| node.get("rule")).map(|key| key.to_json().to_string());
    let mut items: Vec<&Node> = items.iter().collect();
    items.sort_by_cached_key(|node| key(node).unwrap_or_else(|| node.to_json().to_string()));
    items
}
