//! Our definitions of Istio's kinds against those Istio ships. Without the corpus the test says so and passes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

#[path = "../support/corpus.rs"]
mod corpus;

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::crd::own;
use canopus_base::tree::{Entry, Node, Value};

/// The definitions Istio ships.
fn shipped() -> Option<Vec<Node>> {
    Some(corpus::documents(&corpus::directory()?.join("crds/crd-all.gen.yaml")))
}

#[test]
fn definitions_are_those_istio_ships_but_for_the_prose() {
    let Some(shipped) = shipped() else { return };
    let shipped: BTreeMap<String, Node> = shipped.into_iter().map(named).collect();
    let ours: BTreeMap<String, Node> = own::definitions().into_iter().map(named).collect();
    assert_eq!(ours.keys().collect::<Vec<_>>(), shipped.keys().collect::<Vec<_>>());
    let mut differences = Vec::new();
    for (name, shipped) in &shipped {
        compare(shipped, &ours[name], name, &mut differences);
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn prose_is_our_own() {
    let Some(shipped) = shipped() else { return };
    let mut theirs = BTreeSet::new();
    shipped.iter().for_each(|document| sentences(document, &mut theirs));
    let mut ours = BTreeSet::new();
    own::definitions().iter().for_each(|document| sentences(document, &mut ours));
    let shared: Vec<_> = ours.intersection(&theirs).collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

/// Every sentence of the descriptions in a document, in lower case and with single blanks.
fn sentences(node: &Node, found: &mut BTreeSet<String>) {
    match &node.value {
        Value::Map(map) => {
            for entry in map {
                match entry.node.as_str() {
                    Some(prose) if is_prose(entry) => found.extend(split_sentences(prose)),
                    _ => sentences(&entry.node, found),
                }
            }
        }
        Value::List(items) => items.iter().for_each(|item| sentences(item, found)),
        _ => {}
    }
}

fn split_sentences(prose: &str) -> impl Iterator<Item = String> {
    let words = |sentence: &str| sentence.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    prose
        .split(['.', ';', ':', '\n'])
        .map(words)
        .filter(|sentence| sentence.contains(' '))
        .collect::<Vec<_>>()
        .into_iter()
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
