//! `canopus explain`: the way of a request through the very configuration that a proxy has.

pub(crate) mod request;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_envoy::simulate::{Config, End, Journey};
use canopus_proto::envoy::config::route::v3::Route;
use serde_json::{Value, json};

use crate::cluster::KubeArguments;
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::cluster::management;
use crate::proxy_config::dump::ConfigDump;
use crate::proxy_config::target::{Access, Source};
use request::Request;

/// Follow a request through the configuration of a proxy: listener, filter chain, route, cluster, endpoints.
///
/// Nothing is sent. The configuration is what the proxy itself dumps, so the answer is true of the bytes it runs on. The
/// way ends at the endpoints: what the proxy on the other side does with the request is not looked at.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus explain productpage-v1-7c4.bookinfo GET http://reviews:9080/x -H 'end-user: jason'
  canopus explain --proxy-address localhost:15000 GET http://reviews:9080/x
  canopus generate -f mesh/ --pod productpage-v1-7c4.bookinfo -o config_dump | canopus explain -f - GET http://reviews:9080/x

Exit codes: 0 the request goes to a cluster, is redirected or answered, 1 it goes nowhere or the proxy could not be read,
64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// The proxy (unless a dump or an address is given), the method and the URL.
    #[arg(value_name = "[PROXY] METHOD URL", num_args = 2..=3, required = true)]
    words: Vec<String>,
    /// A header of the request, as `name: value`; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The address that the host has for the client, where several listeners share a port.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<std::net::IpAddr>,
    /// The request arrives at the proxy instead of leaving through it.
    #[arg(long)]
    inbound: bool,
    /// A configuration dump, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Port of Envoy's administration interface in the pod.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
    /// Address of Envoy's administration interface, for proxies outside Kubernetes.
    #[arg(long, value_name = "HOST:PORT")]
    proxy_address: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match explain(global, kube, arguments) {
        Ok((answer, arrives)) => {
            let code = if arrives { ExitCode::SUCCESS } else { exit::FAILURE };
            print(&arguments.output.render(&answer, text), code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn explain(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<(Value, bool)> {
    let (proxy, method, url) = match arguments.words.as_slice() {
        [method, url] => (None, method, url),
        [proxy, method, url] => (Some(proxy.as_str()), method, url),
        _ => bail!("expected a proxy, a method and a URL"),
    };
    let request = Request::parse(method, url, &arguments.headers)?;
    let address = arguments.proxy_address.as_deref();
    let access = Access { global, kube, port: arguments.proxy_admin_port, address };
    let source = match (proxy, arguments.file.as_deref(), address) {
        (Some(proxy), None, None) => Source::Proxy(proxy),
        (None, Some(file), None) => Source::File(file),
        (None, None, Some(address)) => Source::Address(address),
        _ => bail!("name one proxy: PROXY, --file or --proxy-address"),
    };
    let dump = ConfigDump::parse(&access.get(&source, "/config_dump?include_eds=true")?)?;
    let routes = dump.routes().unwrap_or_default();
    let config = Config {
        listeners: dump.listeners()?,
        routes: routes.into_iter().map(|table| (table.name.clone(), table)).collect(),
    };
    let mut call = request.call(arguments.inbound);
    if let Some(to) = arguments.to {
        call.address = to;
    }
    let journey = config.follow(&call);
    let endpoints = endpoints(&dump)?;
    Ok((answer(&config, &journey, &endpoints), journey.end.is_ok()))
}

/// The addresses of each cluster, as far as the dump has them.
fn endpoints(dump: &ConfigDump) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let all = crate::proxy_config::endpoint::by_cluster(dump).context("endpoints of the dump")?;
    Ok(all.into_iter().collect())
}

/// The steps of a request for programs.
pub(crate) fn answer(config: &Config, journey: &Journey, endpoints: &BTreeMap<String, Vec<String>>) -> Value {
    let route = found_route(config, journey);
    let clusters: Vec<(String, Option<u32>)> = match &journey.end {
        Ok(End::Cluster(cluster)) => vec![(cluster.clone(), None)],
        Ok(End::Weighted(weighted)) => {
            weighted.iter().map(|(name, weight)| (name.clone(), Some(*weight))).collect()
        }
        _ => Vec::new(),
    };
    let clusters: Vec<Value> = clusters
        .into_iter()
        .map(|(name, weight)| json!({"name": name, "weight": weight, "endpoints": endpoints.get(&name)}))
        .collect();
    let outcome = match &journey.end {
        Ok(End::Cluster(_) | End::Weighted(_)) => "forwarded".to_owned(),
        Ok(End::ClusterHeader(header)) => format!("forwarded to the cluster that header {header} names"),
        Ok(End::Redirect(_)) => "redirected".to_owned(),
        Ok(End::Response(status)) => format!("answered with {status} by the proxy"),
        Ok(End::Nothing) => "ends in a filter that forwards nothing".to_owned(),
        Err(failure) => failure.to_string(),
    };
    json!({
        "listener": journey.listener,
        "filterChain": journey.filter_chain,
        "routeTable": journey.route_table,
        "virtualHost": journey.virtual_host,
        "route": journey.route,
        "object": route.map(|route| management(route.metadata.as_ref())).filter(|name| !name.is_empty()),
        "clusters": clusters,
        "outcome": outcome,
        "fails": journey.end.is_err(),
    })
}

/// The route that was taken. Its name is not unique, but routes of one name come from one object.
fn found_route<'a>(config: &'a Config, journey: &Journey) -> Option<&'a Route> {
    let table = config.routes.get(journey.route_table.as_ref()?)?;
    let host = table.virtual_hosts.iter().find(|host| Some(&host.name) == journey.virtual_host.as_ref())?;
    host.routes.iter().find(|route| Some(&route.name) == journey.route.as_ref())
}

fn text(answer: &Value) -> String {
    let mut text = String::new();
    for (title, key) in [
        ("listener", "listener"),
        ("filter chain", "filterChain"),
        ("route table", "routeTable"),
        ("virtual host", "virtualHost"),
        ("route", "route"),
        ("made from", "object"),
    ] {
        if let Some(value) = answer[key].as_str() {
            let value = if value.is_empty() { "(unnamed)" } else { value };
            let _ = writeln!(text, "{title:>13}  {value}");
        }
    }
    for cluster in answer["clusters"].as_array().into_iter().flatten() {
        let weight =
            cluster["weight"].as_u64().map(|weight| format!("  (weight {weight})")).unwrap_or_default();
        let _ = writeln!(text, "{:>13}  {}{weight}", "cluster", cluster["name"].as_str().unwrap_or_default());
        match cluster["endpoints"].as_array() {
            Some(endpoints) if endpoints.is_empty() => {
                let _ = writeln!(text, "{:>13}  none: such requests get 503 (UH)", "endpoints");
            }
            Some(endpoints) => {
                let listed: Vec<&str> = endpoints.iter().filter_map(Value::as_str).collect();
                let _ = writeln!(text, "{:>13}  {}", "endpoints", listed.join(", "));
            }
            None => {}
        }
    }
    let _ = writeln!(text, "{:>13}  {}", "outcome", answer["outcome"].as_str().unwrap_or_default());
    text
}
