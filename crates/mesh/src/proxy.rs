//! Who is asking: a proxy as it introduces itself, and the view of the mesh it shares with its like.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher as StdHasher};
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::node::{MetadataError, NodeId, NodeIdError, NodeKind, NodeMetadata, Version};
use canopus_base::hash::{ContentHash, Hasher};
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_base::spiffe::Identity;
use canopus_base::tree::{Node as Tree, Value};
use canopus_engine::{Ctx, Query};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    Provider, ServiceAttributeEnrichment,
};
use canopus_runtime::flags::{Flags, PILOT_ENABLE_IP_AUTOALLOCATE};

use crate::envoy_filter::MatchedMetadata;
use crate::gateway::{self, PortTarget};
use crate::locality::Locality;
use crate::workload;
use crate::world::settings;

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
    pub extensions: Option<BTreeSet<String>>,
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
fn extensions(node: &Node) -> Option<BTreeSet<String>> {
    let types = || node.extensions.iter().flat_map(|extension| extension.type_urls.iter().cloned());
    (!node.extensions.is_empty()).then(|| types().collect())
}

/// The facts about a proxy that generators of shared resources may look at: everything but what is its own, such as its
/// name and addresses. Proxies with equal views share every such resource.
#[derive(Clone)]
pub struct View {
    facts: Arc<ViewFacts>,
    hash: ContentHash,
}

/// The content of a [`View`].
pub struct ViewFacts {
    /// What the proxy is there for.
    pub kind: NodeKind,
    /// The namespace whose configuration applies.
    pub namespace: Arc<str>,
    /// The labels of the workload, with those that say where it is.
    pub labels: Labels,
    /// Where it is.
    pub locality: Locality,
    /// What it said about itself, without what only it can say: see [`OWN_KEYS`].
    pub metadata: NodeMetadata,
    /// The DNS domain its short names are in, usually `namespace.svc.cluster.local`.
    pub domain: Arc<str>,
    /// Istio's version of the proxy.
    pub version: Version,
    /// Whether it has an IPv4 address.
    pub ipv4: bool,
    /// Whether it has an IPv6 address.
    pub ipv6: bool,
    /// Whether it runs on a virtual machine rather than in a pod.
    pub is_vm: bool,
    /// The message types that configure the extensions it was built with; `None` if it did not say, which means Istio's
    /// own proxy.
    pub extensions: Option<BTreeSet<String>>,
    /// The name its workload has in traces.
    pub service_cluster: Arc<str>,
    /// The identity it proved, if it did.
    pub identity: Option<Identity>,
    /// Where the ports of services lead that a gateway or waypoint stands for; none for sidecars.
    pub port_targets: Vec<PortTarget>,
    /// The name of its own pod, where spans may be reported under it; `None` where pods of one workload are the same to all.
    pub pod_in_traces: Option<Arc<str>>,
}

/// The metadata that differs between the pods of one workload.
pub const OWN_KEYS: [&str; 6] = ["INSTANCE_IPS", "NAME", "OWNER", "POD_IP", "INSTANCE_NAME", "HOSTNAME"];

impl View {
    /// Shares `facts`.
    pub fn new(facts: ViewFacts) -> Self {
        let mut hasher = Hasher::new();
        let said =
            (&facts.kind, &facts.namespace, &facts.labels, &facts.locality, &facts.domain, facts.version);
        hasher.field(format!("{said:?}").as_bytes());
        hasher.field(facts.service_cluster.as_bytes());
        hasher.field(facts.metadata.raw.to_json().to_string().as_bytes());
        let rest =
            (facts.ipv4, facts.ipv6, facts.is_vm, &facts.extensions, &facts.identity, &facts.port_targets);
        hasher.field(format!("{rest:?}").as_bytes());
        hasher.field(facts.pod_in_traces.as_deref().unwrap_or_default().as_bytes());
        let hash = hasher.finish();
        Self { facts: Arc::new(facts), hash }
    }

    /// Whether the proxy can run the extension configured by messages of this type.
    pub fn has_extension(&self, type_name: &str) -> bool {
        self.extensions.as_ref().is_none_or(|known| known.contains(type_name))
    }

    /// Whether the proxy has an address of the family of this one; names and CIDRs of unknown family count as supported.
    pub fn supports(&self, address: &str) -> bool {
        match parse_ip(address.split('/').next().unwrap_or(address)) {
            Ok(IpAddr::V4(_)) => self.ipv4,
            Ok(IpAddr::V6(_)) => self.ipv6,
            Err(_) => true,
        }
    }

