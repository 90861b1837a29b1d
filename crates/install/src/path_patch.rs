//! Patches by path: `spec.template.spec.containers.[name:discovery].args.[1]`, with a value to set or none to delete.

use canopus_base::tree::Limits;
use canopus_base::yaml;
use regex::Regex;
use serde_json::{Map, Value as Json};

use crate::path::Segment;
use crate::tree::kind;

/// Sets or deletes what a path leads to. Maps on the way are made where they are missing, lists are not.
pub(crate) fn apply(node: &mut Json, path: &[Segment], value: Option<&Json>) -> Result<(), String> {
    let Some((segment, rest)) = path.split_first() else { return Err("the path is empty".to_owned()) };
    if node.is_null() {
        *node = match segment {
            Segment::Key(_) => Json::Object(Map::new()),
            _ => Json::Array(Vec::new()),
        };
    }
    match node {
        Json::Array(items) => {
            let at = position(items, segment)?;
            match (rest.is_empty(), value) {
                (true, Some(value)) => {
                    let value = parsed(value);
                    if at < items.len() {
                        items[at] = value;
                    } else {
                        items.push(value);
                    }
                    Ok(())
                }
                (true, None) => {
                    if at < items.len() {
                        items.remove(at);
                    }
                    Ok(())
                }
                (false, _) => {
                    if at >= items.len() {
                        items.push(Json::Object(Map::new()));
                    }
                    let at = at.min(items.len() - 1);
                    apply(&mut items[at], rest, value)
                }
            }
        }
        Json::Object(map) => {
            let Segment::Key(key) = segment else {
                return Err(format!("{segment:?}: the value is a map, not a list"));
            };
            match (rest.is_empty(), value) {
                (true, Some(value)) => {
                    map.insert(key.clone(), parsed(value));
                    Ok(())
                }
                (true, None) => {
                    map.remove(key);
                    Ok(())
                }
                (false, _) => {
                    apply(map.entry(key.clone()).or_insert_with(|| Json::Object(Map::new())), rest, value)
                }
            }
        }
        other => Err(format!("leads into a {}", kind(other))),
    }
}

/// Which item of a list a segment means; one past the end for a new one.
fn position(items: &[Json], segment: &Segment) -> Result<usize, String> {
    match segment {
        Segment::Index(index) => Ok(usize::try_from(*index).map_or(items.len(), |at| at.min(items.len()))),
        Segment::Entry(key, wanted) => {
            let found =
                items.iter().position(|item| item.get(key).is_some_and(|value| printed(value) == *wanted));
            found.ok_or_else(|| format!("element [{key}:{wanted}] not found"))
        }
        // Parity: what is neither an index nor a key with a value names an item by its value.
        Segment::Item(pattern) | Segment::Unknown(pattern) if !pattern.is_empty() => {
            let regex = Regex::new(pattern).map_err(|_| format!("[:{pattern}] is no regular expression"))?;
            let found = items.iter().position(|item| !item.is_object() && regex.is_match(&printed(item)));
            found.ok_or_else(|| format!("element [:{pattern}] not found"))
        }
        Segment::Item(inner) | Segment::Unknown(inner) => {
            Err(format!("[{inner}]: name an item as [key:value], [:value] or [index]"))
        }
        Segment::Key(key) => {
            Err(format!("{key}: the value is a list; name an item as [key:value] or [index]"))
        }
    }
}

fn printed(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text that is a map in YAML is that map, unless it is JSON.
fn parsed(value: &Json) -> Json {
    let Json::String(text) = value else { return value.clone() };
    let lines = text.split('\n').count();
    let looks_like_map = (lines == 1 && text.contains(": ")) || (lines > 1 && text.contains(':'));
    let is_json = serde_json::from_str::<Map<String, Json>>(text).is_ok();
    if looks_like_map
        && !is_json
        && let Ok(document) = yaml::parse_one(text, &Limits::default())
        && document.as_map().is_some()
    {
        return document.to_json();
    }
    value.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path;
    use serde_json::json;

    fn patched(path: &str, value: Option<Json>) -> Result<Json, String> {
        let mut object =
            json!({"spec": {"containers": [{"name": "a", "args": ["--x", "--y"]}, {"name": "b"}], "n": 1}});
        apply(&mut object, &path::parse(path), value.as_ref())?;
        Ok(object["spec"].take())
    }

    #[test]
    fn values_are_set_replaced_added_and_deleted() {
        let set = patched("spec.containers.[name:a].args.[:--y]", Some(json!("--z"))).unwrap();
        assert_eq!(set["containers"][0]["args"], json!(["--x", "--z"]));
        let set = patched("spec.containers.[name:a].args.[--y]", Some(json!("--z"))).unwrap();
        assert_eq!(set["containers"][0]["args"], json!(["--x", "--z"]));
        let added = patched("spec.containers.[name:a].args.[-1]", Some(json!("--z"))).unwrap();
        assert_eq!(added["containers"][0]["args"], json!(["--x", "--y", "--z"]));
        let deleted = patched("spec.containers.[name:b]", None).unwrap();
        assert_eq!(deleted["containers"].as_array().unwrap().len(), 1);
        let made = patched("spec.template.metadata.labels.x\\.y", Some(json!("z"))).unwrap();
        assert_eq!(made["template"], json!({"metadata": {"labels": {"x.y": "z"}}}));
        let parsed = patched("spec.extra", Some(json!("a: b\nc: 1"))).unwrap();
        assert_eq!(parsed["extra"], json!({"a": "b", "c": 1}));
    }

    #[test]
    fn paths_that_lead_nowhere_say_so() {
        assert_eq!(
            patched("spec.containers.[name:c].image", Some(json!(1))),
            Err("element [name:c] not found".to_owned())
        );
        assert_eq!(patched("spec.n.x", Some(json!(1))), Err("leads into a number".to_owned()));
        assert_eq!(
            patched("spec.containers.[].image", Some(json!(1))),
            Err("[]: name an item as [key:value], [:value] or [index]".to_owned())
        );
    }
}
