//! `canopus experimental workload`: machines outside Kubernetes as workloads of a mesh.
//!
//! `group create` prints a WorkloadGroup. `entry configure` writes what a machine needs to join: its agent's environment, the
//! mesh configuration of its proxy, the root certificate, a token and the address of the control plane.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_api::{Kind, mesh_config};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use canopus_proto::istio::networking::v1alpha3::ReadinessProbe;
use canopus_proto::json::{self, Unknown};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cluster::{Cluster, KubeArguments, object_path};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};

/// The port on which proxies reach the control plane.
const SECURE_PORT: u16 = 15012;

/// The annotation with which a group overrides the mesh's proxy configuration.
const PROXY_CONFIG: &str = "proxy.istio.io/config";

/// Configure workloads outside Kubernetes.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// WorkloadEntries.
    Entry(EntryArguments),
    /// WorkloadGroups.
    Group(GroupArguments),
}

#[derive(Args, Debug)]
struct EntryArguments {
    #[command(subcommand)]
    command: EntryCommand,
}

#[derive(Debug, Subcommand)]
enum EntryCommand {
    /// Write the files with which a machine joins the mesh.
    Configure(ConfigureArguments),
}

#[derive(Args, Debug)]
struct GroupArguments {
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// Print a WorkloadGroup, the template of WorkloadEntries.
    Create(CreateArguments),
}

#[derive(Args, Debug)]
struct CreateArguments {
    /// Name of the group.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Labels of its workloads: `key=value`, separated by commas.
    #[arg(short, long, value_delimiter = ',')]
    labels: Vec<String>,
    /// Annotations of its workloads: `key=value`, separated by commas.
    #[arg(short, long, value_delimiter = ',')]
    annotations: Vec<String>,
    /// Ports of its workloads: `name=port`, separated by commas.
    #[arg(short, long, value_delimiter = ',')]
    ports: Vec<String>,
    /// Service account of its workloads.
    #[arg(short, long = "serviceAccount", value_name = "NAME", default_value = "default")]
    service_account: String,
    /// Network of its workloads.
    #[arg(long, default_value = "", hide_default_value = true)]
    network: String,
    /// Locality of its workloads: `region/zone/subzone`.
    #[arg(long, default_value = "", hide_default_value = true)]
    locality: String,
    /// Weight of its workloads in load balancing.
    #[arg(short, long, default_value_t = 0)]
    weight: u32,
}

#[derive(Args, Debug)]
struct ConfigureArguments {
    /// File with the WorkloadGroup; without it, the API server has it.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Name of the WorkloadGroup.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Directory to write into.
    #[arg(short, long, value_name = "DIRECTORY", default_value = "", hide_default_value = true)]
    output: String,
    /// Cluster that the machine belongs to; without it, that of the injector's configuration.
    #[arg(long = "clusterID", value_name = "CLUSTER")]
    cluster_id: Option<String>,
    /// Seconds for which the token is valid.
    #[arg(long = "tokenDuration", value_name = "SECONDS", default_value_t = 3600)]
    token_duration: u32,
    /// Service of the gateway to the control plane: `service` or `service.namespace`.
    #[arg(long = "ingressService", value_name = "SERVICE", default_value = "istio-eastwestgateway")]
    ingress_service: String,
    /// Address of the gateway to the control plane.
    #[arg(long = "ingressIP", value_name = "IP", default_value = "", hide_default_value = true)]
    ingress_ip: String,
    /// Register a WorkloadEntry when the machine connects.
    #[arg(long)]
    autoregister: bool,
    /// Answer DNS questions of the machine's programs.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    capture_dns: bool,
    /// Address of the machine, inside its network.
    #[arg(long = "internalIP", value_name = "IP", default_value = "", hide_default_value = true)]
    internal_ip: String,
    /// Address of the machine, from outside.
    #[arg(long = "externalIP", value_name = "IP", default_value = "", hide_default_value = true)]
    external_ip: String,
    /// Revision of the control plane.
    #[arg(short, long, default_value = "", hide_default_value = true)]
    revision: String,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let done = match &arguments.command {
        Command::Group(GroupArguments { command: GroupCommand::Create(create) }) => {
            group(global, create).map(|group| yaml::node_to_string(&Node::from(group)))
        }
        Command::Entry(EntryArguments { command: EntryCommand::Configure(configure) }) => {
            self::configure(global, kube, configure)
        }
    };
    match done {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn group(global: &Global, arguments: &CreateArguments) -> anyhow::Result<Value> {
    if arguments.name.is_empty() {
        bail!("expecting a workload name");
    }
    if global.namespace.is_empty() {
        bail!("expecting a workload namespace");
    }
    let pairs = |given: &[String]| -> BTreeMap<String, String> {
        let pair =
            |text: &String| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        given.iter().map(|text| pair(text).unwrap_or_else(|| (text.clone(), String::new()))).collect()
    };
    let mut ports = BTreeMap::new();
    for (name, port) in pairs(&arguments.ports) {
        let port: u16 = port
            .parse()
            .with_context(|| format!("--ports {name}={port}: expected name=port with a port up to 65535"))?;
        ports.insert(name, port);
    }
    let mut template = json!({"serviceAccount": arguments.service_account});
    if !ports.is_empty() {
        template["ports"] = json!(ports);
    }
    for (key, text) in [("network", &arguments.network), ("locality", &arguments.locality)] {
        if !text.is_empty() {
            template[key] = json!(text);
        }
    }
    if arguments.weight > 0 {
        template["weight"] = json!(arguments.weight);
    }
    let mut metadata = json!({});
    for (key, given) in [("labels", &arguments.labels), ("annotations", &arguments.annotations)] {
        if !given.is_empty() {
            metadata[key] = json!(pairs(given));
        }
    }
    Ok(json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadGroup",
        "metadata": {"name": arguments.name, "namespace": global.namespace},
        "spec": {"metadata": metadata, "template": template},
    }))
}