    /// Whether addresses that were allocated for services without one mean something to it: its agent answers DNS.
    pub fn uses_allocated_addresses(&self, flags: &Flags) -> bool {
        let allocated = self.metadata.dns_auto_allocate.0 || flags.get(PILOT_ENABLE_IP_AUTOALLOCATE);
        allocated && (self.metadata.dns_capture.0 || self.kind == NodeKind::Waypoint)
    }

    /// Whether it is a gRPC library rather than an Envoy.
    pub fn is_proxyless(&self) -> bool {
        self.metadata.generator == "grpc"
    }

    /// Whether it is a gateway of any sort: everything but a sidecar.
    pub fn is_gateway(&self) -> bool {
        self.kind != NodeKind::Sidecar
    }

    /// Whether `network` is the proxy's; an unnamed one is everybody's.
    pub fn is_in_network(&self, network: &str) -> bool {
        let own = &self.metadata.network;
        network.is_empty() || own.is_empty() || own == network
    }

    /// Whether `cluster` is the proxy's; an unnamed one is everybody's.
    pub fn is_in_cluster(&self, cluster: &str) -> bool {
        let own = &self.metadata.cluster_id;
        cluster.is_empty() || own.is_empty() || own == cluster
    }

    /// The proxy configuration it runs with, if it said so.
    pub fn proxy_config(&self) -> Option<&ProxyConfig> {
        self.metadata.proxy_config.as_ref()
    }
}

macro_rules! shared_by_hash {
    ($handle:ty, $facts:ty) => {
        impl std::ops::Deref for $handle {
            type Target = $facts;

            fn deref(&self) -> &$facts {
                &self.facts
            }
        }

        impl PartialEq for $handle {
            fn eq(&self, other: &Self) -> bool {
                self.hash == other.hash
            }
        }

        impl Eq for $handle {}

        impl PartialOrd for $handle {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $handle {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.hash.cmp(&other.hash)
            }
        }

        impl Hash for $handle {
            fn hash<H: StdHasher>(&self, state: &mut H) {
                self.hash.hash(state);
            }
        }
    };
}

shared_by_hash!(Proxy, ProxyFacts);
shared_by_hash!(View, ViewFacts);

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.node_id)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} {}", self.kind, self.namespace, self.labels)
    }
}

/// What the registries and the proxy itself say about its workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The labels of the workload, with those that say where it is.
    pub labels: Labels,
    /// Where it is.
    pub locality: Locality,
    /// Whether it runs on a virtual machine rather than in a pod.
    pub is_vm: bool,
}

/// The workload of a proxy as its labels describe it.
pub struct DescriptionOf;

impl Query for DescriptionOf {
    const NAME: &'static str = "description_of";
    type Key = Proxy;
    type Value = Described;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Described {
        let is_vm = !proxy.metadata.labels.get("istio.io/test-vm").unwrap_or_default().is_empty();
        let pod = || workload::pod_of(ctx, proxy).map(|pod| pod.labels.clone());
        let known = || pod().or_else(|| workload::endpoint_labels(ctx, proxy));
        let labels = match (!is_vm).then(known).flatten() {
            Some(labels) => proxy.metadata.static_labels.iter().chain(labels.iter()).collect(),
            None => proxy.metadata.labels.clone(),
        };
        let locality = Locality::of_labels(&labels).unwrap_or_else(|| proxy.locality.clone());
        let metadata = &proxy.metadata;
        let labels = workload::augment(
            labels,
            &metadata.cluster_id,
            &locality.to_string(),
            &metadata.node_name,
            &metadata.network,
        );
        Described { labels, locality, is_vm }
    }
}

/// The view of a proxy, given what the registries know of its workload.
pub struct ViewOf;

impl Query for ViewOf {
    const NAME: &'static str = "view_of";
    type Key = Proxy;
    type Value = View;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> View {
        let Described { labels, locality, is_vm } = ctx.get::<DescriptionOf>(proxy).as_ref().clone();
        let is_gateway = matches!(proxy.id.kind, NodeKind::Router | NodeKind::Waypoint);
        View::new(ViewFacts {
            kind: proxy.id.kind,
            namespace: proxy.namespace().into(),
            labels,
            locality,
            metadata: shared_metadata(&proxy.metadata, &ctx.get::<MatchedMetadata>(&())),
            domain: proxy.id.domain.as_str().into(),
            version: Version::parse(&proxy.metadata.istio_version),
            ipv4: proxy.id.addresses.iter().any(IpAddr::is_ipv4),
            ipv6: proxy.id.addresses.iter().any(IpAddr::is_ipv6),
            is_vm,
            extensions: proxy.extensions.clone(),
            service_cluster: proxy.service_cluster.clone(),
            identity: proxy.identity.clone(),
            port_targets: if is_gateway { gateway::port_targets(ctx, proxy) } else { Vec::new() },
            pod_in_traces: pod_in_traces(ctx, proxy),
        })
    }
}

