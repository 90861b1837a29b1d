//! The proxy of a command: from a node file, from a pod in the files, or from flags.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use canopus_api::kube::Pod;
use canopus_base::spiffe::Identity;
use canopus_base::tree::{Limits, Map, Node as Tree, Value};
use canopus_base::{json as plain, yaml};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::json::{self, Unknown};
use clap::ValueEnum;

use crate::files::{LoadedMesh, default_namespace, pair};
use crate::global::Global;

/// The Istio version that the proxy reports.
const VERSION: &str = "1.32.0";

/// The proxy that configuration is generated for.
#[derive(Clone, clap::Args, Debug)]
#[command(next_help_heading = "Proxy")]
pub(crate) struct ProxyArguments {
    /// The proxy's node as it introduces itself (`envoy.config.core.v3.Node`), in JSON or YAML.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pod", "kind", "labels", "ips", "metadata"])]
    proxy: Option<PathBuf>,
    /// A pod of the files; flags below change what it says.
    #[arg(long, value_name = "NAME[.NAMESPACE]")]
    pod: Option<String>,
    /// What the proxy is there for.
    #[arg(long = "type", value_enum, id = "kind", value_name = "TYPE")]
    kind: Option<NodeType>,
    /// Name of the proxy's workload
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// IP addresses of the proxy, separated by commas
    #[arg(long = "ip", id = "ips", value_name = "ADDRESS", value_delimiter = ',')]
    ips: Vec<IpAddr>,
    /// The labels of its workload, separated by commas.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    labels: Vec<String>,
    /// The service account it runs as.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// The cluster it runs in; that of the objects if not given.
    #[arg(long, value_name = "NAME")]
    proxy_cluster: Option<String>,
    /// The network it is in.
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Where it is: `region/zone/subzone`.
    #[arg(long, value_name = "LOCALITY")]
    locality: Option<String>,
    /// Further metadata of its node; the value is JSON, or else a text. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// What Envoy's administration endpoint `/server_info` answered: the proxy has the extensions of that Envoy. Without, it
    /// is what its node says, or Istio's own proxy.
    #[arg(long, value_name = "FILE")]
    server_info: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NodeType {
    Sidecar,
    Router,
    Waypoint,
}

impl NodeType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::Router => "router",
            Self::Waypoint => "waypoint",
        }
    }
}

/// The parts of an xDS node.
#[derive(Default)]
struct NodeParts {
    kind: &'static str,
    name: String,
    namespace: String,
    addresses: Vec<String>,
    labels: Map,
    service_account: String,
    cluster: String,
    node_name: String,
}

impl ProxyArguments {
    /// The sidecar of a pod in the files.
    pub(crate) fn for_pod(pod: &str) -> Self {
        Self {
            proxy: None,
            pod: Some(pod.to_owned()),
            kind: None,
            name: None,
            ips: Vec::new(),
            labels: Vec::new(),
            service_account: None,
            proxy_cluster: None,
            network: None,
            locality: None,
            metadata: Vec::new(),
            server_info: None,
        }
    }

    /// Whether any flag describes a proxy.
    pub(crate) fn are_given(&self) -> bool {
        let texts = [
            &self.pod,
            &self.name,
            &self.service_account,
            &self.proxy_cluster,
            &self.network,
            &self.locality,
        ];
        let lists = [self.ips.is_empty(), self.labels.is_empty(), self.metadata.is_empty()];
        self.proxy.is_some()
            || self.kind.is_some()
            || texts.into_iter().any(Option::is_some)
            || lists.contains(&false)
    }

    /// The name of a proxy that is connected to the control plane.
    pub(crate) fn connected(&self, global: &Global) -> anyhow::Result<Option<String>> {
        if !self.are_given() {
            return Ok(None);
        }
        let Some(pod) = &self.pod else { bail!("name a connected proxy with --pod NAME[.NAMESPACE]") };
        let alone = ProxyArguments { pod: None, ..self.clone() };
        if alone.are_given() || self.server_info.is_some() {
            bail!("--pod {pod} names a connected proxy, which no other flag can change");
        }
        Ok(Some(if pod.contains('.') { pod.clone() } else { format!("{pod}.{}", default_namespace(global)) }))
    }

    /// The node of the proxy, and the identity that it is assumed to have.
    pub(crate) fn node(&self, global: &Global, world: &LoadedMesh) -> anyhow::Result<(Node, Identity)> {
        let mut node = match &self.proxy {
            Some(file) => read_node(&read(file)?, file)?,
            None => self.made(global, world)?,
        };
        if let Some(file) = &self.server_info {
            let info = read(file)?;
            let told = info.get("node").with_context(|| format!("{} tells of no node", file.display()))?;
            node.extensions = read_node(told, file)?.extensions;
        }
        let identity = identity(&node, world)?;
        Ok((node, identity))
    }

