//! `canopus proxy-status`: how far each proxy is, and whether one has what the control plane has for it.

mod compare;
pub(crate) mod status;

use std::process::ExitCode;

use anyhow::bail;
use canopus_base::tree::Node;

use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::dump::ConfigDump;
use crate::proxy_config::target::{Access, Source};
use crate::xds::{self, XdsArguments};

pub use status::render;

/// List the proxies of the mesh with what they have acknowledged, or compare one with the control plane.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus proxy-status                             all proxies
  canopus proxy-status -n shop -v 1                those of a namespace, type by type
  canopus proxy-status cart-1.shop                 what the proxy has against what the control plane has for it
  canopus proxy-status cart-1.shop --file dump.json
  canopus proxy-status --xds-address istiod.example.com:15012 --cert-dir /etc/certs   without Kubernetes

Exit codes: 0 printed, 1 the control plane or the proxy does not answer, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// A proxy to compare with the control plane.
    proxy: Option<String>,
    /// The proxy's configuration dump, instead of asking it.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// What the control plane has for the proxy (its `/debug/config_dump`), instead of asking it.
    #[arg(long, value_name = "FILE", requires = "file")]
    control_plane_file: Option<String>,
    /// Output format: table, json or yaml.
    #[arg(short, long, default_value = "table")]
    output: String,
    /// 1 prints the state of each type.
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// Port of Envoy's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
    #[command(flatten)]
    xds: XdsArguments,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let printed = if arguments.proxy.is_some() || arguments.control_plane_file.is_some() {
        compared(global, kube, arguments)
    } else {
        list(global, kube, arguments)
    };
    match printed {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn list(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<String> {
    if !matches!(arguments.output.as_str(), "table" | "json" | "yaml") {
        bail!("output format {:?} not supported", arguments.output);
    }
    let responses = responses(global, kube, &arguments.xds, &arguments.control_plane)?;
    render(responses, &global.namespace, &arguments.output, arguments.verbosity > 0)
}

/// What the control planes say of all proxies: the one at an address, or all that run in the cluster.
pub(crate) fn responses(
    global: &Global,
    kube: &KubeArguments,
    xds: &XdsArguments,
    control_plane: &ControlPlaneArguments,
) -> anyhow::Result<Vec<Node>> {
    if xds.is_given() {
        return Ok(vec![xds.ask(global, kube, xds::SYNCZ)?]);
    }
    let planes = control_plane.connect_to(global, kube, xds.selector(), xds.revision())?;
    let answers = planes.ask_each("/debug/syncz", &[])?;
    Ok(answers.iter().map(|(name, answer)| status::response(name, answer)).collect())
}

fn compared(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<String> {
    let access = Access { global, kube, port: arguments.proxy_admin_port, address: None };
    let envoy = match (&arguments.file, &arguments.proxy) {
        (Some(file), _) => access.get(&Source::File(file), "")?,
        (None, Some(proxy)) => access.get(&Source::Proxy(proxy), "/config_dump")?,
        (None, None) => bail!("name a proxy, or its dump by --file"),
    };
    let own = match (&arguments.control_plane_file, &arguments.proxy) {
        (Some(file), _) => access.get(&Source::File(file), "")?,
        (None, Some(proxy)) => {
            let proxy =
                if proxy.contains('.') { proxy.clone() } else { format!("{proxy}.{}", global.namespace) };
            own_dump(global, kube, arguments, &proxy)?
        }
        (None, None) => bail!("name a proxy, or what the control plane has by --control-plane-file"),
    };
    compare::compare(&ConfigDump::parse(&own)?, &ConfigDump::parse(&envoy)?)
}

/// What the control plane has for a proxy.
fn own_dump(
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
    proxy: &str,
) -> anyhow::Result<Vec<u8>> {
    let xds = &arguments.xds;
    if xds.is_given() {
        let page = format!("config_dump?proxyID={proxy}");
        return xds.ask_page(global, kube, &page);
    }
    let planes = arguments.control_plane.connect_to(global, kube, xds.selector(), xds.revision())?;
    Ok(planes.ask("/debug/config_dump", &[("proxyID", proxy)])?.to_string().into_bytes())
}
