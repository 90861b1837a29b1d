//! Comparing lists of objects by what they are called.

use canopus_base::tree::{Map, Node, Value};

/// The documents by kind, namespace and name, without what says nothing.
pub(super) fn by_name(documents: Vec<Node>) -> Node {
    let mut named = Map::new();
    for document in documents {
        if !document.is_null() {
            named.insert(name(&document), pruned(document));
        }
    }
    Value::Map(named).into()
}

/// What a document is called.
pub(super) fn name(document: &Node) -> String {
    let text =
        |pointer: &str| document.pointer(pointer).and_then(Node::as_str).unwrap_or_default().to_owned();
    format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// A tree without nulls, empty lists and empty maps.
pub(super) fn pruned(node: Node) -> Node {
    match node.value {
        Value::Map(map) => {
            let mut kept = Map::new();
            for entry in map.into_entries() {
                let node = pruned(entry.node);
                if !is_empty(&node) {
                    kept.insert(entry.key, node);
                }
            }
            Value::Map(kept).into()
        }
        Value::List(list) => Value::List(list.into_iter().map(pruned).collect()).into(),
        value => value.into(),
    }
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Map(map) => map.iter().next().is_none(),
        Value::List(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_nothing_is_left_out() {
        let node = Node::from(json!({"a": null, "b": {"c": []}, "d": [{}], "e": ""}));
        assert_eq!(pruned(node).to_json(), json!({"d": [{}], "e": ""}));
    }

    #[test]
    fn documents_are_found_by_kind_and_name() {
        let document = json!({"kind": "Gateway", "metadata": {"name": "a", "namespace": "n"}});
        let named = by_name(vec![Node::from(document), Node::default()]);
        assert_eq!(named.pointer("/Gateway n~1a/kind").and_then(Node::as_str), Some("Gateway"));
    }
}
