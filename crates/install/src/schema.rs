//! The schema of `values`: which there are, and of what types.
//!
//! `values_schema.txt` has a type per block and a field per line: its name, its type and, if it differs, its second name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value as Json;

use crate::tree::kind;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::read(include_str!("values_schema.txt")));

struct Schema {
    types: BTreeMap<&'static str, Vec<Field>>,
}

struct Field {
    name: &'static str,
    second_name: Option<&'static str>,
    kind: &'static str,
}

impl Schema {
    fn read(text: &'static str) -> Self {
        let mut types: BTreeMap<&'static str, Vec<Field>> = BTreeMap::new();
        let mut open = "";
        for line in text.lines() {
            let Some(field) = line.strip_prefix('\t') else {
                open = line;
                types.entry(open).or_default();
                continue;
            };
            let mut words = field.split(' ');
            if let (Some(name), Some(kind)) = (words.next(), words.next()) {
                types.entry(open).or_default().push(Field { name, kind, second_name: words.next() });
            }
        }
        Self { types }
    }
}

/// What is wrong with values, each with its path.
pub(crate) fn check(values: &Json) -> Vec<String> {
    let mut errors = Vec::new();
    check_type("Values", values, &mut "values".to_owned(), &mut errors);
    errors
}

/// The type of values at a path such as `values.global.proxy`; none if it has no name or the path leads nowhere.
pub fn type_at(path: &str) -> Option<&'static str> {
    let mut keys = path.split('.');
    if keys.next() != Some("values") {
        return None;
    }
    let found = keys.try_fold("Values", |name, key| {
        let (key, _) = key.split_once('[').unwrap_or((key, ""));
        let name = name.strip_prefix("map:").or_else(|| name.strip_prefix("[]")).unwrap_or(name);
        let fields = SCHEMA.types.get(name)?;
        Some(fields.iter().find(|field| field.name == key || field.second_name == Some(key))?.kind)
    })?;
    SCHEMA.types.contains_key(found).then_some(found)
}

fn check_type(name: &'static str, value: &Json, path: &mut String, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    if let Some(item) = name.strip_prefix("[]") {
        let Json::Array(items) = value else { return errors.push(mismatch(path, "a list", value)) };
        for (at, value) in items.iter().enumerate() {
            within(path, &format!("[{at}]"), |path| check_type(item, value, path, errors));
        }
        return;
    }
    if let Some(item) = name.strip_prefix("map:") {
        let Json::Object(map) = value else { return errors.push(mismatch(path, "a map", value)) };
        for (key, value) in map {
            within(path, &format!(".{key}"), |path| check_type(item, value, path, errors));
        }
        return;
    }
    let expected = match (name, value) {
        ("any", _) => return,
        ("struct", Json::Object(_)) | ("bool", Json::Bool(_)) | ("string", Json::String(_)) => return,
        ("number", Json::Number(_)) => return,
        ("integer", Json::Number(number)) if number.is_i64() || number.is_u64() => return,
        ("integer", Json::String(text)) if text.parse::<i64>().is_ok() => return,
        ("intOrString", Json::Number(_) | Json::String(_)) => return,
        ("struct", _) => "a map",
        ("bool", _) => "true or false",
        ("string", _) => "a string",
        ("number", _) => "a number",
        ("integer", _) => "an integer",
        ("intOrString", _) => "an integer or a string",
        _ => "",
    };
    if !expected.is_empty() {
        return errors.push(mismatch(path, expected, value));
    }
    if let Some(names) = name.strip_prefix("enum:") {
        let known = value.as_str().is_some_and(|value| names.split('|').any(|name| name == value));
        if !known && !value.is_number() {
            errors.push(format!("{path}: unknown value {value}; use one of {}", names.replace('|', ", ")));
        }
        return;
    }
    let Some(fields) = SCHEMA.types.get(name) else { return };
    let Json::Object(map) = value else { return errors.push(mismatch(path, "a map", value)) };
    for (key, value) in map {
        match fields.iter().find(|field| field.name == key || field.second_name == Some(key)) {
            Some(field) => within(path, &format!(".{key}"), |path| check_type(field.kind, value, path, errors)),
            None => errors.push(format!("{path}: unknown field {key:?}; correct the name, or use unvalidatedValues for templates of your own")),
        }
    }
}

fn within(path: &mut String, part: &str, check: impl FnOnce(&mut String)) {
    let end = path.len();
    path.push_str(part);
    check(path);
    path.truncate(end);
}

fn mismatch(path: &str, expected: &str, found: &Json) -> String {
    format!("{path}: expected {expected}, found a {}", kind(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_found_by_path() {
        assert_eq!(type_at("values"), Some("Values"));
        assert_eq!(type_at("values.global"), Some("GlobalConfig"));
        assert_eq!(type_at("values.revision"), None);
        assert_eq!(type_at("values.typo.x"), None);
    }

    #[test]
    fn unknown_fields_and_wrong_types_are_named_by_their_path() {
        assert_eq!(
            check(&json!({"global": {"proxy": {"statusPort": 15020}, "tag": 1.3}, "ztunnel": {"x": 1}})),
            [""; 0]
        );
        let errors = check(
            &json!({"global": {"proxy": {"statusPort": "x", "typo": 1}, "logAsJson": "yes"}, "pilot": 1}),
        );
        assert_eq!(errors[0], "values.global.logAsJson: expected true or false, found a string");
        assert_eq!(errors[1], "values.global.proxy.statusPort: expected an integer, found a string");
        assert!(errors[2].starts_with("values.global.proxy: unknown field \"typo\""), "{errors:?}");
        assert_eq!(errors[3], "values.pilot: expected a map, found a number");
    }
}
