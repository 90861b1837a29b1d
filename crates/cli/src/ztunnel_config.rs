//! `canopus ztunnel-config`: what a node's ztunnel knows and does.
//!
//! The source is always ztunnel's `/config_dump`, from its administration interface or from a file. Tables print what people
//! look for; `-o json` and `-o yaml` print the records themselves.

mod dump;
mod summary;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_base::tree::Node;
use canopus_base::yaml;
use clap::{Args, Subcommand};
use http::Method;
use serde::Serialize;

use self::dump::{Dump, Selection};
use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::target::{self, Access, Source};

/// Look at the configuration and the connections of ztunnel.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canopus ztunnel-config workload                        what the ztunnel of some node knows
  canopus ztunnel-config workload cart-1.shop            one workload, from the ztunnel of its node
  canopus ztunnel-config connections --node worker-2     the connections of a node
  canopus ztunnel-config all --admin-address 127.0.0.1:15000   a ztunnel outside Kubernetes
  canopus ztunnel-config certificate -f dump.json        from a saved /config_dump

Exit codes: 0 printed, 1 ztunnel does not answer or the dump cannot be read, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that ztunnel has.
    All(AllArguments),
    /// Certificates of workloads and their state.
    #[command(visible_aliases = ["certificates", "certs", "cert"])]
    Certificate(View),
    /// Open connections by workload.
    #[command(visible_alias = "cons")]
    Connections(ConnectionArguments),
    /// Log levels, and changing them.
    #[command(visible_alias = "o")]
    Log(LogArguments),
    /// Authorization policies.
    #[command(visible_aliases = ["policies", "p", "pol"])]
    Policy(PolicyArguments),
    /// Services with their waypoints and endpoints.
    #[command(visible_aliases = ["services", "s", "svc"])]
    Service(ServiceArguments),
    /// Workloads with their addresses, nodes and waypoints.
    #[command(visible_aliases = ["w", "workloads"])]
    Workload(WorkloadArguments),
}

/// Where the dump comes from and how it is printed.
#[derive(Args, Debug)]
struct View {
    /// A saved configuration dump, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Ask the ztunnel of this node.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Output format: short, json or yaml.
    #[arg(short, long, default_value = "short", value_parser = ["short", "json", "yaml"])]
    output: String,
    /// Port of ztunnel's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
    /// Address of a ztunnel's administration interface, outside Kubernetes.
    #[arg(long = "admin-address", value_name = "HOST:PORT", conflicts_with_all = ["file", "node"])]
    admin_address: Option<String>,
}

#[derive(Args, Debug)]
struct AllArguments {
    #[command(flatten)]
    view: View,
    /// Print a heading before each table.
    #[arg(long)]
    with_headers: bool,
}

#[derive(Args, Debug)]
struct ConnectionArguments {
    /// A workload: `pod`, `pod.namespace` or `deployment/name.namespace`.
    workload: Option<String>,
    #[command(flatten)]
    view: View,
    /// Print only inbound or only outbound connections.
    #[arg(long, value_parser = ["inbound", "outbound"])]
    direction: Option<String>,
    /// Print addresses instead of names.
    #[arg(long)]
    raw: bool,
    /// Print the workloads of this namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    workload_namespace: String,
}

#[derive(Args, Debug)]
struct LogArguments {
    /// The ztunnel: `pod` or `pod.namespace`.
    ztunnel: Option<String>,
    #[command(flatten)]
    view: View,
    /// Levels to set: one for everything, or `module:level` separated by commas.
    #[arg(long, value_name = "LEVELS", conflicts_with = "reset")]
    level: Option<String>,
    /// Go back to ztunnel's own level.
    #[arg(short, long)]
    reset: bool,
}

#[derive(Args, Debug)]
struct PolicyArguments {
    #[command(flatten)]
    view: View,
    /// Print the policies of this namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    policy_namespace: String,
}

#[derive(Args, Debug)]
struct ServiceArguments {
    #[command(flatten)]
    view: View,
    /// Print the services of this namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    service_namespace: String,
}