fn configure(
    global: &Global,
    kube: &KubeArguments,
    arguments: &ConfigureArguments,
) -> anyhow::Result<String> {
    if !arguments.internal_ip.is_empty() && !arguments.external_ip.is_empty() {
        bail!("the flags --internalIP and --externalIP are mutually exclusive");
    }
    if arguments.file.is_none() && (arguments.name.is_empty() || global.namespace.is_empty()) {
        bail!(
            "expecting a WorkloadGroup artifact file or the name and namespace of an existing WorkloadGroup"
        );
    }
    if arguments.output.is_empty() {
        bail!("expecting an output directory");
    }
    let cluster = Cluster::connect(kube)?;
    let group = match &arguments.file {
        Some(file) => {
            let text = fs::read(file).with_context(|| format!("cannot read {file}"))?;
            yaml::parse_one(text, &Limits::default()).with_context(|| file.clone())?
        }
        None => cluster.find(Kind::WorkloadGroup, &global.namespace, &arguments.name)?,
    };
    let group = Group::read(&group)?;
    let system = &global.istio_namespace;
    let cluster_id = match &arguments.cluster_id {
        Some(cluster_id) => cluster_id.clone(),
        None => cluster_id(&cluster, system, &arguments.revision)
            .context("failed to automatically determine the --clusterID")?,
    };
    let mesh = config_map(&cluster, system, &revisioned("istio", &arguments.revision))?;
    let mesh = mesh.pointer("/data/mesh").and_then(Node::as_str).unwrap_or_default();
    let machine = Machine { arguments, system, cluster_id: &cluster_id };
    let config = machine.proxy_config(&group, mesh)?;
    let directory = Path::new(&arguments.output);
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", arguments.output))?;
    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    let fields = Node::from(json!({"defaultConfig": json::write(&config).to_json()}));
    write("mesh.yaml", &yaml::node_to_string(&fields))?;
    write("cluster.env", &machine.environment(&group, &config))?;
    let root = config_map(&cluster, &group.namespace, "istio-ca-root-cert")?;
    let root = root.get("data").and_then(|data| data.get("root-cert.pem")).and_then(Node::as_str);
    write("root-cert.pem", root.unwrap_or_default())?;
    write("istio-token", &token(&cluster, &group, arguments.token_duration)?)?;
    let path = directory.join("istio-token");
    say(
        &format!(
            "Warning: a security token for namespace {:?} and service account {:?} has been generated and stored at {:?}\n",
            group.namespace, group.service_account, path
        ),
        ExitCode::SUCCESS,
    );
    write("hosts", &machine.hosts(&cluster)?)?;
    Ok(format!("Configuration generation into directory {} was successful\n", arguments.output))
}

/// What of a WorkloadGroup matters to a machine.
struct Group {
    name: String,
    namespace: String,
    /// The overrides of the proxy configuration, the weaker first.
    proxy_configs: Vec<String>,
    labels: BTreeMap<String, String>,
    ports: BTreeMap<String, i64>,
    service_account: String,
    network: String,
    probe: Option<ReadinessProbe>,
}

