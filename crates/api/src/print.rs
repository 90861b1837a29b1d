//! Objects as rows of a table.

use canopus_base::tree::{Node, Value};

use crate::kinds::Object;

impl Object {
    /// The cells of this object under the columns of its kind. A value that is not there is an empty cell.
    pub fn cells(&self) -> Vec<String> {
        let columns = self.kind().info().columns;
        if columns.is_empty() {
            return Vec::new();
        }
        let node = self.to_node();
        columns.iter().map(|column| cell(&node, column.path)).collect()
    }
}

/// The values at a column's path, with commas between.
fn cell(node: &Node, path: &str) -> String {
    let texts: Vec<String> = select(node, path).into_iter().map(text).collect();
    texts.join(",")
}

/// The values at a path of the kind that CRDs use for their columns: `.a.b`, `[0]`, `[*]`, `[?(@.key=="value")]`.
fn select<'a>(node: &'a Node, path: &str) -> Vec<&'a Node> {
    let mut found = vec![node];
    for step in steps(path) {
        found = found.into_iter().flat_map(|node| take(node, step)).collect();
    }
    found
}

/// Splits a path at its dots and brackets. A filter in brackets has dots of its own.
fn steps(path: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = if let Some(bracket) = rest.strip_prefix('[') {
            bracket.find(']').map_or(rest.len(), |at| at + 2)
        } else {
            rest[1..].find(['.', '[']).map_or(rest.len(), |at| at + 1)
        };
        steps.push(&rest[..end]);
        rest = &rest[end..];
    }
    steps
}

fn take<'a>(node: &'a Node, step: &str) -> Vec<&'a Node> {
    if let Some(key) = step.strip_prefix('.') {
        return node.get(key).into_iter().collect();
    }
    let items = node.as_list().unwrap_or_default();
    let inside = step.trim_matches(['[', ']']);
    if inside == "*" {
        return items.iter().collect();
    }
    if let Some(condition) = inside.strip_prefix("?(@.").and_then(|condition| condition.strip_suffix(')')) {
        let Some((key, value)) = condition.split_once("==") else {
            return Vec::new();
        };
        let holds = |item: &&Node| item.get(key).and_then(Node::as_str) == Some(value.trim_matches('"'));
        return items.iter().filter(holds).collect();
    }
    inside.parse::<usize>().ok().and_then(|index| items.get(index)).into_iter().collect()
}

/// A value as it stands in a cell: texts bare, lists and maps as JSON.
fn text(node: &Node) -> String {
    match &node.value {
        Value::String(text) => text.to_string(),
        Value::Null => String::new(),
        _ => node.to_json().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::decode::Options;
    use crate::registry::Column;

    fn cells(json: serde_json::Value) -> Vec<String> {
        Object::decode(&Node::from(json), Options::strict()).unwrap().value.cells()
    }

    #[test]
    fn lists_are_json_and_absent_values_are_empty() {
        let object = serde_json::json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a"},
            "spec": {"hosts": ["a", "b"]},
        });
        assert_eq!(cells(object), ["", r#"["a","b"]"#]);
    }

    #[test]
    fn condition_is_found_by_its_type() {
        let object = serde_json::json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "a"},
            "spec": {"gatewayClassName": "istio"},
            "status": {
                "addresses": [{"value": "1.1.1.1"}, {"value": "2.2.2.2"}],
                "conditions": [{"type": "Accepted", "status": "False"}, {"type": "Programmed", "status": "True"}],
            },
        });
        assert_eq!(cells(object), ["istio", "1.1.1.1,2.2.2.2", "True"]);
    }

    #[test]
    fn every_column_has_a_path_that_can_be_followed() {
        let columns = Kind::ALL.iter().flat_map(|kind| kind.info().columns);
        for Column { name, path } in columns {
            assert!(path.starts_with('.') && !name.is_empty(), "{name} {path}");
            assert_eq!(steps(path).concat(), *path, "no part of a path is lost");
        }
    }
}
