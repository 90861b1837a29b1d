//! A scenario as it is written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use canopus_api::decode::Reason;
use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::{Limits, Map, Node, Value};
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::json::{self, Unknown};
use canopus_xds::session::Protocol;

use crate::corpus::Corpus;

/// A type of resource, by its short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::suites) enum Type {
    Cds,
    Eds,
    Lds,
    Rds,
    Ecds,
    Sds,
    Nds,
    Addresses,
    Authorizations,
}

const TYPES: [(Type, &str, &str); 9] = [
    (Type::Cds, "cds", "envoy.config.cluster.v3.Cluster"),
    (Type::Eds, "eds", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
    (Type::Lds, "lds", "envoy.config.listener.v3.Listener"),
    (Type::Rds, "rds", "envoy.config.route.v3.RouteConfiguration"),
    (Type::Ecds, "ecds", "envoy.config.core.v3.TypedExtensionConfig"),
    (Type::Sds, "sds", "envoy.extensions.transport_sockets.tls.v3.Secret"),
    (Type::Nds, "nds", "istio.networking.nds.v1.NameTable"),
    (Type::Addresses, "addresses", "istio.workload.Address"),
    (Type::Authorizations, "authorizations", "istio.security.Authorization"),
];

impl Type {
    pub(in crate::suites) fn parse(text: &str) -> Option<Self> {
        TYPES.into_iter().find(|(_, name, _)| *name == text).map(|(kind, ..)| kind)
    }

    /// All of them, in the order they are listed.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        TYPES.into_iter().map(|(kind, ..)| kind)
    }

    /// The type with this URL.
    pub(super) fn from_url(url: &str) -> Option<Self> {
        Self::all().find(|kind| kind.url() == url)
    }

    pub(super) fn url(self) -> String {
        format!("type.googleapis.com/{}", self.message())
    }

    /// The full name of its messages.
    pub(in crate::suites) fn message(self) -> &'static str {
        TYPES[self as usize].2
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TYPES[*self as usize].1)
    }
}

/// A recorded scenario.
pub(crate) struct Scenario {
    pub(in crate::suites) objects: Vec<(String, Object)>,
    pub(in crate::suites) mesh_config: Option<Node>,
    pub(in crate::suites) mesh_networks: Option<Node>,
    pub(in crate::suites) features: BTreeMap<String, String>,
    /// The cluster whose Istio objects count.
    pub(in crate::suites) cluster: String,
    pub(in crate::suites) proxies: Vec<RecordedProxy>,
    /// Whether the controller runs that gives ServiceEntries their addresses.
    pub(super) allocates_addresses: bool,
    nondeterministic: Vec<(String, String)>,
}

/// A proxy of a scenario.
pub(crate) struct RecordedProxy {
    pub(in crate::suites) name: String,
    pub(in crate::suites) node: ProxyNode,
    pub(in crate::suites) protocol: Protocol,
    pub(in crate::suites) service_account: String,
    pub(in crate::suites) namespace: String,
    /// The types that were recorded.
    pub(in crate::suites) recorded: Vec<Type>,
    /// The secrets it asks for by name.
    pub(in crate::suites) secrets: Vec<String>,
    /// The listeners a proxyless client asks for.
    pub(in crate::suites) watched_listeners: Vec<String>,
}

impl RecordedProxy {
    /// Whether it is an Envoy that can do without Istio's own filters.
    pub(in crate::suites) fn is_envoy(&self) -> bool {
        let is_stock = ["sidecar~", "router~"].iter().any(|kind| self.node.id.starts_with(kind));
        is_stock && self.watched_listeners.is_empty()
    }
}

impl Scenario {
    pub(in crate::suites) fn read(corpus: &Corpus, directory: &Path) -> anyhow::Result<Self> {
        let written = corpus.document(&directory.join("scenario.yaml"))?;
        let cluster = text(&written, "defaultCluster").unwrap_or("Kubernetes").to_owned();
        let mut objects = Vec::new();
        let clusters = list(&written, "clusters").filter_map(Node::as_str);
        let clusters: Vec<_> = clusters.map(|name| (name, format!("kube.{name}.yaml"))).collect();
        let single =
            [(cluster.as_str(), "kube.yaml".to_owned()), (cluster.as_str(), "config.yaml".to_owned())];
        for (cluster, file) in clusters.into_iter().chain(single) {
            let path = directory.join(&file);
            if corpus.exists(&path) {
                objects.extend(
                    read_objects(corpus, &path)?.into_iter().map(|object| (cluster.to_owned(), object)),
                );
            }
        }
        let features = written.get("features").and_then(Node::as_map).into_iter().flatten();
        let nondeterministic = list(&written, "nondeterministic")
            .filter(|entry| text(entry, "kind") == Some("order"))
            .filter_map(|entry| Some((text(entry, "file")?.to_owned(), text(entry, "path")?.to_owned())));
        Ok(Self {
            mesh_config: written.get("meshConfig").cloned(),
            mesh_networks: written.get("meshNetworks").cloned(),
            features: features
                .filter_map(|entry| Some((entry.key.to_string(), entry.node.as_str()?.to_owned())))
                .collect(),
            nondeterministic: nondeterministic.collect(),
            proxies: list(&written, "proxies")
                .map(|entry| proxy(entry, &cluster))
                .collect::<Result<_, _>>()?,
            allocates_addresses: written.get("ipAllocator").and_then(Node::as_bool).unwrap_or(false),
            objects,
            cluster,
        })
    }

