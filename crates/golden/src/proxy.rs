//! The proxy of a scenario.

use anyhow::Context as _;
use canopus_base::spiffe::Identity;
use canopus_base::tree::{Map, Node, Value};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::core::v3::{Extension, Node as XdsNode};
use canopus_proto::json::{self, Unknown};

/// The address of a proxy that names none.
const ADDRESS: &str = "10.1.0.1";

/// Builds the proxy that a scenario describes. Everything has a default: a sidecar of namespace `default`.
pub(crate) fn build(description: &Node, settings: &MeshSettings) -> anyhow::Result<Proxy> {
    let text =
        |key: &str, default: &str| description.get(key).and_then(Node::as_str).unwrap_or(default).to_owned();
    let (kind, name) = (text("type", "sidecar"), text("name", "proxy"));
    let (namespace, account) = (text("namespace", "default"), text("serviceAccount", "default"));
    let addresses = match description.get("ip") {
        Some(list) if list.as_list().is_some() => {
            list.as_list().into_iter().flatten().filter_map(Node::as_str).map(str::to_owned).collect()
        }
        _ => vec![text("ip", ADDRESS)],
    };
    let mut metadata = Map::new();
    let mut set = |key: &str, value: Node| drop(metadata.insert(key, value));
    let string = |value: String| Node::from(Value::from(value));
    set("ISTIO_VERSION", string("1.32.0".to_owned()));
    set("NAME", string(name.clone()));
    set("NAMESPACE", string(namespace.clone()));
    set("SERVICE_ACCOUNT", string(account.clone()));
    set("CLUSTER_ID", string(text("cluster", &settings.cluster)));
    set("MESH_ID", string(settings.trust_domain().to_owned()));
    set("INSTANCE_IPS", string(addresses.join(",")));
    if let Some(network) = description.get("network") {
        set("NETWORK", network.clone());
    }
    if let Some(node) = description.get("node") {
        set("NODE_NAME", node.clone());
    }
    if let Some(labels) = description.get("labels") {
        set("LABELS", labels.clone());
    }
    if let Some(Value::Map(further)) = description.get("metadata").map(|node| &node.value) {
        further.iter().for_each(|entry| set(&entry.key, entry.node.clone()));
    }
    let first = addresses.first().map_or(ADDRESS, String::as_str);
    let mut node = Map::new();
    let id = format!("{kind}~{first}~{name}.{namespace}~{namespace}.svc.{}", settings.domain);
    node.insert("id", string(id));
    node.insert("metadata", Value::Map(metadata).into());
    if let Some(locality) = description.get("locality").and_then(Node::as_str) {
        let parts = ["region", "zone", "subZone"].into_iter().zip(locality.split('/'));
        let parts = parts.map(|(key, part)| (key, string(part.to_owned())));
        node.insert("locality", Value::Map(parts.collect()).into());
    }
    let mut node: XdsNode = json::read(&Value::Map(node).into(), Unknown::Reject)?.value;
    let extensions = description.get("extensions").and_then(Node::as_list).into_iter().flatten();
    node.extensions = extensions
        .filter_map(Node::as_str)
        .map(|known| Extension { type_urls: vec![known.to_owned()], ..Default::default() })
        .collect();
    let identity = Identity::new(settings.trust_domain(), &namespace, &account)?;
    Proxy::new(&node, Some(identity)).context("the proxy")
}
