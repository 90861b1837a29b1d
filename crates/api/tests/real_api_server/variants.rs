//! Objects that are nearly right: each part of a spec replaced by something else.

use canopus_base::tree::{Node, Value};
use serde_json::json;

/// How many variants there are for each part; all of them would keep the server busy for minutes.
const PER_PART: usize = 2;

/// Variants of a document. Which replacements a part gets goes round, so that each is tried on parts of every sort.
pub(crate) fn derive_variants(document: &Node) -> Vec<Node> {
    let mut paths = Vec::new();
    if let Some(spec) = document.get("spec") {
        collect(spec, "/spec", &mut paths);
    }
    let replacements = [
        json!(null),
        json!(7),
        json!(""),
        json!([]),
        json!(-1),
        json!("7"),
        json!(true),
        json!({}),
        json!(1.5),
    ];
    let mut next = replacements.iter().cycle();
    let variants = paths.iter().flat_map(|path| {
        let chosen: Vec<_> = next.by_ref().take(PER_PART).collect();
        chosen.into_iter().map(move |replacement| replace(document, path, replacement))
    });
    variants.filter(|variant| variant != document).collect()
}

fn collect(node: &Node, path: &str, paths: &mut Vec<String>) {
    paths.push(path.to_owned());
    match &node.value {
        Value::Map(map) => {
            for entry in map {
                collect(&entry.node, &format!("{path}/{}", escaped(&entry.key)), paths);
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{path}/{index}"), paths);
            }
        }
        _ => {}
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn replace(document: &Node, path: &str, replacement: &serde_json::Value) -> Node {
    let mut json = document.to_json();
    *json.pointer_mut(path).unwrap() = replacement.clone();
    json.into()
}
