//! `canopus proxy-config`: what an Envoy has, as it says itself; from a pod, an address, a file or standard input.

mod bootstrap;
pub(crate) mod cluster;
pub(crate) mod dump;
mod ecds;
pub(crate) mod endpoint;
mod listener;
mod log;
mod matcher;
pub(crate) mod render;
mod root_certificate;
mod route;
pub(crate) mod secret;
mod status;
pub(crate) mod target;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::cluster::KubeArguments;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::persona::Persona;
use dump::ConfigDump;
use render::Format;
use target::{Access, Source};

/// Look at the configuration that an Envoy has.
#[derive(Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  canopus proxy-config clusters productpage-v1-7c4.bookinfo
  canopus proxy-config listeners deployment/productpage-v1 --port 9080 -o json
  canopus proxy-config routes --proxy-address 10.0.0.9:15000
  ssh vm curl -s localhost:15000/config_dump | canopus proxy-config endpoints -f -

Exit codes: 0 printed, 1 the proxy or file could not be read, 64 the command line makes no sense."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Port of Envoy's administration interface.
    #[arg(long, global = true, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
    /// Address of Envoy's administration interface, for proxies outside Kubernetes.
    #[arg(long, global = true, value_name = "HOST:PORT")]
    proxy_address: Option<String>,
}

/// Where the configuration is read from and how it is printed.
#[derive(Args, Debug)]
struct View {
    /// The proxy: `pod`, `pod.namespace` or `deployment/name.namespace`.
    proxy: Option<String>,
    /// A configuration dump, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Output format: json, yaml or short.
    #[arg(short, long, default_value = "short")]
    output: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that an Envoy has.
    #[command(visible_alias = "a")]
    All(AllArguments),
    /// What an Envoy started with.
    #[command(visible_alias = "b")]
    Bootstrap(View),
    /// Clusters: where an Envoy can send requests.
    #[command(visible_aliases = ["clusters", "c"])]
    Cluster(ClusterArguments),
    /// Extension configurations.
    #[command(visible_aliases = ["e"])]
    Ecds(View),
    /// Endpoints of clusters, with their health.
    #[command(visible_aliases = ["endpoints", "ep"])]
    Endpoint(EndpointArguments),
    /// Endpoints as the control plane sent them.
    #[command(visible_aliases = ["edss"])]
    Eds(EndpointArguments),
    /// Listeners and what their filter chains lead to.
    #[command(visible_aliases = ["listeners", "l"])]
    Listener(ListenerArguments),
    /// Log levels, and changing them.
    #[command(visible_alias = "o")]
    Log(log::Arguments),
    /// Whether two proxies trust the same roots.
    #[command(name = "rootca-compare", visible_alias = "rc")]
    RootcaCompare(root_certificate::Arguments),
    /// Routes by virtual host.
    #[command(visible_aliases = ["routes", "r"])]
    Route(RouteArguments),
    /// Certificates.
    #[command(visible_aliases = ["secrets", "s"])]
    Secret(View),
}

#[derive(Args, Debug)]
struct ClusterArguments {
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    filter: cluster::Filter,
}

#[derive(Args, Debug)]
struct EndpointArguments {
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    filter: endpoint::Filter,
}

#[derive(Args, Debug)]
struct ListenerArguments {
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    filter: listener::Filter,
    /// Print matches and destinations.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    verbose: bool,
    /// Print the chains of a waypoint.
    #[arg(long, hide = true)]
    waypoint: bool,
}

#[derive(Args, Debug)]
struct RouteArguments {
    #[command(flatten)]
    view: View,
    /// Only the route configuration of this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print virtual hosts and matches.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    verbose: bool,
}