    fn made(&self, global: &Global, world: &LoadedMesh) -> anyhow::Result<Node> {
        let mut parts = match &self.pod {
            Some(name) => parts_from_pod(name, global, world)?,
            None => NodeParts {
                kind: NodeType::Sidecar.as_str(),
                name: "proxy".to_owned(),
                namespace: default_namespace(global).to_owned(),
                addresses: vec![Ipv4Addr::LOCALHOST.to_string()],
                cluster: world.settings.cluster.to_string(),
                ..NodeParts::default()
            },
        };
        if let Some(kind) = self.kind {
            parts.kind = kind.as_str();
        }
        if !self.ips.is_empty() {
            parts.addresses = self.ips.iter().map(ToString::to_string).collect();
        }
        for label in &self.labels {
            let (key, value) = pair(label, "--labels")?;
            parts.labels.insert(key, Value::from(value).into());
        }
        let set = |part: &mut String, given: &Option<String>| {
            if let Some(given) = given {
                part.clone_from(given);
            }
        };
        set(&mut parts.name, &self.name);
        set(&mut parts.service_account, &self.service_account);
        set(&mut parts.cluster, &self.proxy_cluster);
        self.assemble(parts, world)
    }

    fn assemble(&self, parts: NodeParts, world: &LoadedMesh) -> anyhow::Result<Node> {
        let NodeParts { kind, name, namespace, addresses, labels, service_account, cluster, node_name } =
            parts;
        let mut metadata = Map::new();
        let texts = [
            ("ISTIO_VERSION", VERSION),
            ("NAME", &name),
            ("NAMESPACE", &namespace),
            ("SERVICE_ACCOUNT", &service_account),
            ("CLUSTER_ID", &cluster),
            ("INSTANCE_IPS", &addresses.join(",")),
            ("MESH_ID", world.settings.trust_domain()),
            ("NODE_NAME", &node_name),
            ("NETWORK", self.network.as_deref().unwrap_or_default()),
        ];
        for (key, value) in texts.into_iter().filter(|(_, value)| !value.is_empty()) {
            metadata.insert(key, Value::from(value).into());
        }
        if labels.iter().len() > 0 {
            metadata.insert("LABELS", Value::Map(labels).into());
        }
        for given in &self.metadata {
            let (key, value) = pair(given, "--metadata")?;
            let value = plain::parse(value.as_bytes(), &Limits::default())
                .unwrap_or_else(|_| Value::from(value).into());
            metadata.insert(key, value);
        }
        let address = addresses.first().map_or("", String::as_str);
        let id = format!("{kind}~{address}~{name}.{namespace}~{namespace}.svc.{}", world.settings.domain);
        let mut node = Map::new();
        node.insert("id", Value::from(id).into());
        node.insert("metadata", Value::Map(metadata).into());
        if let Some(locality) = &self.locality {
            let keys = ["region", "zone", "subZone"].into_iter().zip(locality.split('/'));
            let locality = keys.map(|(key, part)| (key, Tree::from(Value::from(part)))).collect();
            node.insert("locality", Value::Map(locality).into());
        }
        Ok(json::read::<Node>(&Value::Map(node).into(), Unknown::Reject)?.value)
    }
}

fn read(file: &Path) -> anyhow::Result<Tree> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    yaml::parse_one(&text, &Limits::default()).with_context(|| file.display().to_string())
}

fn read_node(tree: &Tree, file: &Path) -> anyhow::Result<Node> {
    Ok(json::read::<Node>(tree, Unknown::Report).with_context(|| file.display().to_string())?.value)
}

/// The identity of a node's service account.
fn identity(node: &Node, world: &LoadedMesh) -> anyhow::Result<Identity> {
    let metadata = node.metadata.clone().unwrap_or_default();
    let metadata = json::write(&metadata);
    let text = |key: &str| metadata.get(key).and_then(Tree::as_str).filter(|text| !text.is_empty());
    let namespace = text("NAMESPACE").unwrap_or("default");
    let account = text("SERVICE_ACCOUNT").unwrap_or("default");
    Ok(Identity::new(world.settings.trust_domain(), namespace, account)?)
}

fn parts_from_pod(wanted: &str, global: &Global, world: &LoadedMesh) -> anyhow::Result<NodeParts> {
    let (name, namespace) = wanted.split_once('.').unwrap_or((wanted, default_namespace(global)));
    let is_wanted = |pod: &Pod| *pod.meta.name == *name && *pod.meta.namespace == *namespace;
    let Some((cluster, pod)) = world.pods.iter().find(|(_, pod)| is_wanted(pod)) else {
        bail!("there is no pod {name} in namespace {namespace}");
    };
    let mut addresses: Vec<_> = pod.status.pod_ips.iter().map(|ip| ip.ip.to_string()).collect();
    if addresses.is_empty() && !pod.status.pod_ip.is_empty() {
        addresses.push(pod.status.pod_ip.to_string());
    }
    if addresses.is_empty() {
        bail!("pod {name} of namespace {namespace} has no address yet: give one with --ip");
    }
    let labels = pod.meta.labels.iter().map(|(key, value)| (key, Tree::from(Value::from(value))));
    Ok(NodeParts {
        kind: NodeType::Sidecar.as_str(),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        addresses,
        labels: labels.collect(),
        service_account: pod.spec.service_account_name.to_string(),
        cluster: cluster.to_string(),
        node_name: pod.spec.node_name.to_string(),
    })
}
