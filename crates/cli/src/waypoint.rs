//! `canopus waypoint`: waypoints are Gateways of the class `istio-waypoint`; these commands write, list and delete them.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_base::tree::Node;
use canopus_base::yaml;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cluster::{Cluster, KubeArguments, Refusal, name_of, object_path};
use crate::exit;
use crate::global::Global;
use crate::input::go_duration;
use crate::output::{print, say};
use crate::table::{aligned, row};

const CLASS: &str = "istio-waypoint";
const USE_WAYPOINT: &str = "istio.io/use-waypoint";
const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
const WAYPOINT_FOR: &str = "istio.io/waypoint-for";
const REVISION: &str = "istio.io/rev";

/// How often the status of a waypoint is looked at.
const POLL: Duration = Duration::from_millis(250);

/// Manage waypoints.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canopus waypoint apply -n shop --enroll-namespace --wait    a waypoint for everything in a namespace
  canopus waypoint generate --for service                     the object, for a repository
  canopus waypoint list -A
  canopus waypoint delete waypoint -n shop

Exit codes: 0 done, 1 the cluster refuses or a waypoint is not ready in time, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Name of the waypoint.
    #[arg(long, global = true, value_name = "NAME", default_value = "waypoint")]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Apply a waypoint to the cluster.
    Apply(ApplyArguments),
    /// Delete waypoints from the cluster.
    Delete(DeleteArguments),
    /// Print a waypoint as YAML.
    Generate(Shape),
    /// List waypoints.
    List {
        /// List the waypoints of all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// Print whether waypoints are programmed.
    Status(StatusArguments),
}

/// What is asked of a waypoint.
#[derive(Args, Debug)]
struct Shape {
    /// Traffic that goes through the waypoint: all, none, service or workload.
    #[arg(long = "for", value_name = "TYPE", default_value = "", hide_default_value = true)]
    traffic: String,
    /// Revision of the control plane that looks after the waypoint.
    #[arg(short, long, value_name = "REVISION", default_value = "", hide_default_value = true)]
    revision: String,
}

#[derive(Args, Debug)]
struct ApplyArguments {
    #[command(flatten)]
    shape: Shape,
    /// Label the namespace, so that its traffic goes through the waypoint.
    #[arg(long)]
    enroll_namespace: bool,
    /// Replace the waypoint that the namespace uses.
    #[arg(long)]
    overwrite: bool,
    /// Wait until the waypoint is programmed.
    #[arg(short, long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "1m30s", value_parser = go_duration)]
    waypoint_timeout: Duration,
}

#[derive(Args, Debug)]
struct DeleteArguments {
    /// Names of waypoints.
    names: Vec<String>,
    /// Delete all waypoints of the namespace.
    #[arg(long)]
    all: bool,
    /// Delete the waypoints of this revision.
    #[arg(short, long, value_name = "REVISION", default_value = "", hide_default_value = true)]
    revision: String,
}

