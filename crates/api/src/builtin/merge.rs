//! Strategic merge patches: Kubernetes' rules for laying part of an object over another.
//!
//! Maps are merged key by key and null removes a key. Lists are replaced, or merged by a key of their items where the type
//! says so; the merged items then stand in the order of the patch, with the others between them where they stood. Directives
//! (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…`) are honoured; `$setElementOrder/…` is refused, since no
//! template writes it.

use serde_json::{Map, Value as Json};

use super::table::{Field, ListMerge, StructType};

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// An item of a list that is merged by a key lacks the key.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item.
        item: String,
        /// The key.
        key: &'static str,
    },
    /// Items of a list have different types.
    #[error("list element types are not identical in {field}")]
    MixedList {
        /// The field that is the list.
        field: String,
    },
    /// A directive that is not known, or not where it may stand.
    #[error("invalid directive {directive} in the patch: {value}")]
    BadDirective {
        /// The directive.
        directive: &'static str,
        /// What it says.
        value: String,
    },
    /// The object or the patch is no map.
    #[error("the object and its patch must be maps")]
    NotAMap,
}

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

impl StructType {
    /// Lays a patch over an object of this type.
    pub fn merge(&'static self, object: &mut Json, patch: Json) -> Result<(), MergeError> {
        match (object, patch) {
            (_, Json::Null) => Ok(()),
            (Json::Object(object), Json::Object(patch)) => merge_map(Some(self), object, patch),
            _ => Err(MergeError::NotAMap),
        }
    }
}

fn merge_map(
    kind: Option<&'static StructType>,
    object: &mut Map<String, Json>,
    mut patch: Map<String, Json>,
) -> Result<(), MergeError> {
    if let Some(directive) = patch.remove(PATCH) {
        match directive.as_str() {
            Some("replace") => *object = patch,
            Some("delete") => object.clear(),
            _ => return Err(MergeError::BadDirective { directive: PATCH, value: directive.to_string() }),
        }
        return Ok(());
    }
    if let Some(kept) = patch.remove(RETAIN_KEYS) {
        retain_keys(object, &patch, &kept)?;
    }
    for (key, mut value) in patch {
        if key.starts_with(SET_ORDER) {
            return Err(MergeError::BadDirective { directive: SET_ORDER, value: key });
        }
        if let Some(list) = key.strip_prefix(DELETE_FROM_LIST) {
            if let (Some(Json::Array(items)), Json::Array(deleted)) = (object.get_mut(list), &value) {
                items.retain(|item| !deleted.contains(item));
            }
            continue;
        }
        if value.is_null() {
            object.remove(&key);
            continue;
        }
        let field = kind.and_then(|kind| kind.field(&key));
        match (object.get_mut(&key), value) {
            (Some(Json::Object(_)), value @ Json::Object(_)) if field.is_some_and(|field| field.replaced) => {
                object.insert(key, value);
            }
            (Some(Json::Object(inner)), Json::Object(patch)) => {
                merge_map(field.and_then(|field| field.kind.as_struct()), inner, patch)?;
            }
            (Some(Json::Array(items)), Json::Array(patch)) => merge_list(field, items, patch)?,
            (present, other) => {
                let is_collection = other.is_object() || other.is_array();
                value = other;
                if is_collection {
                    discard_nulls(&mut value);
                    remove_directives(&mut value);
                }
                match present {
                    Some(present) => *present = value,
                    None => {
                        object.insert(key, value);
                    }
                }
            }
        }
    }
    Ok(())
}

fn retain_keys(
    object: &mut Map<String, Json>,
    patch: &Map<String, Json>,
    kept: &Json,
) -> Result<(), MergeError> {
    let refused = || MergeError::BadDirective { directive: RETAIN_KEYS, value: kept.to_string() };
    let kept = kept.as_array().ok_or_else(refused)?;
    let is_kept = |key: &str| kept.iter().any(|known| known.as_str() == Some(key));
    let foreign = |(key, value): (&String, &Json)| !value.is_null() && !key.starts_with('$') && !is_kept(key);
    if patch.iter().any(foreign) {
        return Err(refused());
    }
    object.retain(|key, _| is_kept(key));
    Ok(())
}

fn merge_list(
    field: Option<&'static Field>,
    items: &mut Vec<Json>,
    patch: Vec<Json>,
) -> Result<(), MergeError> {
    if items.is_empty() && patch.is_empty() {
        return Ok(());
    }
    match (field, field.map_or(ListMerge::Replace, |field| field.list_merge)) {
        (Some(field), ListMerge::ByKey(key)) => merge_by_key(field, key, items, patch),
        (_, ListMerge::Union) => {
            join_scalars(items, patch);
            Ok(())
        }
        _ => {
            *items = patch;
            Ok(())
        }
    }
}