#[derive(Args, Debug)]
struct WorkloadArguments {
    /// A workload: `pod`, `pod.namespace` or `deployment/name.namespace`.
    workload: Option<String>,
    #[command(flatten)]
    view: View,
    /// Print the workload with this address.
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    address: String,
    /// Print the workloads of this namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    workload_namespace: String,
    /// Print the workloads of this node.
    #[arg(long, value_name = "NODE", default_value = "", hide_default_value = true)]
    workload_node: String,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match answer(global, kube, &arguments.command) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn answer(global: &Global, kube: &KubeArguments, command: &Command) -> anyhow::Result<String> {
    let ask = Ask { global, kube };
    match command {
        Command::All(arguments) => {
            let dump = ask.dump(&arguments.view, None)?;
            ask.view(&arguments.view, &dump, || summary::all(&dump, arguments.with_headers))
        }
        Command::Certificate(view) => {
            let dump = ask.dump(view, None)?;
            ask.view(view, &dump.certificates, || summary::certificates(&dump))
        }
        Command::Connections(arguments) => {
            let dump = ask.dump(&arguments.view, arguments.workload.as_deref())?;
            let selection = selection(arguments.workload.as_deref(), &arguments.workload_namespace);
            let direction = arguments.direction.as_deref();
            ask.view(&arguments.view, &dump.states(&selection), || {
                summary::connections(&dump, &selection, direction, arguments.raw)
            })
        }
        Command::Log(arguments) => ask.log(arguments),
        Command::Policy(arguments) => {
            let dump = ask.dump(&arguments.view, None)?;
            let policies = dump.policies(&arguments.policy_namespace);
            ask.view(&arguments.view, &policies, || summary::policies(&policies))
        }
        Command::Service(arguments) => {
            let dump = ask.dump(&arguments.view, None)?;
            let services = dump.services(&arguments.service_namespace);
            ask.view(&arguments.view, &services, || summary::services(&dump, &services))
        }
        Command::Workload(arguments) => {
            let dump = ask.dump(&arguments.view, arguments.workload.as_deref())?;
            let selection = Selection {
                address: &arguments.address,
                node: &arguments.workload_node,
                ..selection(arguments.workload.as_deref(), &arguments.workload_namespace)
            };
            let workloads = dump.workloads(&selection);
            ask.view(&arguments.view, &workloads, || summary::workloads(&dump, &workloads))
        }
    }
}

/// The workload that a user means: the namespace after the last dot counts unless another is given.
fn selection<'a>(workload: Option<&'a str>, namespace: &'a str) -> Selection<'a> {
    let (_, name, namespace) = target::split(workload.unwrap_or_default(), namespace);
    Selection { name, namespace, ..Selection::default() }
}

struct Ask<'a> {
    global: &'a Global,
    kube: &'a KubeArguments,
}

impl Ask<'_> {
    fn view<T: Serialize>(
        &self,
        view: &View,
        records: &T,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        Ok(match view.output.as_str() {
            "json" => indented(records)?,
            "yaml" => yaml::node_to_string(&Node::from(serde_json::to_value(records)?)),
            _ => table(),
        })
    }

    fn dump(&self, view: &View, workload: Option<&str>) -> anyhow::Result<Dump> {
        let bytes = match (&view.file, &view.admin_address) {
            (Some(file), _) => self.access(view).get(&Source::File(file), "")?,
            (None, Some(address)) => self.access(view).get(&Source::Address(address), "/config_dump")?,
            (None, None) => self.ask_node(view, workload)?,
        };
        Dump::parse(&bytes)
    }

    fn access<'a>(&'a self, view: &View) -> Access<'a> {
        Access { global: self.global, kube: self.kube, port: view.proxy_admin_port, address: None }
    }

    /// The dump of the ztunnel beside a workload, of a node, or of any.
    fn ask_node(&self, view: &View, workload: Option<&str>) -> anyhow::Result<Vec<u8>> {
        let cluster = Cluster::connect(self.kube)?;
        let node = match (&view.node, workload) {
            (Some(node), _) => Some(node.clone()),
            (None, Some(workload)) => {
                let (pod, namespace) = target::pod(&cluster, workload, &self.global.namespace)?;
                let pod = cluster.find(Kind::Pod, &namespace, &pod)?;
                pod.pointer("/spec/nodeName").and_then(Node::as_str).map(str::to_owned)
            }
            (None, None) => None,
        };
        let namespace = &self.global.istio_namespace;
        let pods = cluster.list(Kind::Pod, namespace)?;
        let text = |pod: &Node, pointer: &str| pod.pointer(pointer).and_then(Node::as_str).map(str::to_owned);
        let found = pods.iter().find(|pod| {
            text(pod, "/metadata/labels/app").as_deref() == Some("ztunnel")
                && node.as_ref().is_none_or(|node| text(pod, "/spec/nodeName").as_ref() == Some(node))
        });
        let Some(pod) = found.and_then(name_of) else {
            match node {
                Some(node) => {
                    bail!("no ztunnel runs on node {node} (pods labelled app=ztunnel in {namespace})")
                }
                None => bail!("no pods labelled app=ztunnel in {namespace}; name a dump by --file"),
            }
        };
        Ok(cluster.ask_pod(namespace, &pod, view.proxy_admin_port, Method::GET, "/config_dump")?.to_vec())
    }

    fn log(&self, arguments: &LogArguments) -> anyhow::Result<String> {
        let path = match (&arguments.level, arguments.reset) {
            (_, true) => "/logging?reset".to_owned(),
            (Some(level), false) => format!("/logging?level={}", crate::daemon::escaped(level)),
            (None, false) => "/logging".to_owned(),
        };
        let access = self.access(&arguments.view);
        let answer = match (&arguments.ztunnel, &arguments.view.admin_address) {
            (_, Some(address)) => access.ask_address(address, Method::POST, &path)?,
            (Some(ztunnel), None) => {
                let global = Global {
                    namespace: self.global.istio_namespace.clone(),
                    istio_namespace: self.global.istio_namespace.clone(),
                };
                let access = Access { global: &global, ..access };
                access.ask_proxy(ztunnel, Method::POST, &path)?
            }
            (None, None) => bail!("name a ztunnel pod, or an address by --admin-address"),
        };
        String::from_utf8(answer).context("ztunnel's answer is no text")
    }
}

/// JSON indented by four spaces, as Istio's tools print it.
fn indented<T: Serialize>(records: &T) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    records.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))?;
    bytes.push(b'\n');
    Ok(String::from_utf8(bytes)?)
}
