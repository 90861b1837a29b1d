use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;

/// A tree whose every node and key has a position of its own, counted in visiting order.
fn numbered(json: serde_json::Value) -> Node {
    fn number(node: &mut Node, next: &mut u32) {
        *next += 1;
        node.at = Pos::new(*next, 1);
        match &mut node.value {
            Value::List(items) => items.iter_mut().for_each(|item| number(item, next)),
            Value::Map(map) => {
                for entry in &mut map.entries {
                    *next += 1;
                    entry.key_at = Pos::new(*next, 1);
                    number(&mut entry.node, next);
                }
            }
            _ => {}
        }
    }
    let mut node = Node::from(json);
    number(&mut node, &mut 0);
    node
}

fn entry(key: &str, line: u32) -> Entry {
    Entry { key: key.into(), key_at: Pos::new(line, 1), node: Node::default() }
}

#[derive(Deserialize, Debug, PartialEq, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Spec<'a> {
    #[serde(borrow)]
    host: &'a str,
    port: u16,
    weight: Option<i32>,
    ratio: f64,
    labels: BTreeMap<String, String>,
    mode: Mode,
    routes: Vec<Route>,
    wrapped: Wrapped,
}

#[derive(Deserialize, Debug, PartialEq, Default)]
struct Route {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize, Debug, PartialEq, Default)]
struct Wrapped(i64);

#[derive(Deserialize, Debug, PartialEq, Default)]
#[serde(rename_all = "UPPERCASE")]
enum Mode {
    #[default]
    Strict,
    Disable,
    Custom(String),
}

#[test]
fn equality_ignores_positions_and_key_order() {
    let one = numbered(json!({"a": 1, "b": [true, null]}));
    let mut other = Node::from(json!({"b": [true, null], "a": 1}));
    assert_eq!(one, other);
    other.as_map_mut().unwrap().insert("a", Value::from(2).into());
    assert_ne!(one, other);
}

#[test]
fn json_round_trips() {
    let json = json!({"a": [1, -2, 1.5, u64::MAX, "x", null, {"b": false}], "c": {}});
    let node = Node::from(json.clone());
    assert_eq!(node.to_json(), json);
    assert_eq!(serde_json::to_value(&node).unwrap(), json);
    assert_eq!(serde_json::from_value::<Node>(json).unwrap(), node);
}

#[test]
fn pointer_walks_maps_and_lists() {
    let node = Node::from(json!({"spec": {"http": [{"a/b": 1}]}}));
    assert_eq!(node.pointer("/spec/http/0/a~1b").and_then(Node::as_i64), Some(1));
    assert_eq!(node.pointer(""), Some(&node));
    for missing in ["spec", "/spec/http/1", "/spec/http/00", "/spec/http/-", "/nope", "/spec/http/0/a~1b/x"] {
        assert_eq!(node.pointer(missing), None, "{missing}");
    }
}

#[test]
fn map_refuses_or_replaces_a_repeated_key() {
    let mut map = Map::new();
    assert_eq!(map.insert("a", Value::from(1).into()), None);
    assert_eq!(map.insert("a", Value::from(2).into()), Some(Value::from(1).into()));
    let refused = map.push(entry("a", 7)).unwrap_err();
    assert_eq!((&*refused.key, refused.at), ("a", Pos::new(7, 1)));
    assert_eq!(map.len(), 1);
    assert!(map.remove("a").is_some());
    assert!(map.is_empty());
}

#[test]
fn from_entries_names_the_first_repeat_in_source_order() {
    for size in [4, 40] {
        let mut entries: Vec<Entry> = (0..size).map(|i| entry(&format!("k{i}"), i)).collect();
        assert!(Map::from_entries(entries.clone()).is_ok());
        entries.push(entry("k3", 100));
        entries.push(entry("k0", 101));
        let refused = Map::from_entries(entries).unwrap_err();
        assert_eq!((&*refused.key, refused.at.line), ("k3", 100), "size {size}");
    }
}