fn merge_by_key(
    field: &'static Field,
    key: &'static str,
    items: &mut Vec<Json>,
    patch: Vec<Json>,
) -> Result<(), MergeError> {
    let kind = match &field.kind {
        super::FieldType::List(inner) => inner.as_struct(),
        _ => None,
    };
    let mut replaces = false;
    let mut merged: Vec<Map<String, Json>> = Vec::new();
    for item in patch {
        let Json::Object(mut item) = item else {
            return Err(MergeError::MixedList { field: field.json_name.to_owned() });
        };
        match item.remove(PATCH) {
            None => merged.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let Some(value) = item.get(key) else { return Err(no_key(&item, key)) };
                    items.retain(|present| present.get(key) != Some(value));
                }
                Some("replace") => replaces = true,
                _ => {
                    return Err(MergeError::BadDirective { directive: PATCH, value: directive.to_string() });
                }
            },
        }
    }
    if replaces {
        *items = merged.into_iter().map(Json::Object).collect();
        return Ok(());
    }
    let order: Vec<Json> = items.iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect();
    let mut left: Vec<Option<Json>> = std::mem::take(items).into_iter().map(Some).collect();
    // Items of the patch, each with the place its counterpart had.
    let mut right: Vec<(Option<usize>, Json)> = Vec::with_capacity(merged.len());
    for item in merged {
        let Some(value) = item.get(key) else { return Err(no_key(&item, key)) };
        let place = order.iter().position(|known| same_key(known, value));
        match place.and_then(|at| left[at].take()) {
            Some(Json::Object(mut present)) => {
                merge_map(kind, &mut present, item)?;
                right.push((place, Json::Object(present)));
            }
            Some(_) => return Err(MergeError::MixedList { field: field.json_name.to_owned() }),
            // The patch names the same item again: it is merged into what the first mention made.
            None => match right
                .iter_mut()
                .find(|(_, known)| known.get(key).is_some_and(|known| same_key(known, value)))
            {
                Some((_, Json::Object(present))) => merge_map(kind, present, item)?,
                _ => right.push((None, Json::Object(item))),
            },
        }
    }
    let left = left.into_iter().enumerate().filter_map(|(at, item)| Some((at, item?)));
    *items = interleave(left.collect(), right);
    Ok(())
}

/// Puts the items that the patch does not name between those it names: each before the first one it stood before.
fn interleave(left: Vec<(usize, Json)>, right: Vec<(Option<usize>, Json)>) -> Vec<Json> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter().peekable();
    for (place, item) in right {
        if let Some(place) = place {
            while let Some((_, earlier)) = left.next_if(|(at, _)| *at < place) {
                out.push(earlier);
            }
        }
        out.push(item);
    }
    out.extend(left.map(|(_, item)| item));
    out
}

/// Keys are equal if they print alike: `80` and `"80"` are one port.
fn same_key(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::String(a), Json::String(b)) => a == b,
        (Json::Number(a), Json::Number(b)) => a == b,
        (Json::String(text), Json::Number(number)) | (Json::Number(number), Json::String(text)) => {
            number.to_string() == *text
        }
        _ => a == b,
    }
}

fn no_key(item: &Map<String, Json>, key: &'static str) -> MergeError {
    MergeError::NoMergeKey { item: Json::Object(item.clone()).to_string(), key }
}

/// Joins lists of scalars: those of the patch in its order, the others where they stood.
fn join_scalars(items: &mut Vec<Json>, patch: Vec<Json>) {
    let order = std::mem::take(items);
    let mut right: Vec<(Option<usize>, Json)> = Vec::new();
    for item in patch {
        if !right.iter().any(|(_, known)| *known == item) {
            right.push((order.iter().position(|known| *known == item), item));
        }
    }
    let mut left: Vec<(usize, Json)> = Vec::new();
    for (at, item) in order.into_iter().enumerate() {
        let is_known =
            right.iter().any(|(_, known)| *known == item) || left.iter().any(|(_, known)| *known == item);
        if !is_known {
            left.push((at, item));
        }
    }
    *items = interleave(left, right);
}

/// Removes keys with nulls, at every depth.
fn discard_nulls(value: &mut Json) {
    match value {
        Json::Object(map) => map.retain(|_, value| {
            discard_nulls(value);
            !value.is_null()
        }),
        Json::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Removes directives, and the items that only ask for a deletion.
fn remove_directives(value: &mut Json) {
    match value {
        Json::Object(map) => {
            map.retain(|key, _| !is_directive(key));
            map.values_mut().for_each(remove_directives);
        }
        Json::Array(items) => {
            items.retain(|item| item.get(PATCH).and_then(Json::as_str) != Some("delete"));
            items.iter_mut().for_each(remove_directives);
        }
        _ => {}
    }
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER)
}
