//! Untyped configuration: merging, and values at [paths](crate::path).
//!
//! Configuration stays JSON because what is set to zero must be told from what is not set, and because paths come from users.

use serde_json::{Map, Value as Json};

use crate::path::{self, Segment};

/// An untyped configuration.
pub type Tree = Map<String, Json>;

/// Lays one configuration over another, key by key; anything but maps is replaced.
pub fn merge(base: &mut Tree, overlay: Tree) {
    for (key, value) in overlay {
        match (base.get_mut(&key), value) {
            (Some(Json::Object(base)), Json::Object(overlay)) => merge(base, overlay),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A configuration with one value under a path of plain keys.
pub(crate) fn nested(value: Json, path: &[&str]) -> Tree {
    let mut value = value;
    let Some((first, rest)) = path.split_first() else { return Tree::new() };
    for key in rest.iter().rev() {
        value = Json::Object([((*key).to_owned(), value)].into_iter().collect());
    }
    [((*first).to_owned(), value)].into_iter().collect()
}

/// The value at a path.
pub fn get<'a>(tree: &'a Tree, path: &str) -> Option<&'a Json> {
    let mut segments = path::parse(path).into_iter();
    let Some(Segment::Key(first)) = segments.next() else { return None };
    segments.try_fold(tree.get(&first)?, |value, segment| match segment {
        Segment::Key(key) => value.as_object()?.get(&key),
        Segment::Index(index) => value.as_array()?.get(usize::try_from(index).ok()?),
        Segment::Entry(key, wanted) => {
            value.as_array()?.iter().find(|item| item.get(&key).and_then(Json::as_str) == Some(&wanted))
        }
        Segment::Item(wanted) => value.as_array()?.iter().find(|item| item.as_str() == Some(&wanted)),
        Segment::Unknown(_) => None,
    })
}

pub(crate) fn get_map<'a>(tree: &'a Tree, path: &str) -> Option<&'a Tree> {
    get(tree, path)?.as_object()
}

pub(crate) fn get_text<'a>(tree: &'a Tree, path: &str) -> &'a str {
    get(tree, path).and_then(Json::as_str).unwrap_or_default()
}

pub(crate) fn is_true(tree: &Tree, path: &str) -> bool {
    get(tree, path).and_then(Json::as_bool).unwrap_or_default()
}

/// Sets the value at a path, and makes the maps and lists on the way to it.
pub fn set(tree: &mut Tree, path: &str, value: Json) -> Result<(), String> {
    let segments = path::parse(path);
    if segments.is_empty() {
        return Err("the path is empty".to_owned());
    }
    let mut root = Json::Object(std::mem::take(tree));
    let result = set_value(&mut root, &segments, value);
    if let Json::Object(map) = root {
        *tree = map;
    }
    result
}

fn set_value(target: &mut Json, segments: &[Segment], value: Json) -> Result<(), String> {
    let Some((segment, rest)) = segments.split_first() else {
        *target = value;
        return Ok(());
    };
    match segment {
        Segment::Key(key) => {
            if target.is_null() {
                *target = Json::Object(Map::new());
            }
            let found = kind(target);
            let Json::Object(map) = target else {
                return Err(format!("{key}: the value above it is a {found}, not a map"));
            };
            let next_is_list = rest.first().is_some_and(|next| !matches!(next, Segment::Key(_)));
            let missing = || if next_is_list { Json::Array(Vec::new()) } else { Json::Null };
            set_value(map.entry(key.clone()).or_insert_with(missing), rest, value)
        }
        Segment::Index(index) => {
            let items = items(target)?;
            let at = usize::try_from(*index).ok().filter(|at| *at < items.len());
            let at = at.unwrap_or_else(|| {
                items.push(Json::Null);
                items.len() - 1
            });
            set_value(&mut items[at], rest, value)
        }
        Segment::Entry(key, wanted) => {
            let items = items(target)?;
            let matches = |item: &&mut Json| item.get(key).and_then(Json::as_str) == Some(wanted);
            match items.iter_mut().find(matches) {
                Some(item) => set_value(item, rest, value),
                None => Err(format!("element [{key}:{wanted}] not found")),
            }
        }
        Segment::Item(item) => Err(format!("unknown segment [:{item}]")),
        Segment::Unknown(inner) => Err(format!("unknown segment [{inner}]")),
    }
}