impl Group {
    fn read(object: &Node) -> anyhow::Result<Self> {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Node::as_str).unwrap_or_default().to_owned();
        let texts = |pointer: &str| -> BTreeMap<String, String> {
            let map = object.pointer(pointer).and_then(Node::as_map).into_iter().flatten();
            map.filter_map(|entry| Some((entry.key.to_string(), entry.node.as_str()?.to_owned()))).collect()
        };
        let annotations = ["/metadata/annotations", "/spec/metadata/annotations"].map(texts);
        let mut labels = texts("/spec/metadata/labels");
        labels.extend(texts("/spec/template/labels"));
        let ports = object.pointer("/spec/template/ports").and_then(Node::as_map).into_iter().flatten();
        let probe = object.pointer("/spec/probe");
        let probe = probe.map(|probe| json::read::<ReadinessProbe>(probe, Unknown::Reject)).transpose();
        let service_account = text("/spec/template/serviceAccount");
        Ok(Self {
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            proxy_configs: annotations.iter().filter_map(|all| all.get(PROXY_CONFIG).cloned()).collect(),
            labels,
            ports: ports.filter_map(|entry| Some((entry.key.to_string(), entry.node.as_i64()?))).collect(),
            service_account: if service_account.is_empty() { "default".to_owned() } else { service_account },
            network: text("/spec/template/network"),
            probe: probe
                .map_err(|error| anyhow::anyhow!("WorkloadGroup: spec.probe: {error}"))?
                .map(|read| read.value),
        })
    }
}

/// A machine that is to join.
struct Machine<'a> {
    arguments: &'a ConfigureArguments,
    system: &'a str,
    cluster_id: &'a str,
}

impl Machine<'_> {
    /// The mesh's proxy configuration with the group's overrides and the machine's metadata.
    fn proxy_config(&self, group: &Group, mesh: &str) -> anyhow::Result<ProxyConfig> {
        let base = MeshConfig { default_config: Some(ProxyConfig::default()), ..MeshConfig::default() };
        let mesh = mesh_config::apply(mesh, &base).context("the mesh configuration")?.value;
        let mut config = mesh.default_config.unwrap_or_default();
        if is_revisioned(&self.arguments.revision) && config.discovery_address.is_empty() {
            config.discovery_address = format!("{}:{SECURE_PORT}", self.control_plane());
        }
        for text in &group.proxy_configs {
            let before = config.proxy_metadata.clone();
            config = mesh_config::merge_proxy_config(text, &config)
                .with_context(|| format!("WorkloadGroup {}: {PROXY_CONFIG}", group.name))?
                .value;
            let given = std::mem::replace(&mut config.proxy_metadata, before);
            config.proxy_metadata.extend(given);
        }
        config.readiness_probe = group.probe.clone();
        let metadata = self.metadata(group, &mesh.trust_domain, &config.mesh_id);
        config.proxy_metadata.extend(metadata);
        Ok(config)
    }

    fn metadata(&self, group: &Group, trust_domain: &str, mesh_id: &str) -> BTreeMap<String, String> {
        const NAME: &str = "service.istio.io/canonical-name";
        const REVISION: &str = "service.istio.io/canonical-revision";
        let label = |names: &[&str], default: &str| {
            let found = names.iter().find_map(|name| group.labels.get(*name));
            found.cloned().unwrap_or_else(|| default.to_owned())
        };
        let name = label(&[NAME, "app.kubernetes.io/name", "app"], &group.name);
        let revision = label(&[REVISION, "app.kubernetes.io/version", "version"], "latest");
        let mut labels = group.labels.clone();
        labels.extend([(NAME.to_owned(), name.clone()), (REVISION.to_owned(), revision.clone())]);
        let mut metadata: BTreeMap<String, String> = [
            ("CANONICAL_SERVICE", name.as_str()),
            ("CANONICAL_REVISION", &revision),
            ("POD_NAMESPACE", &group.namespace),
            ("SERVICE_ACCOUNT", &group.service_account),
            ("TRUST_DOMAIN", trust_domain),
            ("ISTIO_META_CLUSTER_ID", self.cluster_id),
            ("ISTIO_META_MESH_ID", mesh_id),
            ("ISTIO_META_NETWORK", &group.network),
            ("ISTIO_META_WORKLOAD_NAME", &group.name),
            ("ISTIO_METAJSON_LABELS", &json!(labels).to_string()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        if !group.ports.is_empty() {
            // The agent reads a list whose fields are in this order.
            let port = |(name, port): (&String, &i64)| {
                format!("{{\"name\":{},\"containerPort\":{port},\"protocol\":\"\"}}", json!(name))
            };
            let ports: Vec<String> = group.ports.iter().map(port).collect();
            metadata.insert("ISTIO_META_POD_PORTS".to_owned(), format!("[{}]", ports.join(",")));
        }
        if self.arguments.capture_dns {
            metadata.insert("ISTIO_META_DNS_CAPTURE".to_owned(), "true".to_owned());
        }
        if self.arguments.autoregister {
            metadata.insert("ISTIO_META_AUTO_REGISTER_GROUP".to_owned(), group.name.clone());
        }
        metadata
    }

    /// The environment of the machine's agent, for a shell.
    fn environment(&self, group: &Group, config: &ProxyConfig) -> String {
        let ports: Vec<String> = group.ports.values().map(ToString::to_string).collect();
        let status = match config.status_port {
            15090 | 15021 => String::new(),
            0 => ",15020".to_owned(),
            port => format!(",{port}"),
        };
        let mut variables: BTreeMap<String, String> =
            config.proxy_metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut set = |key: &str, value: String| variables.insert(key.to_owned(), value);
        set("ISTIO_INBOUND_PORTS", if ports.is_empty() { "*".to_owned() } else { ports.join(",") });
        set("ISTIO_NAMESPACE", group.namespace.clone());
        set("ISTIO_SERVICE", format!("{}.{}", group.name, group.namespace));
        set("ISTIO_SERVICE_CIDR", "*".to_owned());
        set("ISTIO_LOCAL_EXCLUDE_PORTS", format!("22,15090,15021{status}"));
        set("SERVICE_ACCOUNT", group.service_account.clone());
        if is_revisioned(&self.arguments.revision) {
            set("CA_ADDR", format!("{}:{SECURE_PORT}", self.control_plane()));
        }
        if !self.arguments.internal_ip.is_empty() {
            set("ISTIO_SVC_IP", self.arguments.internal_ip.clone());
        } else if !self.arguments.external_ip.is_empty() {
            set("ISTIO_SVC_IP", self.arguments.external_ip.clone());
            set("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true".to_owned());
        }
        let mut lines: Vec<String> =
            variables.iter().map(|(key, value)| format!("{key}={}\n", quoted(value))).collect();
        lines.sort();
        lines.concat()
    }

    /// The line that leads the machine to the control plane; nothing if no address is known.
    fn hosts(&self, cluster: &Cluster) -> anyhow::Result<String> {
        let mut address = self.arguments.ingress_ip.clone();
        if address.parse::<IpAddr>().is_err() {
            let given = &self.arguments.ingress_service;
            let (service, namespace) = given.split_once('.').unwrap_or((given, self.system));
            let found = cluster.get(&object_path(Kind::Service, namespace, service))?;
            let pointers = ["/status/loadBalancer/ingress/0/ip", "/spec/externalIPs/0"];
            let found = found.as_ref().and_then(|service| {
                pointers.iter().find_map(|pointer| service.pointer(pointer).and_then(Node::as_str))
            });
            address = found.unwrap_or_default().to_owned();
        }
        if address.parse::<IpAddr>().is_err() {
            say(
                &format!(
                    "Could not auto-detect IP for {}/{}. Use --ingressIP to manually specify the Gateway address to reach istiod from the VM.\n",
                    self.control_plane(),
                    self.system
                ),
                ExitCode::SUCCESS,
            );
            return Ok(String::new());
        }
        Ok(format!("{address} {}\n", self.control_plane()))
    }

    fn control_plane(&self) -> String {
        format!("{}.{}.svc", revisioned("istiod", &self.arguments.revision), self.system)
    }
}

fn is_revisioned(revision: &str) -> bool {
    !matches!(revision, "" | "default")
}

fn revisioned(name: &str, revision: &str) -> String {
    if is_revisioned(revision) { format!("{name}-{revision}") } else { name.to_owned() }
}

/// A value that no shell changes.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\"'\"'"))
}

