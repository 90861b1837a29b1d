//! `canopus experimental describe`: a pod or a service with what configures it.
//!
//! Objects come from the cluster; which VirtualService and DestinationRule are in force comes from the proxy's own
//! configuration, where every route and cluster names the object it was made from.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_base::labels::Labels;
use canopus_base::tree::Node;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use crate::cluster::{Cluster, KubeArguments, name_of, object_path};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::target;

/// Describe a pod or a service and the objects that configure it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Describe a pod.
    #[command(visible_alias = "po")]
    Pod(PodArguments),
    /// Describe a service.
    #[command(visible_alias = "svc")]
    Service(ServiceArguments),
}

#[derive(Args, Debug)]
struct PodArguments {
    /// The pod: `name` or `name.namespace`.
    pod: String,
    /// Also describe a pod without a proxy.
    #[arg(long, alias = "ignoreUnmeshed")]
    ignore_unmeshed: bool,
    /// Port of Envoy's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
}

#[derive(Args, Debug)]
struct ServiceArguments {
    /// The service: `name` or `name.namespace`.
    service: String,
    /// Also describe pods without a proxy.
    #[arg(long, alias = "ignoreUnmeshed")]
    ignore_unmeshed: bool,
    /// Port of Envoy's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let described = Cluster::connect(kube).and_then(|cluster| match &arguments.command {
        Command::Pod(pod) => {
            let description = Description { cluster: &cluster, port: pod.proxy_admin_port };
            description.pod(&pod.pod, &cluster.namespace(&global.namespace), pod.ignore_unmeshed)
        }
        Command::Service(service) => {
            let description = Description { cluster: &cluster, port: service.proxy_admin_port };
            description.service(
                &service.service,
                &cluster.namespace(&global.namespace),
                service.ignore_unmeshed,
            )
        }
    });
    match described {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

struct Description<'a> {
    cluster: &'a Cluster,
    port: u16,
}

impl Description<'_> {
    fn pod(&self, given: &str, namespace: &str, ignore_unmeshed: bool) -> anyhow::Result<String> {
        let (_, name, namespace) = target::split(given, namespace);
        let pod = self.cluster.find(Kind::Pod, namespace, name)?;
        let mut text = String::new();
        describe_pod(&mut text, &pod, name, namespace);
        if !is_meshed(&pod) && !ignore_unmeshed {
            text.push_str(
                "WARNING: the pod has no proxy; inject one, or enroll its namespace in ambient mode\n",
            );
            return Ok(text);
        }
        let own = labels(pod.pointer("/metadata/labels"));
        let services = self.cluster.list(Kind::Service, namespace)?;
        let selecting: Vec<&Node> = services.iter().filter(|service| selects(service, &own)).collect();
        if selecting.is_empty() {
            text.push_str("--------------------\nNo service selects the pod\n");
        }
        let dump = self.dump(name, namespace);
        for service in selecting {
            text.push_str("--------------------\n");
            self.describe_service(&mut text, service, dump.as_ref().ok());
        }
        if let Err(error) = dump {
            let _ = writeln!(text, "WARNING: the proxy's configuration cannot be had: {error:#}");
        }
        Ok(text)
    }

    fn service(&self, given: &str, namespace: &str, ignore_unmeshed: bool) -> anyhow::Result<String> {
        let (_, name, namespace) = target::split(given, namespace);
        let path = object_path(Kind::Service, namespace, name);
        let Some(service) = self.cluster.get(&path)? else { bail!("services {name:?} not found") };
        let pods = self.cluster.list(Kind::Pod, namespace)?;
        let selected = |pod: &&Node| selects(&service, &labels(pod.pointer("/metadata/labels")));
        let pods: Vec<&Node> = pods.iter().filter(selected).collect();
        let mut text = String::new();
        let meshed = pods.iter().find(|pod| is_meshed(pod) || ignore_unmeshed);
        let dump = meshed.and_then(|pod| name_of(pod)).map(|pod| self.dump(&pod, namespace));
        let known = dump.as_ref().and_then(|dump| dump.as_ref().ok());
        self.describe_service(&mut text, &service, known);
        if pods.is_empty() {
            text.push_str("WARNING: no pod is selected by the service\n");
        } else if meshed.is_none() {
            text.push_str("WARNING: no pod of the service has a proxy\n");
        }
        if let Some(Err(error)) = dump {
            let _ = writeln!(text, "WARNING: the proxy's configuration cannot be had: {error:#}");
        }
        Ok(text)
    }

    fn dump(&self, pod: &str, namespace: &str) -> anyhow::Result<Value> {
        let bytes = self.cluster.ask_pod(namespace, pod, self.port, Method::GET, "/config_dump")?;
        serde_json::from_slice(&bytes).context("the configuration dump is not JSON")
    }

    fn describe_service(&self, text: &mut String, service: &Node, dump: Option<&Value>) {
        let name = name_of(service).unwrap_or_default();
        let namespace = string(service, "/metadata/namespace");
        let shown = if namespace == "default" { name.clone() } else { format!("{name}.{namespace}") };
        let _ = writeln!(text, "Service: {shown}");
        let ports = service.pointer("/spec/ports").and_then(Node::as_list).into_iter().flatten();
        for port in ports {
            let number = port.get("port").and_then(Node::as_i64).unwrap_or_default();
            let port_name = port.get("name").and_then(Node::as_str).unwrap_or_default();
            let protocol = port.get("appProtocol").and_then(Node::as_str);
            let protocol = protocol.or_else(|| port_name.split('-').next().filter(|name| !name.is_empty()));
            let target = port.get("targetPort").map(|target| match target.as_str() {
                Some(name) => name.to_owned(),
                None => target.as_i64().unwrap_or(number).to_string(),
            });
            let target = target.unwrap_or_else(|| number.to_string());
            let label = if port_name.is_empty() { String::new() } else { format!(" {port_name}") };
            let _ = writeln!(
                text,
                "   Port:{label} {number}/{} targets pod port {target}",
                protocol.unwrap_or("auto-detect")
            );
            let Some(dump) = dump else { continue };
            let number = u16::try_from(number).unwrap_or_default();
            for (what, path) in [
                ("DestinationRule", destination_rule(dump, &name, &namespace, number)),
                ("VirtualService", virtual_service(dump, &name, &namespace, number)),
            ] {
                if let Some((namespace, name)) = path.as_deref().and_then(object_of_path) {
                    let _ = writeln!(text, "{what}: {name}.{namespace} for port {number}");
                }
            }
        }
    }
}

