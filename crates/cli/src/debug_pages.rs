//! `canopus experimental internal-debug`: a debug page of the control plane, and `envoy-stats`: numbers of a proxy.

use std::process::ExitCode;

use clap::Args;
use serde_json::Map;

use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::target::{Access, Source};
use crate::xds::XdsArguments;

/// Print a debug page of the control plane.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canopus experimental internal-debug --list        the pages there are
  canopus experimental internal-debug syncz
  canopus experimental internal-debug 'config_dump?proxyID=cart-1.shop'
  canopus experimental internal-debug --all adsz    what each control plane answers

Exit codes: 0 printed, 1 the control plane does not answer, 64 the command line makes no sense.")]
pub(crate) struct DebugArguments {
    /// The page, such as `syncz`.
    page: Option<String>,
    /// Ask every control plane of the cluster, and print what each answers.
    #[arg(long)]
    all: bool,
    /// List the pages there are.
    #[arg(short = 'L', long)]
    list: bool,
    #[command(flatten)]
    xds: XdsArguments,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn debug(global: &Global, kube: &KubeArguments, arguments: &DebugArguments) -> ExitCode {
    let page = match &arguments.page {
        _ if arguments.list => "list",
        Some(page) => page.as_str(),
        None => {
            let words =
                "Error: debug type is required, you can specify --list flag to list supported debug types\n";
            return say(words, exit::usage());
        }
    };
    match arguments.ask(global, kube, page) {
        Ok(answer) => print(&answer, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

impl DebugArguments {
    fn ask(&self, global: &Global, kube: &KubeArguments, page: &str) -> anyhow::Result<String> {
        if self.xds.is_given() {
            let body = self.xds.ask_page(global, kube, page)?;
            return Ok(format!("{}\n", String::from_utf8_lossy(&body)));
        }
        let (page, query) = page.split_once('?').unwrap_or((page, ""));
        let parameters: Vec<(&str, &str)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        let planes = self.control_plane.connect_to(global, kube, self.xds.selector(), self.xds.revision())?;
        let path = format!("/debug/{page}");
        let answer = if self.all {
            planes.ask_each(&path, &parameters)?.into_iter().collect::<Map<_, _>>().into()
        } else {
            planes.ask(&path, &parameters)?
        };
        Ok(format!("{answer:#}\n"))
    }
}

/// Print the numbers that an Envoy keeps.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canopus experimental envoy-stats cart-1.shop
  canopus experimental envoy-stats cart-1.shop --type clusters
  canopus experimental envoy-stats --admin-address 127.0.0.1:15000 -o prom")]
pub(crate) struct StatsArguments {
    /// The proxy: `pod`, `pod.namespace` or `deployment/name.namespace`.
    proxy: Option<String>,
    /// Which numbers: server or clusters.
    #[arg(short = 't', long = "type", default_value = "server", value_parser = ["server", "clusters"])]
    kind: String,
    /// Output format: short, json, prom, or prom-merged with the application's numbers.
    #[arg(short, long, default_value = "short", value_parser = ["short", "json", "prom", "prom-merged"])]
    output: String,
    /// Port of Envoy's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
    /// Address of an Envoy's administration interface, outside Kubernetes.
    #[arg(long = "admin-address", value_name = "HOST:PORT", conflicts_with = "proxy")]
    admin_address: Option<String>,
}

pub(crate) fn stats(global: &Global, kube: &KubeArguments, arguments: &StatsArguments) -> ExitCode {
    let (path, port) = match (arguments.kind.as_str(), arguments.output.as_str()) {
        (_, "prom-merged") => ("/stats/prometheus", 15020),
        (_, "prom") => ("/stats/prometheus", arguments.proxy_admin_port),
        ("clusters", "json") => ("/clusters?format=json", arguments.proxy_admin_port),
        ("clusters", _) => ("/clusters", arguments.proxy_admin_port),
        (_, "json") => ("/stats?format=json", arguments.proxy_admin_port),
        _ => ("/stats", arguments.proxy_admin_port),
    };
    let access = Access { global, kube, port, address: None };
    let source = match (&arguments.proxy, &arguments.admin_address) {
        (Some(proxy), _) => Source::Proxy(proxy),
        (None, Some(address)) => Source::Address(address),
        (None, None) => return say("Error: stats requires pod name or label selector\n", exit::FAILURE),
    };
    match access.get(&source, path) {
        Ok(answer) => print(&String::from_utf8_lossy(&answer), ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}
