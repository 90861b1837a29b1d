//! `canopus proxy-status`: how far each proxy is, and whether one has what the control plane has for it.

mod compare;

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::dump::ConfigDump;
use crate::proxy_config::render::{self, Format};
use crate::proxy_config::target::{Access, Source};
use crate::table::aligned;

/// The types in the order of the table, by their short names; others follow by name.
static TYPES: [(&str, &str); 4] = [
    ("CDS", "type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    ("LDS", "type.googleapis.com/envoy.config.listener.v3.Listener"),
    ("EDS", "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("RDS", "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
];

/// Short names of further types.
static FURTHER_TYPES: [(&str, &str); 6] = [
    ("ECDS", "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"),
    ("SDS", "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"),
    ("NDS", "type.googleapis.com/istio.networking.nds.v1.NameTable"),
    ("PCDS", "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"),
    ("WDS", "type.googleapis.com/istio.workload.Address"),
    ("WADS", "type.googleapis.com/istio.security.Authorization"),
];

/// List the proxies of the mesh with what they have acknowledged, or compare one with the control plane.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus proxy-status                             all proxies
  canopus proxy-status -n shop -v 1                those of a namespace, type by type
  canopus proxy-status cart-1.shop                 what the proxy has against what the control plane has for it
  canopus proxy-status cart-1.shop --file dump.json

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
    let format = match arguments.output.as_str() {
        "table" => Format::Short,
        "json" => Format::Json,
        "yaml" => Format::Yaml,
        other => bail!("output format {other:?} not supported"),
    };
    let plane = arguments.control_plane.connect(global, kube)?;
    let namespace = (!global.namespace.is_empty()).then_some(("namespace", global.namespace.as_str()));
    let answer = plane.ask("/debug/syncz", namespace.as_slice())?;
    Ok(match format {
        Format::Short => table(&answer, plane.name(), arguments.verbosity > 0),
        Format::Json | Format::Yaml => render::node(&answer.into(), format),
    })
}

/// What a proxy says of a type.
fn state(resource: &Value) -> &'static str {
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    if !text("lastError").is_empty() {
        return "ERROR";
    }
    match (text("sent"), text("acked")) {
        ("", _) => "NOT SENT",
        (sent, acked) if sent == acked => "SYNCED",
        _ => "STALE",
    }
}

fn short_name(type_url: &str) -> &str {
    let known = TYPES.iter().chain(&FURTHER_TYPES).find(|(_, known)| *known == type_url);
    known.map_or(type_url, |(name, _)| name)
}

fn table(answer: &Value, istiod: &str, verbose: bool) -> String {
    let mut proxies: Vec<&Value> = answer.as_array().into_iter().flatten().collect();
    proxies.sort_by(|a, b| a["proxy"].as_str().cmp(&b["proxy"].as_str()));
    let subscribed = |proxy: &Value| -> Vec<String> {
        proxy["resources"].as_object().into_iter().flat_map(|all| all.keys().cloned()).collect()
    };
    let all: std::collections::BTreeSet<String> =
        proxies.iter().flat_map(|proxy| subscribed(proxy)).collect();
    let text = |proxy: &Value, key: &str| proxy[key].as_str().unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    if verbose {
        let known = TYPES.iter().chain(&FURTHER_TYPES[..1]).map(|(_, type_url)| (*type_url).to_owned());
        let columns: std::collections::BTreeSet<String> = all.into_iter().chain(known).collect();
        let mut header = vec!["NAME".to_owned(), "CLUSTER".to_owned()];
        header.extend(columns.iter().map(|type_url| short_name(type_url).to_owned()));
        header.extend(["ISTIOD".to_owned(), "VERSION".to_owned()]);
        rows.push(header);
        for proxy in proxies {
            let mut line = vec![text(proxy, "proxy"), text(proxy, "cluster_id")];
            line.extend(columns.iter().map(|type_url| match proxy["resources"].get(type_url) {
                Some(resource) => state(resource).to_owned(),
                None => "IGNORED".to_owned(),
            }));
            line.extend([istiod.to_owned(), text(proxy, "istio_version")]);
            rows.push(line);
        }
        return aligned(&rows, 5);
    }
    rows.push(["NAME", "CLUSTER", "ISTIOD", "VERSION", "SUBSCRIBED TYPES"].map(str::to_owned).to_vec());
    for proxy in proxies {
        let own = subscribed(proxy);
        let core = TYPES.iter().map(|(_, type_url)| (*type_url).to_owned());
        let further = all.iter().filter(|type_url| !TYPES.iter().any(|(_, core)| core == type_url)).cloned();
        let names: Vec<String> = core
            .chain(further)
            .filter(|type_url| own.contains(type_url))
            .map(|type_url| short_name(&type_url).to_owned())
            .collect();
        let types = match names.len() {
            0 => "0".to_owned(),
            count => format!("{count} ({})", names.join(",")),
        };
        rows.push(vec![
            text(proxy, "proxy"),
            text(proxy, "cluster_id"),
            istiod.to_owned(),
            text(proxy, "istio_version"),
            types,
        ]);
    }
    aligned(&rows, 5)
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
            let plane = arguments.control_plane.connect(global, kube)?;
            let proxy =
                if proxy.contains('.') { proxy.clone() } else { format!("{proxy}.{}", global.namespace) };
            plane.ask("/debug/config_dump", &[("proxyID", proxy.as_str())])?.to_string().into_bytes()
        }
        (None, None) => bail!("name a proxy, or what the control plane has by --control-plane-file"),
    };
    compare::compare(&ConfigDump::parse(&own)?, &ConfigDump::parse(&envoy)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_listed_with_their_state() {
        let answer = json!([{
            "proxy": "cart-1.shop", "cluster_id": "Kubernetes", "istio_version": "1.32.0",
            "resources": {
                TYPES[0].1: {"sent": "a", "acked": "a"},
                TYPES[1].1: {"sent": "b", "lastError": "bad"},
                TYPES[3].1: {"sent": "c", "acked": "b"},
            },
        }]);
        assert!(table(&answer, "istiod-0", false).ends_with("1.32.0      3 (CDS,LDS,RDS)\n"));
        let verbose = table(&answer, "istiod-0", true);
        let cells: Vec<&str> = verbose.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "cart-1.shop",
                "Kubernetes",
                "SYNCED",
                "IGNORED",
                "IGNORED",
                "ERROR",
                "STALE",
                "istiod-0",
                "1.32.0"
            ]
        );
    }
}
