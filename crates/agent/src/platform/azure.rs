//! Microsoft Azure: the instance metadata service.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{MetadataServer, Platform};
use crate::locality::Locality;

const VENDOR_FILE: &str = "/sys/class/dmi/id/sys_vendor";
const VENDOR: &str = "Microsoft Corporation";
/// The version of the service's answers. Parity: a newer one that it offers is taken.
const VERSION: &str = "2019-08-15";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Instance {
    compute: Compute,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Compute {
    name: String,
    location: String,
    zone: String,
    vm_id: String,
    tags: String,
    tags_list: Option<Vec<Tag>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tag {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Versions {
    newest_versions: Vec<String>,
}

pub(super) async fn is_here() -> bool {
    std::fs::read_to_string(VENDOR_FILE).is_ok_and(|vendor| vendor.contains(VENDOR))
}

pub(super) async fn platform(server: &MetadataServer) -> Platform {
    let header = [("metadata", "True")];
    // Without a version the service answers with an error that names the versions it has.
    let offered = server.text("/metadata/instance", &header).await.unwrap_or_default();
    let offered: Versions = serde_json::from_str(&offered).unwrap_or_default();
    let is_version =
        |text: &String| text.len() == VERSION.len() && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    let newest = offered.newest_versions.into_iter().filter(is_version).max().unwrap_or_default();
    let version = if newest.as_str() > VERSION { newest.as_str() } else { VERSION };
    let text = server.text(&format!("/metadata/instance?api-version={version}"), &header).await;
    let instance: Instance = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
    let Compute { name, location, zone, vm_id, tags, tags_list } = instance.compute;
    let mut metadata = tag_values(&tags, tags_list);
    for (key, value) in [("azure_name", &name), ("azure_location", &location), ("azure_vmId", &vm_id)] {
        if !value.is_empty() {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    Platform { metadata, locality: Locality { region: location, zone, sub_zone: String::new() } }
}

fn tag_values(text: &str, list: Option<Vec<Tag>>) -> BTreeMap<String, String> {
    let prefixed = |name: &str| format!("azure_{name}");
    if let Some(list) = list {
        return list.into_iter().map(|tag| (prefixed(&tag.name), tag.value)).collect();
    }
    let pairs = text.split(';').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once(':').unwrap_or((pair, "")))
        .map(|(name, value)| (prefixed(name), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_from_the_list_or_from_the_text() {
        let found = tag_values("a:1;b:2:3;c", None);
        assert_eq!(found["azure_b"], "2:3");
        assert_eq!(found["azure_c"], "");
        let list = vec![Tag { name: "x".into(), value: "y".into() }];
        assert_eq!(tag_values("a:1", Some(list)).keys().collect::<Vec<_>>(), ["azure_x"]);
    }
}