    /// The lists of one resource of a file whose order means nothing, as pointers into its entry.
    pub(in crate::suites) fn unordered(&self, file: &str, index: usize) -> Vec<String> {
        let prefix = format!("/{index}/");
        let of_file = self.nondeterministic.iter().filter(|(of, _)| of == file);
        of_file.filter_map(|(_, path)| path.strip_prefix(&prefix)).map(|rest| format!("/{rest}")).collect()
    }
}

fn read_objects(corpus: &Corpus, file: &Path) -> anyhow::Result<Vec<Object>> {
    let text = String::from_utf8(corpus.bytes(file)?)?;
    let mut objects = Vec::new();
    for outcome in decode_documents(&text, &Limits::default(), Options::watch()) {
        match outcome {
            Ok(decoded) => objects.push(decoded.value),
            // An object nobody reads.
            Err(error) if matches!(error.reason, Reason::UnknownKind) => {}
            Err(error) => bail!("{}: {error}", file.display()),
        }
    }
    Ok(objects)
}

pub(super) fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key)?.as_str()
}

pub(super) fn list<'a>(node: &'a Node, key: &str) -> impl Iterator<Item = &'a Node> {
    node.get(key).and_then(Node::as_list).unwrap_or_default().iter()
}

pub(super) fn names(node: &Node, key: &str) -> Vec<String> {
    list(node, key).filter_map(Node::as_str).map(str::to_owned).collect()
}

fn proxy(entry: &Node, default_cluster: &str) -> anyhow::Result<RecordedProxy> {
    let required = |key: &str| text(entry, key).with_context(|| format!("a proxy without {key}"));
    let (name, kind, namespace) = (required("name")?, required("type")?, required("namespace")?);
    let id = text(entry, "id").unwrap_or(name);
    let ips: Vec<_> = list(entry, "ips").filter_map(Node::as_str).collect();
    let mut metadata = Map::new();
    let mut set = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            metadata.insert(key, Value::from(value).into());
        }
    };
    set("ISTIO_VERSION", Some("1.32.0"));
    set("NAMESPACE", Some(namespace));
    set("SERVICE_ACCOUNT", text(entry, "serviceAccount"));
    set("CLUSTER_ID", Some(text(entry, "cluster").unwrap_or(default_cluster)));
    set("INSTANCE_IPS", Some(&ips.join(",")));
    set("MESH_ID", Some("cluster.local"));
    set("NAME", Some(id));
    set("NETWORK", text(entry, "network"));
    set("NODE_NAME", text(entry, "node"));
    if let Some(labels) = entry.get("labels") {
        metadata.insert("LABELS", labels.clone());
    }
    for extra in entry.get("metadata").and_then(Node::as_map).into_iter().flatten() {
        metadata.insert(extra.key.as_ref(), extra.node.clone());
    }
    let mut node = Map::new();
    let first = ips.first().copied().unwrap_or_default();
    let node_id = format!("{kind}~{first}~{id}.{namespace}~{namespace}.svc.cluster.local");
    node.insert("id", Value::from(node_id).into());
    node.insert("metadata", Value::Map(metadata).into());
    let locality: Node = entry.get("locality").map(locality).unwrap_or_default();
    if !locality.is_null() {
        node.insert("locality", locality);
    }
    let types = |key: &str| -> Vec<Type> {
        list(entry, key).filter_map(Node::as_str).filter_map(Type::parse).collect()
    };
    let subscribed = match types("types") {
        listed if listed.is_empty() => defaults(kind),
        listed => listed,
    };
    let recorded = types("record");
    Ok(RecordedProxy {
        name: name.to_owned(),
        node: json::read::<ProxyNode>(&Value::Map(node).into(), Unknown::Reject)?.value,
        protocol: if text(entry, "protocol") == Some("sotw") { Protocol::Sotw } else { Protocol::Delta },
        service_account: text(entry, "serviceAccount").unwrap_or("default").to_owned(),
        namespace: namespace.to_owned(),
        recorded: if recorded.is_empty() { subscribed } else { recorded },
        secrets: entry.get("watch").map(|watch| names(watch, "sds")).unwrap_or_default(),
        watched_listeners: entry.get("watch").map(|watch| names(watch, "lds")).unwrap_or_default(),
    })
}

/// `region/zone/subzone`, or a map of the three.
fn locality(written: &Node) -> Node {
    let parts: Vec<String> = match written.as_str() {
        Some(text) => text.split('/').map(str::to_owned).collect(),
        None => ["region", "zone", "subzone"]
            .iter()
            .map(|key| text(written, key).unwrap_or_default().to_owned())
            .collect(),
    };
    let named = ["region", "zone", "subZone"].into_iter().zip(parts);
    Value::Map(named.map(|(key, part)| (key, Node::from(Value::from(part)))).collect()).into()
}

/// What a proxy subscribes to unless the scenario says otherwise.
fn defaults(kind: &str) -> Vec<Type> {
    match kind {
        "ztunnel" => vec![Type::Addresses, Type::Authorizations],
        _ => vec![Type::Cds, Type::Eds, Type::Lds, Type::Rds, Type::Ecds, Type::Sds],
    }
}