#[derive(Args, Debug)]
struct AllArguments {
    #[command(flatten)]
    view: View,
    /// Print a title before each table.
    #[arg(long)]
    with_headers: bool,
    /// Print matches, destinations and virtual hosts.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    verbose: bool,
    /// Only clusters whose name contains this host.
    #[arg(long, value_name = "HOST")]
    fqdn: Option<String>,
    /// Only clusters of this direction.
    #[arg(long, value_name = "DIRECTION")]
    direction: Option<String>,
    /// Only clusters of this subset.
    #[arg(long, value_name = "SUBSET")]
    subset: Option<String>,
    /// Only clusters, listeners and endpoints of this port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u32,
    /// Only listeners and endpoints of this address.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Only listeners of this type: HTTP, TCP or HTTP+TCP.
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// Only the route configuration of this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
) -> ExitCode {
    let access = Access {
        global,
        kube,
        port: arguments.proxy_admin_port,
        address: arguments.proxy_address.as_deref(),
    };
    let printed = match &arguments.command {
        Command::All(arguments) => all(&access, arguments),
        Command::Bootstrap(view) => {
            view_dump(&access, view, "bootstrap", "?mask=bootstrap", |dump, format| {
                bootstrap::print(dump, format)
            })
        }
        Command::Cluster(ClusterArguments { view, filter }) => {
            const MASK: &str = "?mask=dynamic_active_clusters,dynamic_warming_clusters,static_clusters";
            view_dump(&access, view, "cluster", MASK, |dump, format| cluster::print(dump, filter, format))
        }
        Command::Ecds(view) => view_dump(&access, view, "ecds", "?resource=ecds_filters", ecds::print),
        Command::Endpoint(EndpointArguments { view, filter }) => status::print(&access, view, filter),
        Command::Eds(EndpointArguments { view, filter }) => {
            view_dump(&access, view, "eds", "?include_eds=true", |dump, format| {
                endpoint::print(dump, filter, format)
            })
        }
        Command::Listener(ListenerArguments { view, filter, verbose, waypoint }) => view_dump(
            &access,
            view,
            "listener",
            "?mask=dynamic_listeners,static_listeners",
            |dump, format| {
                if *waypoint {
                    listener::waypoint(dump)
                } else {
                    listener::print(dump, filter, *verbose, format)
                }
            },
        ),
        Command::Log(arguments) => log::run(&access, arguments),
        Command::RootcaCompare(arguments) => root_certificate::compare(&access, arguments),
        Command::Route(RouteArguments { view, name, verbose }) => {
            const MASK: &str = "?mask=dynamic_route_configs,static_route_configs";
            view_dump(&access, view, "route", MASK, |dump, format| {
                route::print(dump, name.as_deref(), *verbose, format)
            })
        }
        Command::Secret(view) => {
            const MASK: &str = "?mask=dynamic_active_secrets,dynamic_warming_secrets";
            view_dump(&access, view, "secret", MASK, secret::print)
        }
    };
    match printed {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => {
            // Parity: istioctl prints how the command is used before it says what is missing.
            let usage = match error.downcast_ref::<NoSource>() {
                Some(NoSource(command)) if persona == Persona::Istioctl => format!(
                    "Usage:\n  istioctl proxy-config {command} [<type>/]<name>[.<namespace>] [flags]\n\n"
                ),
                _ => String::new(),
            };
            say(&format!("{usage}Error: {error:#}\n"), exit::FAILURE)
        }
    }
}

/// A command line names neither a proxy nor a file.
#[derive(Debug, thiserror::Error)]
#[error("{0} requires pod name or --file parameter")]
struct NoSource(String);

impl View {
    fn source<'a>(&'a self, access: &'a Access<'_>, command: &str) -> anyhow::Result<Source<'a>> {
        match (&self.proxy, &self.file, access.address) {
            (Some(proxy), None, None) => Ok(Source::Proxy(proxy)),
            (None, Some(file), None) => Ok(Source::File(file)),
            (None, None, Some(address)) => Ok(Source::Address(address)),
            _ => bail!(NoSource(command.to_owned())),
        }
    }

    fn format(&self) -> anyhow::Result<Format> {
        Format::parse(&self.output)
    }
}

/// Reads a configuration dump and prints a part of it.
fn view_dump(
    access: &Access<'_>,
    view: &View,
    command: &str,
    query: &str,
    print: impl FnOnce(&ConfigDump, Format) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let text = access.get(&view.source(access, command)?, &format!("/config_dump{query}"))?;
    print(&ConfigDump::parse(&text)?, view.format()?)
}

fn all(access: &Access<'_>, arguments: &AllArguments) -> anyhow::Result<String> {
    let text = access.get(&arguments.view.source(access, "all")?, "/config_dump?include_eds=true")?;
    match arguments.view.format()? {
        Format::Json => return Ok(format!("{}\n", String::from_utf8_lossy(&text))),
        Format::Yaml => return render::json_to_yaml(&text),
        Format::Short => {}
    }
    let dump = ConfigDump::parse(&text)?;
    let clusters = cluster::Filter {
        fqdn: arguments.fqdn.clone(),
        direction: arguments.direction.clone(),
        subset: arguments.subset.clone(),
        port: arguments.port,
    };
    let listeners = listener::Filter {
        address: arguments.address.clone(),
        port: arguments.port,
        r#type: arguments.r#type.clone(),
    };
    let endpoints = endpoint::Filter {
        address: arguments.address.clone(),
        port: arguments.port,
        ..endpoint::Filter::default()
    };
    let parts = [
        ("BOOTSTRAP INFO", bootstrap::summary(&dump)?),
        ("CLUSTER INFO", cluster::summary(&dump, &clusters, true)?),
        ("LISTENER INFO", listener::summary(&dump, &listeners, arguments.verbose, true)?),
        ("ROUTE INFO", route::summary(&dump, arguments.name.as_deref(), arguments.verbose, true)?),
        ("SECRET INFO", secret::summary(&dump, true)?),
        ("ENDPOINTS INFO", endpoint::summary(&dump, &endpoints, true)?),
    ];
    let titled = parts.map(|(title, text)| match arguments.with_headers {
        true => format!("------ {title} ------\n\n{text}"),
        false => text,
    });
    Ok(titled.join("\n"))
}
