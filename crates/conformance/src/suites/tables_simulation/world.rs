//! The world of a row, with its one proxy.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use canopus_api::decode::Reason;
use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::{Limits, Node, Value};
use canopus_engine::{Batch, Engine, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::bundle::Bundle;
use canopus_envoy::route_config::Routes;
use canopus_envoy::simulate::Config;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::json::{self, Unknown};
use canopus_runtime::flags::Flags;
use serde_json::json;

use super::decode;

/// The cluster everything is in.
const CLUSTER: &str = "Kubernetes";
/// The domain of Kubernetes' services.
const DOMAIN: &str = "cluster.local";
/// The namespace of objects that do not say one.
const NAMESPACE: &str = "default";

pub(super) struct World {
    snapshot: Snapshot,
    proxy: Proxy,
}

impl World {
    /// All that decides where the proxy's requests go.
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let bundle = Bundle::generate(&self.snapshot, &self.proxy)?;
        let listeners = bundle.listeners.iter().map(|resource| decode(&resource.body));
        let routes =
            bundle.routes.iter().map(|resource| Ok((resource.name.to_string(), decode(&resource.body)?)));
        Ok(Config {
            listeners: listeners.collect::<anyhow::Result<_>>()?,
            routes: routes.collect::<anyhow::Result<_>>()?,
        })
    }

    /// One route table.
    pub(super) fn route_table(&self, name: &str) -> anyhow::Result<RouteConfiguration> {
        let audiences = self.snapshot.get::<AudiencesOf>(&self.proxy)?;
        let table = self.snapshot.get::<Routes>(&(audiences.routes.clone(), name.to_owned()))?;
        decode(&table.as_ref().as_ref().context("no such table")?.body)
    }
}

/// The world of a row of calls.
pub(super) fn for_traffic(row: &Node, shared: &Node) -> anyhow::Result<World> {
    let defaults = shared.get("proxyDefaults").context("no proxyDefaults")?;
    let written = row.get("proxy").context("no proxy")?;
    let features = row.get("features").and_then(Node::as_map).into_iter().flatten();
    let features: BTreeMap<String, String> =
        features.map(|entry| (entry.key.to_string(), scalar(&entry.node))).collect();
    let documents =
        ["kubeConfig", "config"].map(|key| row.get(key).and_then(Node::as_str).unwrap_or_default());
    // Without Kubernetes there is no domain that short names are in.
    let domain = if documents[0].is_empty() { "" } else { DOMAIN };
    world(&documents, domain, &features, node(written, defaults)?)
}

/// The world of a row about routes.
pub(super) fn for_routes(row: &Node, shared: &Node) -> anyhow::Result<World> {
    let text = |node: &'_ Node, key: &str| node.get(key).and_then(Node::as_str).map(str::to_owned);
    let services = text(shared, "services").context("no services")?;
    let config = text(row, "config").unwrap_or_default();
    let namespace = text(row, "proxyNamespace").context("no proxyNamespace")?;
    let proxy = json!({"type": "sidecar", "configNamespace": namespace});
    world(&[&services, &config], DOMAIN, &BTreeMap::new(), node(&Node::from(proxy), &Node::from(json!({})))?)
}

fn scalar(node: &Node) -> String {
    node.as_bool().map_or_else(|| node.as_str().unwrap_or_default().to_owned(), |value| value.to_string())
}

/// The proxy as it would introduce itself.
fn node(written: &Node, defaults: &Node) -> anyhow::Result<ProxyNode> {
    let text = |key: &str| {
        let of = |node: &Node| node.get(key).and_then(Node::as_str).map(str::to_owned);
        of(written).or_else(|| of(defaults))
    };
    let namespace = text("configNamespace").unwrap_or_else(|| NAMESPACE.to_owned());
    let ips = written.get("ips").or_else(|| defaults.get("ips")).and_then(Node::as_list);
    let ips: Vec<&str> = ips.into_iter().flatten().filter_map(Node::as_str).collect();
    let ips = if ips.is_empty() { vec!["1.1.1.1"] } else { ips };
    let own_namespace = written.get("metadataNamespace").and_then(Node::as_str).unwrap_or(&namespace);
    let mut metadata = json!({
        "NAMESPACE": own_namespace,
        "ISTIO_VERSION": text("istioVersion").unwrap_or_else(|| "1.23.0".to_owned()),
        "CLUSTER_ID": text("clusterID").unwrap_or_else(|| CLUSTER.to_owned()),
        "INSTANCE_IPS": ips.join(","),
    });
    if let Some(labels) = written.get("labels") {
        // Both keys hold the labels, as whatever registries report the workload.
        for key in ["LABELS", "STATIC_LABELS"] {
            metadata[key] = labels.to_json();
        }
    }
    for entry in written.get("metadata").and_then(Node::as_map).into_iter().flatten() {
        metadata[&*entry.key] = entry.node.to_json();
    }
    let kind = text("type").context("a proxy without type")?;
    let id = text("id").unwrap_or_else(|| "app.test".to_owned());
    let document = json!({
        "id": format!("{kind}~{}~{id}~{namespace}.svc.cluster.local", ips[0]),
        "metadata": metadata,
    });
    Ok(json::read::<ProxyNode>(&Node::from(document), Unknown::Reject)?.value)
}

fn world(
    documents: &[&str],
    domain: &str,
    features: &BTreeMap<String, String>,
    node: ProxyNode,
) -> anyhow::Result<World> {
    let mut batch = Batch::new();
    let flags = Arc::new(Flags::read(features));
    batch.set::<Settings>((), MeshSettings { domain: domain.into(), flags, ..MeshSettings::default() });
    for documents in documents {
        for object in objects(documents)? {
            batch.set::<Objects>(Origin::new(CLUSTER, object.key()), object);
        }
    }
    let engine = Engine::new();
    engine.apply(batch);
    let proxy = Proxy::new(&node, None).context("cannot read the node")?;
    Ok(World { snapshot: engine.snapshot(), proxy })
}

/// The objects of a stream.
fn objects(documents: &str) -> anyhow::Result<Vec<Object>> {
    let mut objects = Vec::new();
    for document in canopus_base::yaml::parse_all(documents, &Limits::default()) {
        let mut node = document.context("cannot read the objects")?.node;
        set_namespace(&mut node);
        let text = node.to_json().to_string();
        for outcome in decode_documents(&text, &Limits::default(), Options::watch()) {
            match outcome {
                Ok(decoded) => objects.push(decoded.value),
                Err(error) if matches!(error.reason, Reason::UnknownKind) => {}
                Err(error) => return Err(error).context("cannot read an object"),
            }
        }
    }
    Ok(objects)
}

/// Gives an object that does not say its namespace the usual one.
fn set_namespace(object: &mut Node) {
    if let Some(Value::Map(metadata)) = object.get_mut("metadata").map(|node| &mut node.value)
        && !metadata.contains_key("namespace")
    {
        metadata.insert("namespace", Value::from(NAMESPACE).into());
    }
}
