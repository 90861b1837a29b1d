//! What clusters and listeners refer to.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::tree::{Node, Value};
use canopus_proto::{Any, descriptors, json};

use crate::types::{ENDPOINT, EXTENSION, ROUTE, SECRET};

/// The names of the endpoints, routes, extensions and secrets that these resources want over ADS, by type.
pub fn references<'a>(
    resources: impl IntoIterator<Item = &'a Any>,
) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for resource in resources {
        if let Some(Ok(message)) = descriptors::open(resource) {
            search(&json::write_dynamic(&message), &mut found);
        }
    }
    found
}

fn search(node: &Node, found: &mut BTreeMap<&'static str, BTreeSet<String>>) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| search(item, found)),
        Value::Map(map) => {
            for (type_url, name) in referred(node) {
                found.entry(type_url).or_default().insert(name.to_owned());
            }
            map.iter().for_each(|entry| search(&entry.node, found));
        }
        _ => {}
    }
}

/// What one message refers to by itself.
fn referred(node: &Node) -> impl Iterator<Item = (&'static str, &str)> {
    let text = |path: &str| node.pointer(path).and_then(Node::as_str);
    let over_ads = |path: &str| node.pointer(path).is_some_and(|source| source.get("ads").is_some());
    let endpoints = over_ads("/edsClusterConfig/edsConfig")
        .then(|| text("/edsClusterConfig/serviceName").or_else(|| text("/name")))
        .flatten();
    let routes = over_ads("/rds/configSource").then(|| text("/rds/routeConfigName")).flatten();
    let extension = over_ads("/configDiscovery/configSource").then(|| text("/name")).flatten();
    let secret = over_ads("/sdsConfig").then(|| text("/name")).flatten();
    [(ENDPOINT, endpoints), (ROUTE, routes), (EXTENSION, extension), (SECRET, secret)]
        .into_iter()
        .filter_map(|(type_url, name)| Some((type_url, name?)))
}
