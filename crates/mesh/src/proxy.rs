//! Who is asking: a proxy as it introduces itself, and the view of the mesh it shares with its like.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, value::Kind};

/// What a proxy is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeType {
    /// Beside one workload.
    Sidecar,
    /// At the edge: an ingress, egress or east-west gateway.
    Router,
    /// In front of a namespace's or service's workloads.
    Waypoint,
    /// The node's shared layer-4 proxy.
    Ztunnel,
}

impl FromStr for NodeType {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "sidecar" => Ok(Self::Sidecar),
            "router" => Ok(Self::Router),
            "waypoint" => Ok(Self::Waypoint),
            "ztunnel" => Ok(Self::Ztunnel),
            _ => Err(()),
        }
    }
}

/// Why a node cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The id does not have four parts.
    #[error("node id {0:?} must be <type>~<ip>~<name>.<namespace>~<domain>")]
    Id(String),
    /// The first part of the id names no proxy type.
    #[error("node id {id:?}: {found:?} is not one of sidecar, router, waypoint, ztunnel")]
    Type {
        /// The whole id.
        id: String,
        /// Its first part.
        found: String,
    },
}

/// A connected proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// The whole node id.
    pub id: String,
    /// What it may be told.
    pub view: View,
}

/// The facts about a proxy that generators may look at. Proxies with equal views share every resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View(Arc<ViewFacts>);

/// The content of a [`View`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewFacts {
    /// What the proxy is there for.
    pub node_type: NodeType,
    /// The namespace it runs in.
    pub namespace: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The cluster it says it runs in.
    pub cluster: String,
    /// The mesh it says it belongs to.
    pub mesh: String,
    /// The message types that configure the extensions it was built with; `None` if it did not say, which means Istio's
    /// own proxy.
    pub extensions: Option<BTreeSet<String>>,
}

impl View {
    /// Shares `facts`.
    pub fn new(facts: ViewFacts) -> Self {
        Self(Arc::new(facts))
    }

    /// Whether the proxy can run the extension configured by messages of this type.
    pub fn has_extension(&self, type_name: &str) -> bool {
        self.0.extensions.as_ref().is_none_or(|known| known.contains(type_name))
    }
}

impl std::ops::Deref for View {
    type Target = ViewFacts;

    fn deref(&self) -> &ViewFacts {
        &self.0
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.node_type, self.namespace)
    }
}

impl TryFrom<&Node> for Proxy {
    type Error = NodeError;

    fn try_from(node: &Node) -> Result<Self, NodeError> {
        let parts: Vec<&str> = node.id.split('~').collect();
        let [node_type, _ip, name, domain] = parts[..] else { return Err(NodeError::Id(node.id.clone())) };
        let node_type = node_type
            .parse()
            .map_err(|()| NodeError::Type { id: node.id.clone(), found: node_type.to_owned() })?;
        let metadata = node.metadata.as_ref();
        let namespace = text(metadata, "NAMESPACE")
            .or_else(|| Some(domain.split_once(".svc.")?.0.to_owned()))
            .or_else(|| Some(name.rsplit_once('.')?.1.to_owned()))
            .unwrap_or_default();
        let view = View::new(ViewFacts {
            node_type,
            namespace,
            labels: labels(metadata),
            cluster: text(metadata, "CLUSTER_ID").unwrap_or_default(),
            mesh: text(metadata, "MESH_ID").unwrap_or_default(),
            extensions: extensions(node),
        });
        Ok(Self { id: node.id.clone(), view })
    }
}

/// An extension is known by the messages that configure it. Names are not reliable: one extension may have several.
fn extensions(node: &Node) -> Option<BTreeSet<String>> {
    let types = || node.extensions.iter().flat_map(|extension| extension.type_urls.iter().cloned());
    (!node.extensions.is_empty()).then(|| types().collect())
}

fn text(metadata: Option<&Struct>, key: &str) -> Option<String> {
    match metadata?.fields.get(key)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

fn labels(metadata: Option<&Struct>) -> BTreeMap<String, String> {
    let Some(Kind::StructValue(labels)) = metadata.and_then(|m| m.fields.get("LABELS")?.kind.as_ref()) else {
        return BTreeMap::new();
    };
    labels.fields.keys().filter_map(|key| Some((key.clone(), text(Some(labels), key)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str) -> Node {
        Node { id: id.into(), ..Default::default() }
    }

    #[test]
    fn namespace_comes_from_metadata_then_domain_then_name() {
        let of = |node: &Node| Proxy::try_from(node).unwrap().view.namespace.clone();
        let mut said = node("router~10.0.0.1~gw.a~b.svc.cluster.local");
        assert_eq!(of(&said), "b");
        said.metadata = Some(Struct::from(BTreeMap::from([("NAMESPACE".to_owned(), "c".into())])));
        assert_eq!(of(&said), "c");
        assert_eq!(of(&node("sidecar~10.0.0.1~app.d~local")), "d");
    }

    #[test]
    fn malformed_ids_say_what_is_expected() {
        let error = |id| Proxy::try_from(&node(id)).unwrap_err().to_string();
        assert_eq!(error("x"), "node id \"x\" must be <type>~<ip>~<name>.<namespace>~<domain>");
        assert!(error("robot~1~a.b~c").contains("\"robot\" is not one of sidecar"));
    }

    #[test]
    fn a_proxy_that_lists_no_extensions_is_taken_for_istios_own() {
        let silent = Proxy::try_from(&node("sidecar~1~a.b~b.svc.cluster.local")).unwrap();
        assert!(silent.view.has_extension("stats.PluginConfig"));
    }
}
