//! JSON patches (RFC 6902): what makes one document of another.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// One step of a patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Sets a key, or inserts an item.
    Add {
        /// Where, as a JSON pointer.
        path: String,
        /// What.
        value: Json,
    },
    /// Takes a key or an item out.
    Remove {
        /// Where, as a JSON pointer.
        path: String,
    },
    /// Puts a value in the place of another.
    Replace {
        /// Where, as a JSON pointer.
        path: String,
        /// What.
        value: Json,
    },
}

/// Gives `changed` the parts of `raw` that it has in common with `original`, which is `raw` in another form.
pub(super) fn graft(raw: &Json, original: &Json, changed: Json) -> Json {
    if changed == *original {
        return raw.clone();
    }
    match (raw, original, changed) {
        (Json::Object(raw), Json::Object(original), Json::Object(changed)) => {
            let mut out = Map::new();
            for (key, value) in changed {
                match (raw.get(&key), original.get(&key)) {
                    (Some(raw), Some(original)) => {
                        out.insert(key, graft(raw, original, value));
                    }
                    // What only the other form has was not sent, and need not be.
                    (None, Some(original)) if *original == value => {}
                    _ => {
                        out.insert(key, value);
                    }
                }
            }
            for (key, value) in raw.iter().filter(|(key, _)| !original.contains_key(*key)) {
                out.entry(key.clone()).or_insert_with(|| value.clone());
            }
            Json::Object(out)
        }
        (Json::Array(raw), Json::Array(original), Json::Array(changed)) if raw.len() == original.len() => {
            let counterpart = |at: usize, item: &Json| {
                let same = |other: &Json| {
                    item == other || (item.get("name").is_some() && item.get("name") == other.get("name"))
                };
                if original.get(at).is_some_and(same) { Some(at) } else { original.iter().position(same) }
            };
            let items = changed.into_iter().enumerate().map(|(at, item)| match counterpart(at, &item) {
                Some(at) => graft(&raw[at], &original[at], item),
                None => item,
            });
            Json::Array(items.collect())
        }
        (_, _, changed) => changed,
    }
}

/// The operations that make `to` of `from`.
pub fn create_patch(from: &Json, to: &Json) -> Vec<Operation> {
    let mut operations = Vec::new();
    difference(from, to, &mut String::new(), &mut operations);
    operations
}

fn difference(from: &Json, to: &Json, path: &mut String, out: &mut Vec<Operation>) {
    match (from, to) {
        _ if from == to => {}
        (Json::Object(from), Json::Object(to)) => {
            for (key, value) in to {
                let end = path.len();
                push_key(path, key);
                match from.get(key) {
                    Some(present) => difference(present, value, path, out),
                    None => out.push(Operation::Add { path: path.clone(), value: value.clone() }),
                }
                path.truncate(end);
            }
            for key in from.keys().filter(|key| !to.contains_key(*key)) {
                let end = path.len();
                push_key(path, key);
                out.push(Operation::Remove { path: path.clone() });
                path.truncate(end);
            }
        }
        (Json::Array(from), Json::Array(to)) => items(from, to, path, out),
        _ => out.push(Operation::Replace { path: path.clone(), value: to.clone() }),
    }
}

/// Items at the ends that are equal stay; those between are changed one by one, then removed or inserted.
fn items(from: &[Json], to: &[Json], path: &mut String, out: &mut Vec<Operation>) {
    let start = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let (from, to) = (&from[start..], &to[start..]);
    let tail = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
    let (from, to) = (&from[..from.len() - tail], &to[..to.len() - tail]);
    let shared = from.len().min(to.len());
    let end = path.len();
    let at = |path: &mut String, index: usize| {
        path.truncate(end);
        path.push_str(&format!("/{}", start + index));
    };
    for index in 0..shared {
        at(path, index);
        difference(&from[index], &to[index], path, out);
    }
    for index in (shared..from.len()).rev() {
        at(path, index);
        out.push(Operation::Remove { path: path.clone() });
    }
    for (index, value) in to.iter().enumerate().skip(shared) {
        at(path, index);
        out.push(Operation::Add { path: path.clone(), value: value.clone() });
    }
    path.truncate(end);
}

fn push_key(path: &mut String, key: &str) {
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

/// Applies a patch; none if it does not fit the document.
pub fn apply_patch(document: &Json, patch: &[Operation]) -> Option<Json> {
    let mut document = document.clone();
    for operation in patch {
        let (Operation::Add { path, .. } | Operation::Remove { path } | Operation::Replace { path, .. }) =
            operation;
        if path.is_empty() {
            match operation {
                Operation::Add { value, .. } | Operation::Replace { value, .. } => document = value.clone(),
                Operation::Remove { .. } => return None,
            }
            continue;
        }
        let (parent, last) = path.rsplit_once('/')?;
        let last = last.replace("~1", "/").replace("~0", "~");
        match document.pointer_mut(parent)? {
            Json::Object(map) => match operation {
                Operation::Add { value, .. } => {
                    map.insert(last, value.clone());
                }
                Operation::Remove { .. } => {
                    map.remove(&last)?;
                }
                Operation::Replace { value, .. } => *map.get_mut(&last)? = value.clone(),
            },
            Json::Array(items) => {
                let index = if last == "-" { items.len() } else { last.parse().ok()? };
                match operation {
                    Operation::Add { value, .. } if index <= items.len() => {
                        items.insert(index, value.clone());
                    }
                    Operation::Remove { .. } if index < items.len() => {
                        items.remove(index);
                    }
                    Operation::Replace { value, .. } => *items.get_mut(index)? = value.clone(),
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tree() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            "[a-c/~]{0,3}".prop_map(Json::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::btree_map("[a-d/~]{1,2}", inner, 0..5)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_what_it_was_made_for(from in tree(), to in tree()) {
            prop_assert_eq!(apply_patch(&from, &create_patch(&from, &to)), Some(to));
        }

        #[test]
        fn nothing_is_grafted_where_nothing_changed(raw in tree(), original in tree()) {
            prop_assert_eq!(graft(&raw, &original, original.clone()), raw);
        }
    }

    #[test]
    fn inserted_items_leave_the_others_alone() {
        let patch = create_patch(&json!({"a": [1, 2]}), &json!({"a": [0, 1, 2]}));
        assert_eq!(patch, [Operation::Add { path: "/a/0".to_owned(), value: json!(0) }]);
    }

    #[test]
    fn what_was_sent_keeps_its_form() {
        let raw = json!({"spec": {"containers": [{"name": "app", "unknown": 1}]}});
        let original =
            json!({"spec": {"containers": [{"name": "app", "unknown": 1, "resources": {}}]}, "status": {}});
        let changed = json!({"spec": {"containers": [{"name": "app", "unknown": 1, "resources": {}}, {"name": "b"}]}, "status": {}});
        let expected = json!({"spec": {"containers": [{"name": "app", "unknown": 1}, {"name": "b"}]}});
        assert_eq!(graft(&raw, &original, changed), expected);
    }
}