#[test]
fn decode_reads_every_shape() {
    let node = Node::from(json!({
        "host": "a.b", "port": 80, "weight": -3, "ratio": 2, "labels": {"x": "y"}, "mode": "DISABLE",
        "routes": [{"name": "r"}], "wrapped": 9,
    }));
    let spec: Spec<'_> = node.decode().unwrap();
    assert_eq!(
        spec,
        Spec {
            host: "a.b",
            port: 80,
            weight: Some(-3),
            ratio: 2.0,
            labels: BTreeMap::from([("x".into(), "y".into())]),
            mode: Mode::Disable,
            routes: vec![Route { name: "r".into() }],
            wrapped: Wrapped(9),
        }
    );
    let custom = Node::from(json!({"mode": {"CUSTOM": "x"}}));
    assert_eq!(custom.decode::<Spec<'_>>().unwrap().mode, Mode::Custom("x".into()));
}

#[test]
fn null_means_not_given() {
    let node = Node::from(json!({
        "host": null, "port": null, "weight": null, "labels": {"x": null}, "mode": null, "routes": [null],
    }));
    let spec: Spec<'_> = node.decode().unwrap();
    let expected = Spec {
        labels: BTreeMap::from([("x".into(), String::new())]),
        routes: vec![Route::default()],
        ..Spec::default()
    };
    assert_eq!(spec, expected);
    assert_eq!(Node::default().decode::<Vec<i32>>().unwrap(), Vec::<i32>::new());
    assert_eq!(Node::default().decode::<BTreeMap<String, i32>>().unwrap(), BTreeMap::new());
}

#[test]
fn decode_error_names_path_and_place() {
    let cases = [
        (json!({"host": 1}), "host", 3, "invalid type: integer `1`, expected a borrowed string"),
        (json!({"port": "80"}), "port", 3, "invalid type: string \"80\", expected u16"),
        (json!({"port": 70000}), "port", 3, "invalid value: integer `70000`, expected u16"),
        (json!({"port": 1.0}), "port", 3, "invalid type: floating point `1.0`, expected u16"),
        (
            json!({"routes": [{}, {"name": true}]}),
            "routes[1].name",
            7,
            "invalid type: boolean `true`, expected a string",
        ),
        (json!({"routes": [[]]}), "routes[0]", 4, "invalid type: sequence, expected struct Route"),
        (
            json!({"labels": {"a.b/c": 1}}),
            "labels[\"a.b/c\"]",
            5,
            "invalid type: integer `1`, expected a string",
        ),
        (
            json!({"mode": "LAX"}),
            "mode",
            3,
            "unknown variant `LAX`, expected one of `STRICT`, `DISABLE`, `CUSTOM`",
        ),
        (json!([]), "", 1, "invalid type: sequence, expected struct Spec"),
    ];
    for (json, path, line, message) in cases {
        let error = numbered(json.clone()).decode::<Spec<'_>>().unwrap_err();
        assert_eq!(
            (error.path.as_str(), error.at, error.message.as_str()),
            (path, Pos::new(line, 1), message),
            "{json}"
        );
    }
}

#[test]
fn unknown_field_is_located_at_its_key() {
    let node = numbered(json!({"port": 1, "prt": 2}));
    let error = node.decode::<Spec<'_>>().unwrap_err();
    assert_eq!((error.path.as_str(), error.at), ("prt", Pos::new(4, 1)));
    assert!(error.to_string().starts_with("prt: unknown field `prt`"), "{error}");
    assert!(error.to_string().ends_with(" at line 4, column 1"), "{error}");
}

#[test]
fn node_field_keeps_positions() {
    #[derive(Deserialize)]
    struct Object {
        spec: Node,
        #[serde(default)]
        absent: Option<Node>,
    }
    let tree = numbered(json!({"kind": "X", "spec": {"a": [1, {"b": null}]}}));
    let object: Object = tree.decode().unwrap();
    assert_eq!(format!("{:?}", object.spec), format!("{:?}", tree.get("spec").unwrap()));
    assert!(object.absent.is_none());
}

#[test]
fn integer_keys_are_read_from_their_text() {
    let node = numbered(json!({"80": "http", "443": "https"}));
    let ports: BTreeMap<u16, String> = node.decode().unwrap();
    assert_eq!(ports.into_keys().collect::<Vec<_>>(), [80, 443]);
    let error = numbered(json!({"http": ""})).decode::<BTreeMap<u16, String>>().unwrap_err();
    assert_eq!((error.path.as_str(), error.at), ("http", Pos::new(2, 1)));
}
