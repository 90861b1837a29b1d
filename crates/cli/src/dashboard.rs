//! `canopus dashboard`: web interfaces of a mesh, through a port of this machine.

use std::process::ExitCode;

use anyhow::bail;
use canopus_api::Kind;
use canopus_base::tree::Node;
use clap::{Args, Subcommand};

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::exit;
use crate::global::Global;
use crate::output::say;
use crate::proxy_config::target;

/// Open a web interface of the mesh.
#[derive(Args, Debug)]
#[command(after_help = "\
The port of this machine leads to the pod until Ctrl-C; nothing is left behind.

Exit codes: 0 ended by Ctrl-C, 1 there is no such pod or port, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Port of this machine; a free one if 0.
    #[arg(short, long, global = true, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Address of this machine to listen on.
    #[arg(long, global = true, value_name = "ADDRESS", default_value = "localhost")]
    address: String,
    /// Accepted and ignored: the address is printed and no browser is started.
    #[arg(long, global = true, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, hide = true)]
    browser: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Envoy's administration interface.
    #[command(visible_alias = "proxy")]
    Envoy {
        /// The proxy: `pod`, `pod.namespace` or `deployment/name.namespace`.
        proxy: String,
    },
    /// The control plane's debug pages.
    IstiodDebug {
        /// The control plane's pod; one of those labelled app=istiod if none is named.
        pod: Option<String>,
    },
    /// The control plane's introspection pages.
    Controlz {
        /// The control plane's pod; one of those labelled app=istiod if none is named.
        pod: Option<String>,
    },
    /// Grafana.
    Grafana,
    /// Jaeger.
    Jaeger,
    /// Kiali.
    Kiali,
    /// Prometheus.
    Prometheus,
    /// SkyWalking.
    Skywalking,
    /// Zipkin.
    Zipkin,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let done = Cluster::connect(kube).and_then(|cluster| {
        let (namespace, pod, port) = find(&cluster, global, &arguments.command)?;
        let listen = if arguments.address == "localhost" { "127.0.0.1" } else { &arguments.address };
        cluster.forward(&namespace, &pod, port, listen, arguments.port, |address| {
            say(&format!("http://{address}  (pod {pod}.{namespace}; Ctrl-C ends it)\n"), ExitCode::SUCCESS);
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// Namespace, pod and port behind an interface.
fn find(cluster: &Cluster, global: &Global, command: &Command) -> anyhow::Result<(String, String, u16)> {
    let system = &global.istio_namespace;
    let (labels, port): (&[(&str, &str)], u16) = match command {
        Command::Envoy { proxy } => {
            let (pod, namespace) = target::pod(cluster, proxy, &global.namespace)?;
            return Ok((namespace, pod, 15000));
        }
        Command::IstiodDebug { pod: Some(pod) } => {
            let (pod, namespace) = target::pod(cluster, pod, system)?;
            return Ok((namespace, pod, 15014));
        }
        Command::Controlz { pod: Some(pod) } => {
            let (pod, namespace) = target::pod(cluster, pod, system)?;
            return Ok((namespace, pod, 9876));
        }
        Command::IstiodDebug { pod: None } => (&[("app", "istiod")], 15014),
        Command::Controlz { pod: None } => (&[("app", "istiod")], 9876),
        Command::Grafana => (&[("app.kubernetes.io/name", "grafana")], 3000),
        Command::Jaeger => (&[("app", "jaeger")], 16686),
        Command::Kiali => (&[("app", "kiali")], 20001),
        Command::Prometheus => (&[("app.kubernetes.io/name", "prometheus")], 9090),
        Command::Skywalking => (&[("app", "skywalking-ui")], 8080),
        Command::Zipkin => (&[("app", "zipkin")], 9411),
    };
    let namespace = if global.namespace.is_empty() { system } else { &global.namespace };
    let pods = cluster.list(Kind::Pod, namespace)?;
    let is_meant = |pod: &&Node| {
        let own = pod.pointer("/metadata/labels");
        labels.iter().all(|(key, value)| own.and_then(|own| own.get(key)?.as_str()) == Some(value))
            && pod.pointer("/status/phase").and_then(Node::as_str) == Some("Running")
    };
    let Some(pod) = pods.iter().find(is_meant).and_then(name_of) else {
        let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        bail!("no running pod labelled {} in namespace {namespace}", selector.join(","));
    };
    Ok((namespace.clone(), pod, port))
}