fn items(target: &mut Json) -> Result<&mut Vec<Json>, String> {
    if target.is_null() {
        *target = Json::Array(Vec::new());
    }
    let found = kind(target);
    target.as_array_mut().ok_or_else(|| format!("the value is a {found}, not a list"))
}

pub(crate) fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "list",
        Json::Object(_) => "map",
    }
}

/// Paths whose values are texts, however much they look like numbers.
const ALWAYS_TEXT: [&str; 6] = [
    "spec.values.compatibilityVersion",
    "spec.tag",
    "spec.values.global.tag",
    "spec.meshConfig.defaultConfig.proxyMetadata.",
    "spec.values.meshConfig.defaultConfig.proxyMetadata.",
    "spec.compatibilityVersion",
];

/// Applies `path=value` below `spec`.
pub(crate) fn set_flag(tree: &mut Tree, flag: &str) -> Result<(), String> {
    let (path, value) = match flag.split_once('=') {
        Some((path, value)) => (path.trim(), value.trim()),
        None => (flag, ""),
    };
    let path = format!("spec.{path}");
    let value = if ALWAYS_TEXT.iter().any(|prefix| path.starts_with(prefix)) {
        Json::from(value)
    } else {
        parse_value(value)
    };
    set(tree, &path, value)
}

/// Reads a number or a truth as Go does, and a text otherwise.
pub fn parse_value(text: &str) -> Json {
    if let Ok(int) = text.strip_prefix('+').unwrap_or(text).parse::<i64>() {
        return Json::from(int);
    }
    let looks_like_number = text.bytes().any(|byte| byte.is_ascii_digit());
    if let Some(float) = text.parse::<f64>().ok().filter(|float| looks_like_number && float.is_finite()) {
        return Json::from(float);
    }
    match text {
        "t" | "T" | "TRUE" | "true" | "True" => Json::Bool(true),
        "f" | "F" | "FALSE" | "false" | "False" => Json::Bool(false),
        _ => Json::from(text.replace("\\,", ",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree(json: Json) -> Tree {
        json.as_object().cloned().unwrap()
    }

    #[test]
    fn later_configuration_counts_key_by_key() {
        let mut base = tree(json!({"a": {"b": 1, "c": [1]}, "d": 1}));
        merge(&mut base, tree(json!({"a": {"c": [2], "e": null}, "d": {"f": 1}})));
        assert_eq!(Json::Object(base), json!({"a": {"b": 1, "c": [2], "e": null}, "d": {"f": 1}}));
    }

    #[test]
    fn flags_make_what_is_missing_on_their_way() {
        let mut base = Tree::new();
        for flag in [
            "values.pilot.env.A=1",
            "values.pilot.env.B=true",
            "values.x.a\\.b=text",
            "components.gateways[0].name=gw",
            "components.gateways.[name:gw].enabled=false",
            "tag=1.30",
            "values.list[0]=a",
            "values.list[7]=b",
        ] {
            set_flag(&mut base, flag).unwrap();
        }
        let expected = json!({"spec": {
            "values": {"pilot": {"env": {"A": 1, "B": true}}, "x": {"a.b": "text"}, "list": ["a", "b"]},
            "components": {"gateways": [{"name": "gw", "enabled": false}]},
            "tag": "1.30",
        }});
        assert_eq!(Json::Object(base), expected);
    }

    #[test]
    fn flags_that_lead_nowhere_are_refused() {
        let mut base = tree(json!({"spec": {"values": {"a": 1, "list": [{"name": "x"}]}}}));
        assert!(set_flag(&mut base, "values.a.b=1").unwrap_err().contains("is a number, not a map"));
        assert_eq!(
            set_flag(&mut base, "values.list.[name:y].z=1"),
            Err("element [name:y] not found".to_owned())
        );
    }
}