#[derive(Args, Debug)]
struct StatusArguments {
    /// Print the waypoints of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Wait until they are programmed.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "1m30s", value_parser = go_duration)]
    waypoint_timeout: Duration,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let name = arguments.name.as_str();
    let done = match &arguments.command {
        Command::Apply(apply) => self::apply(global, kube, name, apply),
        Command::Delete(delete) => self::delete(global, kube, delete),
        Command::Generate(shape) => {
            gateway(name, &global.namespace, shape).map(|gateway| yaml::node_to_string(&Node::from(gateway)))
        }
        Command::List { all_namespaces } => list(global, kube, *all_namespaces),
        Command::Status(status) => self::status(global, kube, status),
    };
    match done {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// The waypoint as an object; without a namespace if none is given.
fn gateway(name: &str, namespace: &str, shape: &Shape) -> anyhow::Result<Value> {
    const TRAFFIC: [&str; 4] = ["all", "none", "service", "workload"];
    if name == "none" {
        bail!("failed to create gateway: invalid name provided for waypoint, 'none' is a reserved value");
    }
    let traffic = shape.traffic.as_str();
    if !traffic.is_empty() && !TRAFFIC.contains(&traffic) {
        bail!(
            "failed to create gateway: invalid traffic type: {traffic}. Valid options are: [{}]",
            TRAFFIC.join(" ")
        );
    }
    let labels: serde_json::Map<String, Value> =
        [(REVISION, shape.revision.as_str()), (WAYPOINT_FOR, traffic)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .collect();
    let mut metadata = json!({"name": name});
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    Ok(json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": metadata,
        "spec": {
            "gatewayClassName": CLASS,
            "listeners": [{"name": "mesh", "port": 15008, "protocol": "HBONE"}],
        },
    }))
}

fn apply(
    global: &Global,
    kube: &KubeArguments,
    name: &str,
    arguments: &ApplyArguments,
) -> anyhow::Result<String> {
    let cluster = Cluster::connect(kube)?;
    let namespace = cluster.namespace(&global.namespace);
    let found = cluster.get(&object_path(Kind::Namespace, "", &namespace))?;
    let found = found.with_context(|| format!("namespace: {namespace} not found"))?;
    let mut text = String::new();
    if arguments.enroll_namespace {
        if label(&found, USE_WAYPOINT).is_some_and(|used| !used.is_empty()) && !arguments.overwrite {
            return Ok(format!(
                "⚠️ Warning: namespace ({namespace}) already has an enrolled Waypoint. Consider adding the `--overwrite` flag to your apply command.\n"
            ));
        }
        if label(&found, DATAPLANE_MODE).as_deref() != Some("ambient") {
            text.push_str(&format!(
                "⚠️ Warning: namespace is not enrolled in ambient. Consider running\t`kubectl label namespace {namespace} istio.io/dataplane-mode=ambient`\n"
            ));
        }
    }
    let gateway = gateway(name, &namespace, &arguments.shape)?;
    let path = object_path(Kind::KubernetesGateway, &namespace, name);
    cluster.apply(&path, &gateway).map_err(|error| match error.downcast_ref::<Refusal>() {
        Some(refusal) if refusal.code == 404 => {
            error.context("missing Kubernetes Gateway CRDs need to be installed before applying a waypoint")
        }
        _ => error,
    })?;
    text.push_str(&format!("✅ waypoint {namespace}/{name} applied\n"));
    if arguments.wait {
        let start = Instant::now();
        while !cluster.get(&path)?.is_some_and(|gateway| is_programmed(&gateway)) {
            if start.elapsed() > arguments.waypoint_timeout {
                // What was done is said, though it is not ready.
                print(&text, ExitCode::SUCCESS);
                bail!("timed out while waiting for waypoint\t{namespace}/{name}");
            }
            thread::sleep(POLL);
        }
        text.push_str(&format!("✅ waypoint {namespace}/{name} is ready!\n"));
    }
    if arguments.enroll_namespace {
        let fields = json!({"metadata": {"labels": {USE_WAYPOINT: name}}});
        cluster
            .merge(&object_path(Kind::Namespace, "", &namespace), &fields)
            .context("failed to label namespace with waypoint")?;
        text.push_str(&format!("✅ namespace {namespace} labeled with \"{USE_WAYPOINT}: {name}\"\n"));
    }
    Ok(text)
}

fn delete(global: &Global, kube: &KubeArguments, arguments: &DeleteArguments) -> anyhow::Result<String> {
    let by_selection = arguments.all || !arguments.revision.is_empty();
    if by_selection && !arguments.names.is_empty() {
        bail!("cannot specify waypoint names when deleting all waypoints");
    }
    if !by_selection && arguments.names.is_empty() {
        bail!(
            "must specify a waypoint name or delete all using --all or delete specific revision using --revision"
        );
    }
    let cluster = Cluster::connect(kube)?;
    let namespace = cluster.namespace(&global.namespace);
    let waypoints = waypoints(&cluster, &namespace)?.1;
    let is_meant = |waypoint: &&Node| {
        arguments.revision.is_empty() || label(waypoint, REVISION).as_deref() == Some(&arguments.revision)
    };
    let known: Vec<String> = waypoints.iter().filter(is_meant).filter_map(name_of).collect();
    let names = if by_selection { &known } else { &arguments.names };
    let mut text = String::new();
    for name in names {
        let path = object_path(Kind::KubernetesGateway, &namespace, name);
        let is_deleted = known.contains(name) && cluster.delete(&path)?;
        let what = if is_deleted { "deleted" } else { "not found" };
        text.push_str(&format!("waypoint {namespace}/{name} {what}\n"));
    }
    Ok(text)
}

fn list(global: &Global, kube: &KubeArguments, all_namespaces: bool) -> anyhow::Result<String> {
    let cluster = Cluster::connect(kube)?;
    let namespace = if all_namespaces { String::new() } else { cluster.namespace(&global.namespace) };
    let (are_any, waypoints) = waypoints(&cluster, &namespace)?;
    if !are_any {
        return Ok("No waypoints found.\n".to_owned());
    }
    let mut rows = vec![row(["NAMESPACE", "NAME", "REVISION", "TRAFFIC TYPE", "PROGRAMMED"])];
    for waypoint in &waypoints {
        let or = |label: Option<String>, default: &str| {
            label.filter(|label| !label.is_empty()).unwrap_or_else(|| default.to_owned())
        };
        let programmed = conditions(waypoint).find(|condition| text(condition, "type") == "Programmed");
        rows.push(vec![
            text_at(waypoint, "/metadata/namespace"),
            name_of(waypoint).unwrap_or_default(),
            or(label(waypoint, REVISION), "default"),
            or(label(waypoint, WAYPOINT_FOR), "none"),
            programmed.map_or("False", |condition| text(condition, "status")).to_owned(),
        ]);
    }
    Ok(without_namespace(rows, all_namespaces))
}

fn status(global: &Global, kube: &KubeArguments, arguments: &StatusArguments) -> anyhow::Result<String> {
    let cluster = Cluster::connect(kube)?;
    let all = arguments.all_namespaces;
    let namespace = if all { String::new() } else { cluster.namespace(&global.namespace) };
    let (are_any, waypoints) = waypoints(&cluster, &namespace)?;
    if !are_any {
        return Ok("No waypoints found.\n".to_owned());
    }
    let mut rows = vec![row(["NAMESPACE", "NAME", "STATUS", "TYPE", "REASON", "MESSAGE"])];
    let start = Instant::now();
    for waypoint in waypoints {
        let namespace = text_at(&waypoint, "/metadata/namespace");
        let name = name_of(&waypoint).unwrap_or_default();
        let path = object_path(Kind::KubernetesGateway, &namespace, &name);
        let mut waypoint = waypoint;
        while arguments.wait && !is_programmed(&waypoint) {
            if start.elapsed() > arguments.waypoint_timeout {
                bail!(
                    "failed to print waypoint status: timed out while retrieving status for waypoint\t{namespace}/{name}"
                );
            }
            thread::sleep(POLL);
            waypoint = cluster.get(&path)?.with_context(|| format!("waypoint {namespace}/{name} is gone"))?;
        }
        let programmed = conditions(&waypoint)
            .find(|condition| text(condition, "type") == "Programmed" && text(condition, "status") == "True");
        let shown = programmed.or_else(|| conditions(&waypoint).last());
        let field = |key: &str| shown.map_or("", |condition| text(condition, key)).to_owned();
        rows.push(vec![namespace, name, field("status"), field("type"), field("reason"), field("message")]);
    }
    Ok(without_namespace(rows, all))
}

/// The table, without its first column unless several namespaces are listed.
fn without_namespace(rows: Vec<Vec<String>>, with_namespace: bool) -> String {
    let from = usize::from(!with_namespace);
    let rows: Vec<&[String]> = rows.iter().map(|row| &row[from..]).collect();
    aligned(&rows, 5)
}

/// Whether there are Gateways at all, and the waypoints among them by namespace and name.
fn waypoints(cluster: &Cluster, namespace: &str) -> anyhow::Result<(bool, Vec<Node>)> {
    let mut found = cluster.list(Kind::KubernetesGateway, namespace)?;
    let are_any = !found.is_empty();
    found.retain(|gateway| text_at(gateway, "/spec/gatewayClassName") == CLASS);
    found.sort_by_cached_key(|gateway| (text_at(gateway, "/metadata/namespace"), name_of(gateway)));
    Ok((are_any, found))
}

fn is_programmed(gateway: &Node) -> bool {
    conditions(gateway)
        .any(|condition| text(condition, "type") == "Programmed" && text(condition, "status") == "True")
}

fn conditions(object: &Node) -> impl Iterator<Item = &Node> {
    object.pointer("/status/conditions").and_then(Node::as_list).into_iter().flatten()
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Node::as_str).unwrap_or_default()
}

fn text_at(node: &Node, pointer: &str) -> String {
    node.pointer(pointer).and_then(Node::as_str).unwrap_or_default().to_owned()
}

fn label(object: &Node, name: &str) -> Option<String> {
    object.pointer("/metadata/labels")?.get(name)?.as_str().map(str::to_owned)
}