fn describe_pod(text: &mut String, pod: &Node, name: &str, namespace: &str) {
    let shown = if namespace == "default" { name.to_owned() } else { format!("{name}.{namespace}") };
    let _ = writeln!(text, "Pod: {shown}");
    let phase = string(pod, "/status/phase");
    if phase != "Running" {
        let _ = writeln!(text, "   WARNING: the pod is {phase}");
    }
    let revision = pod.pointer("/metadata/annotations").and_then(|all| all.get("istio.io/rev")?.as_str());
    if let Some(revision) = revision {
        let _ = writeln!(text, "   Pod Revision: {revision}");
    }
    let containers = pod.pointer("/spec/containers").and_then(Node::as_list).into_iter().flatten();
    let mut ports = Vec::new();
    for container in containers {
        let of = container.get("name").and_then(Node::as_str).unwrap_or_default();
        for port in container.get("ports").and_then(Node::as_list).into_iter().flatten() {
            let number = port.get("containerPort").and_then(Node::as_i64).unwrap_or_default();
            let protocol = port.get("protocol").and_then(Node::as_str).filter(|protocol| *protocol != "TCP");
            let protocol = protocol.map(|protocol| format!("/{protocol}")).unwrap_or_default();
            ports.push(format!("{number}{protocol} ({of})"));
        }
    }
    let ports = if ports.is_empty() { "none declared".to_owned() } else { ports.join(", ") };
    let _ = writeln!(text, "   Pod Ports: {ports}");
}

fn string(node: &Node, pointer: &str) -> String {
    node.pointer(pointer).and_then(Node::as_str).unwrap_or_default().to_owned()
}

fn is_meshed(pod: &Node) -> bool {
    let containers = ["/spec/containers", "/spec/initContainers"];
    let mut names = containers.iter().filter_map(|pointer| pod.pointer(pointer)?.as_list()).flatten();
    names.any(|container| container.get("name").and_then(Node::as_str) == Some("istio-proxy"))
}

