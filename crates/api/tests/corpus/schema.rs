//! The types of Gateway API and its friends hold every field their CRDs have, with the CRDs' defaults.

use canopus_api::{Kind, Object, Options};
use canopus_base::tree::{Map, Node, Value};

use crate::{corpus, documents};

/// How much of a schema a sample object fills in.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    /// Every field.
    All,
    /// Objects and lists alone, so that everything inside that has a default gets it.
    Frame,
}

/// An object as a schema describes it.
fn sample(schema: &Node, fill: Fill) -> Option<Node> {
    if let Some(first) = schema.get("enum").and_then(Node::as_list).and_then(<[_]>::first) {
        return (fill == Fill::All).then(|| first.clone());
    }
    let value = match schema.get("type").and_then(Node::as_str) {
        Some("object") => {
            let properties = schema.get("properties").and_then(Node::as_map);
            let fields = properties.into_iter().flatten();
            let map: Map =
                fields.filter_map(|field| Some((&field.key, sample(&field.node, fill)?))).collect();
            if properties.is_none() && fill == Fill::Frame {
                return None;
            }
            Value::Map(if properties.is_none() {
                Map::from_iter([("key", Value::from("value").into())])
            } else {
                map
            })
        }
        Some("array") => Value::List(vec![sample(schema.get("items").unwrap(), fill)?]),
        _ if fill == Fill::Frame => return None,
        Some("integer") => 7_i64.into(),
        Some("boolean") => true.into(),
        Some("string") => match schema.get("format").and_then(Node::as_str) {
            Some("date-time") => "2026-01-31T12:00:00Z".into(),
            _ => "text".into(),
        },
        _ => "text".into(),
    };
    Some(value.into())
}

/// `object` as the API server would store it: with the schema's defaults filled in.
fn defaulted(schema: &Node, object: &Node) -> Node {
    match &object.value {
        Value::Map(map) => {
            let mut filled = Map::new();
            for field in schema.get("properties").and_then(Node::as_map).into_iter().flatten() {
                let given = map.get(&field.key).or_else(|| field.node.get("default"));
                if let Some(given) = given {
                    filled.insert(&field.key, defaulted(&field.node, given));
                }
            }
            if filled.is_empty() { object.clone() } else { Value::Map(filled).into() }
        }
        Value::List(items) => {
            let item_schema = schema.get("items").unwrap();
            Value::List(items.iter().map(|item| defaulted(item_schema, item)).collect()).into()
        }
        _ => object.clone(),
    }
}

/// What `expected` has and `got` has not, as paths.
fn missing(expected: &Node, got: Option<&Node>, path: &str, found: &mut Vec<String>) {
    match (&expected.value, got.map(|node| &node.value)) {
        (Value::Map(fields), _) => {
            for field in fields {
                let got = got.and_then(|node| node.get(&field.key));
                missing(&field.node, got, &format!("{path}.{}", field.key), found);
            }
        }
        (Value::List(items), _) => {
            for (index, item) in items.iter().enumerate() {
                let got = got.and_then(Node::as_list).and_then(|list| list.get(index));
                missing(item, got, &format!("{path}[{index}]"), found);
            }
        }
        // A text at its empty default need not be written.
        (Value::String(text), None) if text.is_empty() => {}
        (expected, Some(got)) if expected == got => {}
        (expected, got) => found.push(format!("{path}: expected {expected:?}, got {got:?}")),
    }
}

fn object(kind: Kind, version: &str, parts: Vec<(&str, Node)>) -> Node {
    let info = kind.info();
    let mut map = Map::new();
    map.insert("apiVersion", Value::from(format!("{}/{version}", info.group)).into());
    map.insert("kind", Value::from(info.kind).into());
    map.insert("metadata", Value::Map(Map::from_iter([("name", Value::from("a").into())])).into());
    for (field, part) in parts {
        map.insert(field, part);
    }
    Value::Map(map).into()
}

/// Each version of each kind that the registry has, with the schemas of spec and status.
fn schemas(file: &str, mut check: impl FnMut(Kind, &str, Vec<(&'static str, &Node)>)) -> usize {
    let Some(root) = corpus() else { return usize::MAX };
    let mut checked = 0;
    for crd in documents(&root.join("integration-inputs/pilot/testdata").join(file)) {
        let text = |pointer| crd.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
        let Some(kind) = Kind::in_group(text("/spec/group"), text("/spec/names/kind")) else {
            continue;
        };
        assert_eq!(kind.info().plural, text("/spec/names/plural"));
        for version in crd.pointer("/spec/versions").unwrap().as_list().unwrap() {
            let name = version.get("name").unwrap().as_str().unwrap();
            assert!(kind.info().versions.contains(&name), "{kind:?} {name}");
            let properties = version.pointer("/schema/openAPIV3Schema/properties").unwrap();
            let parts = ["spec", "status"].into_iter().filter_map(|part| Some((part, properties.get(part)?)));
            check(kind, name, parts.collect());
            checked += 1;
        }
    }
    checked
}

const GATEWAY_API: &str = "gateway-api-crd.yaml";
const INFERENCE: &str = "gateway-api-inference-extension-crd.yaml";

#[test]
fn every_field_of_the_schema_is_read_and_written() {
    let check = |kind: Kind, version: &str, parts: Vec<(&'static str, &Node)>| {
        let parts = parts.into_iter().map(|(part, schema)| (part, sample(schema, Fill::All).unwrap()));
        let full = object(kind, version, parts.collect());
        let decoded = Object::decode(&full, Options::strict()).unwrap_or_else(|error| panic!("{error}"));
        let mut lost = Vec::new();
        let written = decoded.value.to_node();
        for part in ["spec", "status"].into_iter().filter_map(|part| Some((part, full.get(part)?))) {
            missing(part.1, written.get(part.0), part.0, &mut lost);
        }
        assert!(lost.is_empty(), "{kind:?} {version}: {lost:#?}");
    };
    assert!(schemas(GATEWAY_API, check) >= 20);
    assert!(schemas(INFERENCE, check) >= 1);
}

#[test]
fn every_default_of_the_schema_is_filled_in() {
    let check = |kind: Kind, version: &str, parts: Vec<(&'static str, &Node)>| {
        for (part, schema) in parts.into_iter().filter(|(part, _)| *part == "spec") {
            for given in [sample(schema, Fill::Frame).unwrap(), Value::Map(Map::new()).into()] {
                let expected = defaulted(schema, &given);
                let decoded = Object::decode(&object(kind, version, vec![(part, given)]), Options::strict());
                let written = decoded.unwrap_or_else(|error| panic!("{error}")).value.to_node();
                let mut lost = Vec::new();
                missing(&expected, written.get(part), part, &mut lost);
                assert!(lost.is_empty(), "{kind:?} {version}: {lost:#?}");
            }
        }
    };
    assert!(schemas(GATEWAY_API, check) >= 20);
    assert!(schemas(INFERENCE, check) >= 1);
}
