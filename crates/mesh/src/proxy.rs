//! Who is asking: a proxy as it introduces itself, and what the world adds to that.

mod builds;

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher as StdHasher};
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::node::{MetadataError, NodeId, NodeIdError, NodeKind, NodeMetadata};
use canopus_base::hash::{ContentHash, Hasher};
use canopus_base::labels::Labels;
use canopus_base::spiffe::Identity;
use canopus_engine::{Ctx, Query};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_runtime::flags::{Flags, PILOT_ENABLE_IP_AUTOALLOCATE};

use crate::audience::{Addressing, Role};
use crate::gateway::{self, PortTarget};
use crate::locality::Locality;
use crate::workload;

/// Why a node cannot be served.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NodeError {
    /// Its id cannot be read.
    #[error(transparent)]
    Id(#[from] NodeIdError),
    /// Its metadata cannot be read.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// A connected proxy: what it said about itself, and who it proved to be.
///
/// Two proxies are equal if they said the same. Cheap to clone.
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
    /// The parts of the node id, and all addresses of the proxy.
    pub id: NodeId,
    /// Everything it said.
    pub metadata: NodeMetadata,
    /// Where it says it is.
    pub locality: Locality,
    /// The message types that configure the extensions it was built with; `None` if it did not say.
    pub extensions: Option<Arc<BTreeSet<String>>>,
    /// The name its workload has in traces.
    pub service_cluster: Arc<str>,
    /// The identity it proved, if it did.
    pub identity: Option<Identity>,
}

impl Proxy {
    /// Reads how a proxy introduces itself; `identity` is what its credentials prove.
    pub fn new(node: &Node, identity: Option<Identity>) -> Result<Self, NodeError> {
        let empty = Default::default();
        let metadata = NodeMetadata::of_struct(node.metadata.as_ref().unwrap_or(&empty))?;
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

    /// The namespace whose configuration applies: that of the metadata, else of the node's domain, else of its id.
    pub fn namespace(&self) -> &str {
        let of_domain = || self.id.domain.split_once(".svc.").map(|(namespace, _)| namespace);
        match self.metadata.namespace.as_str() {
            "" => of_domain().unwrap_or(&self.id.domain),
            namespace => namespace,
        }
    }
}

/// An extension is known by the messages that configure it. Names are not reliable: one extension may have several.
fn extensions(node: &Node) -> Option<Arc<BTreeSet<String>>> {
    let types = || node.extensions.iter().flat_map(|extension| extension.type_urls.iter().cloned());
    (!node.extensions.is_empty()).then(|| builds::shared(types().collect()))
}

impl Proxy {
    /// Whether it is a gRPC library rather than an Envoy.
    pub fn is_proxyless(&self) -> bool {
        self.metadata.generator == "grpc"
    }

    /// Whether it is a gateway of any sort: everything but a sidecar.
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

/// A proxy with everything that the world around it says about it. Audiences are made of it; generators never see it.
#[derive(Clone)]
pub struct View {
    /// What the proxy said about itself.
    pub proxy: Proxy,
    /// What it is there for.
    pub role: Role,
    /// The namespace whose configuration applies.
    pub namespace: Arc<str>,
    /// The labels of the workload, with those that say where it is.
    pub labels: Labels,
    /// Where it is.
    pub locality: Locality,
    /// Where the ports of services lead that a gateway or waypoint stands for; none for sidecars.
    pub port_targets: Vec<PortTarget>,
}

impl View {
    /// Looks at a proxy.
    pub fn new(ctx: &Ctx<'_>, proxy: &Proxy) -> Self {
        let Described { labels, locality } = describe(ctx, proxy);
        let is_gateway = matches!(proxy.id.kind, NodeKind::Router | NodeKind::Waypoint);
        Self {
            proxy: proxy.clone(),
            role: Role::new(proxy.id.kind, &labels),
            namespace: proxy.namespace().into(),
            labels,
            locality,
            port_targets: if is_gateway { gateway::port_targets(ctx, proxy) } else { Vec::new() },
        }
    }

    /// Which addresses it can use.
    pub fn addressing(&self, flags: &Flags) -> Addressing {
        let metadata = &self.proxy.metadata;
        let is_allocated = metadata.dns_auto_allocate.0 || flags.get(PILOT_ENABLE_IP_AUTOALLOCATE);
        let asks_agent = metadata.dns_capture.0 || self.role.kind == NodeKind::Waypoint;
        Addressing {
            ipv4: self.proxy.id.addresses.iter().any(IpAddr::is_ipv4),
            ipv6: self.proxy.id.addresses.iter().any(IpAddr::is_ipv6),
            cluster: metadata.cluster_id.as_str().into(),
            uses_allocated: is_allocated && asks_agent,
        }
    }
}

/// What the registries and the proxy itself say about its workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The labels of the workload, with those that say where it is.
    pub labels: Labels,
    /// Where it is.
    pub locality: Locality,
}

/// The workload of a proxy as its labels describe it.
pub fn describe(ctx: &Ctx<'_>, proxy: &Proxy) -> Described {
    let pod = || workload::pod_of_proxy(ctx, proxy).map(|pod| pod.labels.clone());
    let known = || pod().or_else(|| workload::endpoint_labels(ctx, proxy));
    let labels = match (!proxy.is_vm()).then(known).flatten() {
        Some(labels) => proxy.metadata.static_labels.iter().chain(labels.iter()).collect(),
        None => proxy.metadata.labels.clone(),
    };
    let locality = Locality::from_labels(&labels).unwrap_or_else(|| proxy.locality.clone());
    let metadata = &proxy.metadata;
    let labels = workload::add_location_labels(
        labels,
        &metadata.cluster_id,
        &locality.to_string(),
        &metadata.node_name,
        &metadata.network,
    );
    Described { labels, locality }
}

/// [`describe`], for those who are not queries.
pub struct DescriptionOf;

impl Query for DescriptionOf {
    const NAME: &'static str = "description_of";
    type Key = Proxy;
    type Value = Described;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Described {
        describe(ctx, proxy)
    }
}