fn labels(node: Option<&Node>) -> Labels {
    let map = node.and_then(Node::as_map);
    map.into_iter().flatten().filter_map(|entry| Some((&*entry.key, entry.node.as_str()?))).collect()
}

/// Whether a service sends to pods with these labels; one without a selector sends to none.
fn selects(service: &Node, pod: &Labels) -> bool {
    let selector = labels(service.pointer("/spec/selector"));
    !selector.is_empty() && selector.selects(pod)
}

/// Namespace and name in `/apis/networking.istio.io/v1/namespaces/NAMESPACE/KIND/NAME`.
fn object_of_path(path: &str) -> Option<(&str, &str)> {
    let (_, rest) = path.split_once("/namespaces/")?;
    let mut parts = rest.split('/');
    Some((parts.next()?, parts.nth(1)?))
}

/// The path of the VirtualService behind a proxy's routes to a port of a service.
pub fn virtual_service(dump: &Value, service: &str, namespace: &str, port: u16) -> Option<String> {
    let host = format!("{service}.{namespace}.svc.cluster.local");
    let tables = sections(dump, "RoutesConfigDump", &["dynamic_route_configs", "dynamicRouteConfigs"]);
    for table in tables.filter_map(|entry| field(entry, "route_config", "routeConfig")) {
        let name = table["name"].as_str().unwrap_or_default();
        // The tables of a gateway are named by protocol and port of its servers.
        let is_meant = name == port.to_string() || name.starts_with("http.") || name.starts_with("https.");
        if !is_meant {
            continue;
        }
        let hosts = field(table, "virtual_hosts", "virtualHosts").and_then(Value::as_array);
        for virtual_host in hosts.into_iter().flatten() {
            let domains = virtual_host["domains"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let is_of_host = domains.into_iter().any(|domain| is_host(domain, &host));
            for route in virtual_host["routes"].as_array().into_iter().flatten() {
                if is_of_host || leads_to(route, &host, port) {
                    return config_of(route);
                }
            }
        }
    }
    None
}

/// The path of the DestinationRule behind a proxy's cluster of a port of a service.
fn destination_rule(dump: &Value, service: &str, namespace: &str, port: u16) -> Option<String> {
    let wanted = format!("outbound|{port}||{service}.{namespace}.svc.cluster.local");
    let clusters =
        sections(dump, "ClustersConfigDump", &["dynamic_active_clusters", "dynamicActiveClusters"]);
    let mut clusters = clusters.map(|entry| &entry["cluster"]);
    config_of(clusters.find(|cluster| cluster["name"].as_str() == Some(&wanted))?)
}

/// Whether a domain ends in the host, with or without more names before it.
fn is_host(domain: &str, host: &str) -> bool {
    domain.strip_suffix(host).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn leads_to(route: &Value, host: &str, port: u16) -> bool {
    let action = &route["route"];
    let weighted = field(action, "weighted_clusters", "weightedClusters");
    let cluster = action["cluster"]
        .as_str()
        .or_else(|| weighted.and_then(|weighted| weighted.pointer("/clusters/0/name")?.as_str()));
    let mut parts = cluster.unwrap_or_default().split('|');
    parts.next() == Some("outbound")
        && parts.next() == Some(&port.to_string())
        && parts.nth(1).is_some_and(|own| own == host)
}

/// What a route or cluster says about the object it was made from.
fn config_of(resource: &Value) -> Option<String> {
    let metadata = field(&resource["metadata"], "filter_metadata", "filterMetadata")?;
    metadata.pointer("/istio/config")?.as_str().map(str::to_owned)
}

/// A field by the name in the protocol buffer, or as JSON spells it.
fn field<'a>(value: &'a Value, original: &str, camel: &str) -> Option<&'a Value> {
    value.get(original).or_else(|| value.get(camel))
}

fn sections<'a>(dump: &'a Value, kind: &'a str, lists: &'a [&'a str]) -> impl Iterator<Item = &'a Value> {
    let configs = dump["configs"].as_array().into_iter().flatten();
    let sections =
        configs.filter(move |config| config["@type"].as_str().is_some_and(|url| url.ends_with(kind)));
    sections.flat_map(move |section| lists.iter().filter_map(|list| section[*list].as_array()).flatten())
}
