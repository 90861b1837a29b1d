//! Our definitions of Istio's kinds against those Istio ships. Without the corpus the test says so and passes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod corpus;

use std::collections::BTreeMap;

use canopus_api::crd::own;
use canopus_base::tree::{Node, Value};

/// What describes but does not decide.
const PROSE: [&str; 1] = ["description"];

#[test]
fn definitions_are_those_istio_ships_but_for_the_prose() {
    let Some(shipped) = corpus::shipped_crds() else { return };
    let shipped: BTreeMap<String, Node> = shipped.into_iter().map(named).collect();
    let ours: BTreeMap<String, Node> = own::definitions().into_iter().map(named).collect();
    assert_eq!(ours.keys().collect::<Vec<_>>(), shipped.keys().collect::<Vec<_>>());
    let mut differences = Vec::new();
    for (name, shipped) in &shipped {
        compare(shipped, &ours[name], name, &mut differences);
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

fn named(document: Node) -> (String, Node) {
    let name = document.pointer("/metadata/name").and_then(Node::as_str).unwrap().to_owned();
    (name, document)
}

fn compare(expected: &Node, found: &Node, path: &str, differences: &mut Vec<String>) {
    match (&expected.value, &found.value) {
        (Value::Map(a), Value::Map(b)) => {
            for entry in a.iter().filter(|entry| !PROSE.contains(&&*entry.key)) {
                let path = format!("{path}.{}", entry.key);
                match b.get(&entry.key) {
                    Some(found) => compare(&entry.node, found, &path, differences),
                    None => differences.push(format!("{path}: missing {}", entry.node.to_json())),
                }
            }
            for entry in b.iter().filter(|entry| !PROSE.contains(&&*entry.key) && !a.contains_key(&entry.key))
            {
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

fn sorted(items: &[Node]) -> Vec<&Node> {
    let key =
        |node: &Node| node.get("name").or_else(|| node.get("rule")).map(|key| key.to_json().to_string());
    let mut items: Vec<&Node> = items.iter().collect();
    items.sort_by_cached_key(|node| key(node).unwrap_or_else(|| node.to_json().to_string()));
    items
}