fn config_map(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Node> {
    let found = cluster.get(&object_path(Kind::ConfigMap, namespace, name))?;
    found.with_context(|| {
        format!("configmap {name} was not found in namespace {namespace}: configmaps {name:?} not found")
    })
}

/// The cluster that the injector tells sidecars.
fn cluster_id(cluster: &Cluster, namespace: &str, revision: &str) -> anyhow::Result<String> {
    let map = config_map(cluster, namespace, &revisioned("istio-sidecar-injector", revision))
        .context("fetch injection template")?;
    let values = map.pointer("/data/values").and_then(Node::as_str).unwrap_or_default();
    let values: Value = serde_json::from_str(values).context("the values of the injector")?;
    let name = values.pointer("/global/multiCluster/clusterName").and_then(Value::as_str);
    Ok(name.unwrap_or_default().to_owned())
}

/// A token for the control plane, of the group's service account.
fn token(cluster: &Cluster, group: &Group, seconds: u32) -> anyhow::Result<String> {
    let Group { namespace, service_account, .. } = group;
    let path = format!("{}/token", object_path(Kind::ServiceAccount, namespace, service_account));
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["istio-ca"], "expirationSeconds": seconds},
    });
    let answer = cluster.create(&path, &request).with_context(|| {
        format!("could not create a token under service account {service_account} in namespace {namespace}")
    })?;
    let token = answer.pointer("/status/token").and_then(Node::as_str);
    Ok(token.context("the API server answered without a token")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r#"'it'"'"'s'"#);
    }
}