/// The name of the proxy's pod, if a provider of traces names services as OpenTelemetry's conventions do and the proxy does
/// not know the workload its pod is of: only then has every pod configuration of its own.
fn pod_in_traces(ctx: &Ctx<'_>, proxy: &Proxy) -> Option<Arc<str>> {
    let by_convention = |provider: &ExtensionProvider| match &provider.provider {
        Some(Provider::Opentelemetry(provider)) => {
            provider.service_attribute_enrichment() == ServiceAttributeEnrichment::OtelSemanticConventions
        }
        _ => false,
    };
    let is_asked = proxy.metadata.workload_name.is_empty()
        && settings(ctx).mesh.extension_providers.iter().any(by_convention);
    let (pod, _) = proxy.id.id.split_once('.').filter(|_| is_asked)?;
    (!pod.is_empty()).then(|| pod.into())
}

/// Metadata without what is one pod's own and nothing in the mesh looks at.
fn shared_metadata(metadata: &NodeMetadata, matched: &BTreeSet<String>) -> NodeMetadata {
    let mut shared = metadata.clone();
    shared.instance_ips.0.clear();
    if let Value::Map(map) = &mut shared.raw.value {
        let kept = std::mem::take(map).into_entries().into_iter();
        let is_shared = |key: &str| !OWN_KEYS.contains(&key) || matched.contains(key);
        *map = kept.filter(|entry| is_shared(&entry.key)).map(|e| (e.key, e.node)).collect();
    }
    shared
}

/// The effective proxy configuration of a view: what the proxy said, else the mesh's default.
pub fn proxy_config(ctx: &Ctx<'_>, view: &View) -> Arc<ProxyConfig> {
    ctx.get::<ProxyConfigOf>(view)
}

/// [`proxy_config`] of all views.
struct ProxyConfigOf;

impl Query for ProxyConfigOf {
    const NAME: &'static str = "proxy_config_of";
    type Key = View;
    type Value = ProxyConfig;

    fn run(ctx: &Ctx<'_>, view: &View) -> ProxyConfig {
        let said = view.proxy_config().cloned();
        said.or_else(|| settings(ctx).mesh.default_config.clone()).unwrap_or_default()
    }
}

/// A metadata key that has no field of its own.
pub fn metadata_text<'a>(raw: &'a Tree, key: &str) -> Option<&'a str> {
    raw.get(key).and_then(Tree::as_str)
}

#[cfg(test)]
mod tests {
    use canopus_proto::google::protobuf::Struct;
    use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::OpenTelemetryTracingProvider;

    use super::*;
    use crate::testing::world;
    use crate::world::MeshSettings;

    fn settings(enrichment: ServiceAttributeEnrichment) -> MeshSettings {
        let provider = OpenTelemetryTracingProvider {
            service_attribute_enrichment: enrichment.into(),
            ..Default::default()
        };
        let provider = Some(Provider::Opentelemetry(provider));
        let mut settings = MeshSettings::default();
        settings.mesh.extension_providers = vec![ExtensionProvider { name: "p".into(), provider }];
        settings
    }

    fn pod(settings: MeshSettings, workload: &str) -> Option<String> {
        let node = Node {
            id: "sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local".to_owned(),
            metadata: Some(Struct { fields: [("WORKLOAD_NAME".to_owned(), workload.into())].into() }),
            ..Default::default()
        };
        let view = world(settings, "").snapshot().get::<ViewOf>(&Proxy::new(&node, None).unwrap()).unwrap();
        view.pod_in_traces.as_deref().map(str::to_owned)
    }

    #[test]
    fn pods_are_told_apart_only_when_spans_may_be_named_after_them() {
        let conventions = || settings(ServiceAttributeEnrichment::OtelSemanticConventions);
        assert_eq!(pod(conventions(), "").as_deref(), Some("web-0"));
        assert_eq!(pod(conventions(), "web"), None);
        assert_eq!(pod(settings(ServiceAttributeEnrichment::IstioCanonical), ""), None);
    }
}
