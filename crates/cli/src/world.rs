//! `canopus world`: what objects add up to, and which objects are behind it; of files, or of a running control plane.

mod table;

use std::process::ExitCode;

use anyhow::Context as _;
use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_engine::{Engine, Options};
use canopus_envoy::bundle::Bundle;
use canopus_mesh::dump::{self, DumpSelection};
use canopus_mesh::proxy::Proxy;
use clap::ValueEnum;
use serde_json::Value;

use crate::files::FileArguments;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy::ProxyArguments;
use crate::{daemon, exit, files};

/// How many results are kept so that dependents can be told: those of one proxy in a large mesh.
const KEPT_RESULTS: usize = 1 << 20;

/// Print what the objects in files, or those of a running control plane, add up to.
///
/// Services with their endpoints and, if a proxy is named, what that proxy sees and which policies are for it. Every fact
/// has the objects behind it: those that were read to find it. Services are those of `--namespace`, or of all namespaces.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus world -f mesh/
  canopus world -f mesh/ --service reviews -n bookinfo -o yaml
  canopus world -f mesh/ --pod productpage-v1-7c4.bookinfo
  canopus world -f mesh/ --pod productpage-v1-7c4.bookinfo --service reviews --dependents -o json
  canopus world --daemon http://localhost:8080 --pod productpage-v1-7c4.bookinfo

Exit codes: 0 printed, 1 something could not be read or there is no such service or proxy,
64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Ask a running control plane instead of reading files: the address of its debug port. A proxy is then one that is
    /// connected, named by `--pod`.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    daemon: Option<String>,
    #[command(flatten)]
    files: FileArguments,
    /// Only services of this host: in full, as a wildcard such as `*.example.com`, or a short name.
    #[arg(long, value_name = "HOST")]
    service: Option<String>,
    /// Also say what depends on each service: all that would be looked at again if its object changed.
    #[arg(long)]
    dependents: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    proxy: ProxyArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> ExitCode {
    match look(global, arguments) {
        Ok((text, problems)) => {
            let code = if problems.is_empty() { ExitCode::SUCCESS } else { exit::FAILURE };
            let words: String = problems.iter().map(|problem| format!("Error: {problem}\n")).collect();
            match say(&words, ExitCode::SUCCESS) {
                ExitCode::SUCCESS => print(&text, code),
                failure => failure,
            }
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// What is printed, and what people should know.
fn look(global: &Global, arguments: &Arguments) -> anyhow::Result<(String, Vec<String>)> {
    let (found, mut problems) = match &arguments.daemon {
        Some(url) => (fetch_from_daemon(global, arguments, url)?, Vec::new()),
        None => dump_files(global, arguments)?,
    };
    let is_empty = found["services"].as_array().is_none_or(Vec::is_empty);
    if let (Some(wanted), true) = (&arguments.service, is_empty) {
        problems.push(format!("there is no service {wanted}{}", place(global, arguments)));
    }
    Ok((render(&found, arguments.output), problems))
}

/// What the objects in files add up to, and what is wrong with them.
fn dump_files(global: &Global, arguments: &Arguments) -> anyhow::Result<(Value, Vec<String>)> {
    let mut world = files::read(global, &arguments.files)?;
    let proxy = if arguments.proxy.are_given() {
        let (node, identity) = arguments.proxy.node(global, &world)?;
        Some(Proxy::new(&node, Some(identity)).context("the proxy's node")?)
    } else {
        None
    };
    let engine = Engine::with_options(Options { idle: KEPT_RESULTS, ..Options::default() });
    engine.apply(std::mem::take(&mut world.batch));
    if let Some(proxy) = proxy.as_ref().filter(|_| arguments.dependents) {
        // Only what was evaluated is known to depend on something.
        Bundle::generate(&engine.snapshot(), proxy)?;
    }
    let selection = DumpSelection {
        service: arguments.service.clone(),
        namespace: namespace(global).map(str::to_owned),
        proxy,
        dependents: arguments.dependents,
    };
    Ok((serde_json::to_value(dump::dump_mesh(&engine, &selection)?)?, world.problems))
}

/// What a control plane says.
fn fetch_from_daemon(global: &Global, arguments: &Arguments, url: &str) -> anyhow::Result<Value> {
    let proxy = arguments.proxy.connected(global)?;
    let mut parameters = Vec::new();
    parameters.extend(arguments.service.as_deref().map(|service| ("service", service)));
    parameters.extend(namespace(global).map(|namespace| ("namespace", namespace)));
    parameters.extend(proxy.as_deref().map(|proxy| ("proxyID", proxy)));
    parameters.extend(arguments.dependents.then_some(("dependents", "true")));
    daemon::ask(url, "/debug/world", &parameters)
}

/// The namespace whose services are wanted.
fn namespace(global: &Global) -> Option<&str> {
    Some(global.namespace.as_str()).filter(|namespace| !namespace.is_empty())
}

fn place(global: &Global, arguments: &Arguments) -> String {
    let namespace = namespace(global).map(|namespace| format!(" in namespace {namespace}"));
    let seen = arguments.proxy.are_given().then(|| " that the proxy sees".to_owned());
    namespace.into_iter().chain(seen).collect()
}

fn render(world: &Value, format: Format) -> String {
    match format {
        Format::Table => table::render(world),
        Format::Json => format!("{world:#}\n"),
        Format::Yaml => yaml::node_to_string(&Node::from(world.clone())),
    }
}
