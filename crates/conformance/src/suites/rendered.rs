//! Comparing rendered objects with expected ones.

use anyhow::Context;
use canopus_base::tree::{Map, Node, Value};
use regex::Regex;
use serde_json::Value as Json;

use crate::compare::Difference;
use crate::compare::tree::{self, Rules};

/// Where rendered objects differ from the expected ones, of those that a selection names.
pub(super) fn difference(
    golden: Vec<Node>,
    objects: Vec<Json>,
    selection: Option<&str>,
) -> anyhow::Result<Vec<Difference>> {
    let patterns = selection.map_or(Ok(Vec::new()), patterns)?;
    let selected = |name: &str| patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_match(name));
    let by_name = |documents: Vec<Node>| {
        let named = documents.into_iter().map(|document| (address(&document), document));
        Node::from(Value::Map(named.filter(|(name, _)| name != "::" && selected(name)).collect::<Map>()))
    };
    let objects = objects.into_iter().map(Node::from).collect();
    Ok(tree::difference(&by_name(golden), &by_name(objects), &Rules::default()))
}

/// `Kind:namespace:name`.
fn address(document: &Node) -> String {
    let text = |pointer: &str| document.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
    format!("{}:{}:{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn patterns(selection: &str) -> anyhow::Result<Vec<Regex>> {
    let pattern = |text: &str| Regex::new(&text.trim().replace('*', ".*")).with_context(|| text.to_owned());
    selection.split(',').map(pattern).collect()
}
