//! Reading and changing the JSON of a pod.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

pub(super) const PROXY: &str = "istio-proxy";
pub(super) const INIT: &str = "istio-init";
pub(super) const VALIDATION: &str = "istio-validation";
pub(super) const CORE_DUMP: &str = "enable-core-dump";

/// The two lists of containers that injection knows.
pub(super) const CONTAINERS: &str = "containers";
pub(super) const INIT_CONTAINERS: &str = "initContainers";

pub(super) fn annotation<'a>(pod: &'a Json, key: &str) -> Option<&'a str> {
    pod.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

pub(super) fn label<'a>(pod: &'a Json, key: &str) -> Option<&'a str> {
    pod.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// The entries of a map of strings in the metadata.
pub(super) fn metadata_map<'a>(pod: &'a Json, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = pod.get("metadata").and_then(|metadata| metadata.get(field)?.as_object());
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// A map of the metadata to change, made if it is missing.
pub(super) fn metadata_mut<'a>(pod: &'a mut Json, field: &str) -> &'a mut Map<String, Json> {
    let metadata = object_mut(pod, "metadata");
    let entry = metadata.entry(field).or_insert_with(|| Json::Object(Map::new()));
    as_object_mut(entry)
}

pub(super) fn set_annotation(pod: &mut Json, key: &str, value: impl Into<String>) {
    metadata_mut(pod, "annotations").insert(key.to_owned(), Json::String(value.into()));
}

/// A field that is an object, made if it is missing.
pub(super) fn object_mut<'a>(json: &'a mut Json, field: &str) -> &'a mut Map<String, Json> {
    let entry = as_object_mut(json).entry(field).or_insert_with(|| Json::Object(Map::new()));
    as_object_mut(entry)
}

fn as_object_mut(json: &mut Json) -> &mut Map<String, Json> {
    if !json.is_object() {
        *json = Json::Object(Map::new());
    }
    match json {
        Json::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// The containers of a list.
pub(super) fn containers<'a>(pod: &'a Json, list: &str) -> &'a [Json] {
    let containers = pod.get("spec").and_then(|spec| spec.get(list)?.as_array());
    containers.map_or(&[], Vec::as_slice)
}

/// The containers of a list to change, if there is such a list.
pub(super) fn containers_mut<'a>(pod: &'a mut Json, list: &str) -> Option<&'a mut Vec<Json>> {
    pod.get_mut("spec")?.get_mut(list)?.as_array_mut()
}

pub(super) fn name(container: &Json) -> &str {
    container.get("name").and_then(Json::as_str).unwrap_or_default()
}

pub(super) fn find<'a>(containers: &'a [Json], wanted: &str) -> Option<&'a Json> {
    containers.iter().find(|container| name(container) == wanted)
}

/// A container of either list.
pub(super) fn find_in_pod<'a>(pod: &'a Json, wanted: &str) -> Option<&'a Json> {
    find(containers(pod, CONTAINERS), wanted).or_else(|| find(containers(pod, INIT_CONTAINERS), wanted))
}

/// A container of either list, to change.
pub(super) fn find_in_pod_mut<'a>(pod: &'a mut Json, wanted: &str) -> Option<&'a mut Json> {
    let list = [CONTAINERS, INIT_CONTAINERS]
        .into_iter()
        .find(|list| find(containers(pod, list), wanted).is_some())?;
    containers_mut(pod, list)?.iter_mut().find(|container| name(container) == wanted)
}

/// The environment of a container, made if it is missing.
pub(super) fn environment_mut(container: &mut Json) -> &mut Vec<Json> {
    let entry = as_object_mut(container).entry("env").or_insert_with(|| Json::Array(Vec::new()));
    if !entry.is_array() {
        *entry = Json::Array(Vec::new());
    }
    match entry {
        Json::Array(items) => items,
        _ => unreachable!("it was just made a list"),
    }
}

/// Variables that injection adds after all others.
const ADDED_LAST: [&str; 2] = [super::prometheus::VARIABLE, super::probes::PROBERS];

/// Sets variables of the proxy, sorted by name, after all others but those that a pod has from being injected before.
pub(super) fn set_environment(pod: &mut Json, variables: &BTreeMap<String, String>) {
    if variables.is_empty() {
        return;
    }
    let Some(proxy) = find_in_pod_mut(pod, PROXY) else { return };
    let environment = environment_mut(proxy);
    environment.retain(|variable| !variables.contains_key(name(variable)));
    let end = environment.iter().position(|variable| ADDED_LAST.contains(&name(variable)));
    let end = end.unwrap_or(environment.len());
    let added = variables.iter().map(|(name, value)| json!({"name": name, "value": value}));
    environment.splice(end..end, added);
}

/// The name of a pod, or what is known of it before the API server gives it one.
pub(super) fn display_name(pod: &Json) -> String {
    let text = |field: &str| {
        pod.get("metadata").and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default()
    };
    match (text("name"), text("generateName")) {
        ("", "") => String::new(),
        ("", prefix) => format!("{prefix}***** (actual name not yet known)"),
        (name, _) => name.to_owned(),
    }
}

pub(super) fn namespace(pod: &Json) -> &str {
    pod.get("metadata").and_then(|metadata| metadata.get("namespace")?.as_str()).unwrap_or_default()
}

/// Reads a truth as Go's `strconv.ParseBool` does.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
