//! A connected proxy: what it says about itself in its xDS node and the identity it proved. Nothing here reads the mesh;
//! [`proxy_workload`](crate::proxy_workload) finds the workload behind a proxy.

mod addressing;
mod builds;
mod role;

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher as StdHasher};
use std::sync::Arc;

use canopus_api::node::{MetadataError, NodeId, NodeIdError, NodeKind, NodeMetadata};
use canopus_base::hash::{ContentHash, Hasher};
use canopus_base::spiffe::Identity;
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;

use crate::locality::Locality;

pub use addressing::{Addressing, is_in_network};
pub use role::Role;
pub(crate) use role::{EAST_WEST_CONTROLLER, MESH_CONTROLLER};

/// Why a node was rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NodeError {
    /// The node id is malformed.
    #[error(transparent)]
    Id(#[from] NodeIdError),
    /// The node metadata is malformed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// A connected proxy: its xDS node and the identity it proved.
///
/// Equal if both are equal. Cheap to clone: the content is shared.
#[derive(Clone)]
pub struct Proxy {
    facts: Arc<ProxyFacts>,
    hash: ContentHash,
}

/// The content of a [`Proxy`].
#[derive(PartialEq)]
pub struct ProxyFacts {
    /// The whole node id.
    pub node_id: String,
    /// The parsed node id, with all addresses of the proxy.
    pub id: NodeId,
    /// The node metadata.
    pub metadata: NodeMetadata,
    /// The locality the proxy reports.
    pub locality: Locality,
    /// The configuration types of the extensions it was built with; `None` if the node lists none.
    pub extensions: Option<Arc<BTreeSet<String>>>,
    /// The service name in traces.
    pub service_cluster: Arc<str>,
    /// The authenticated identity, if there is one.
    pub identity: Option<Identity>,
}

impl Proxy {
    /// Reads an xDS node; `identity` is what the proxy's credentials prove.
    pub fn new(node: &Node, identity: Option<Identity>) -> Result<Self, NodeError> {
        let empty = Default::default();
        let metadata = NodeMetadata::from_struct(node.metadata.as_ref().unwrap_or(&empty))?;
        let id = NodeId::parse(&node.id, &metadata)?;
        let locality = node.locality.as_ref().map_or_else(Locality::default, |locality| Locality {
            region: locality.region.clone(),
            zone: locality.zone.clone(),
            subzone: locality.sub_zone.clone(),
        });
        let mut hasher = Hasher::new();
        hasher.field(&node.encode_to_vec());
        hasher.field(identity.as_ref().map(ToString::to_string).unwrap_or_default().as_bytes());
        let facts = ProxyFacts {
            node_id: node.id.clone(),
            id,
            metadata,
            locality,
            extensions: extensions(node),
            service_cluster: node.cluster.as_str().into(),
            identity,
        };
        Ok(Self { facts: Arc::new(facts), hash: hasher.finish() })
    }

    /// The namespace whose configuration applies: from the metadata, else from the domain of the node id.
    pub fn namespace(&self) -> &str {
        let of_domain = || self.id.domain.split_once(".svc.").map(|(namespace, _)| namespace);
        match self.metadata.namespace.as_str() {
            "" => of_domain().unwrap_or(&self.id.domain),
            namespace => namespace,
        }
    }
}

/// Extensions are identified by their configuration types. Names are not reliable: one extension may have several.
fn extensions(node: &Node) -> Option<Arc<BTreeSet<String>>> {
    let types = || node.extensions.iter().flat_map(|extension| extension.type_urls.iter().cloned());
    (!node.extensions.is_empty()).then(|| builds::shared(types().collect()))
}

impl Proxy {
    /// Whether it is a proxyless gRPC client rather than an Envoy.
    pub fn is_proxyless(&self) -> bool {
        self.metadata.generator == "grpc"
    }

    /// Whether it is anything but a sidecar: a gateway or a waypoint.
    pub fn is_gateway(&self) -> bool {
        self.id.kind != NodeKind::Sidecar
    }

    /// Whether it runs on a virtual machine rather than in a pod.
    pub fn is_vm(&self) -> bool {
        !self.metadata.labels.get("istio.io/test-vm").unwrap_or_default().is_empty()
    }
}

impl std::ops::Deref for Proxy {
    type Target = ProxyFacts;

    fn deref(&self) -> &ProxyFacts {
        &self.facts
    }
}

impl PartialEq for Proxy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.facts, &other.facts) || (self.hash == other.hash && *self.facts == *other.facts)
    }
}

impl Eq for Proxy {}

impl Hash for Proxy {
    fn hash<H: StdHasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.node_id)
    }
}

#[cfg(test)]
mod tests {
    use canopus_base::FastSet;

    use super::*;

    #[test]
    fn proxies_of_one_hash_and_other_facts_are_two() {
        let proxy = |id: &str, identity: Option<&str>| {
            let node = Node { id: id.to_owned(), ..Node::default() };
            Proxy::new(&node, identity.map(|identity| identity.parse().unwrap())).unwrap()
        };
        let id = "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local";
        let victim = proxy(id, Some("spiffe://cluster.local/ns/shop/sa/a"));
        let forgeries = [proxy(id, None), proxy("sidecar~10.0.0.1~b.shop~shop.svc.cluster.local", None)];
        for forged in forgeries {
            let forged = Proxy { hash: victim.hash, ..forged };
            assert_ne!(victim, forged);
            // What is generated for the one is not found by the other.
            assert!(!FastSet::from_iter([victim.clone()]).contains(&forged));
        }
        assert_eq!(victim, proxy(id, Some("spiffe://cluster.local/ns/shop/sa/a")));
    }
}
