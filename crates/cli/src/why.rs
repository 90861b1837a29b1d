//! `canopus why`: the objects that a resource of a proxy was made from.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;
use serde_json::Value;

use crate::cluster::KubeArguments;
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::names;
use crate::output::{print, say};

/// Name the objects that a resource of a connected proxy was made from.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus why productpage-v1-7c4.bookinfo 'outbound|9080||reviews.bookinfo.svc.cluster.local'
  canopus why --daemon http://localhost:8080 ingress-1.istio-system http.8080 --type RDS -o json

Exit codes: 0 printed, 1 there is no such proxy or resource or the control plane does not answer,
64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// The proxy, as `proxy-status` lists it.
    proxy: String,
    /// The resource: the name of a cluster, listener, route configuration, endpoint assignment or secret.
    resource: String,
    /// The type, where the proxy has several resources of that name: CDS, LDS, RDS, EDS, SDS.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let asked = arguments.control_plane.connect(global, kube).and_then(|plane| {
        let mut parameters =
            vec![("proxyID", arguments.proxy.as_str()), ("resource", arguments.resource.as_str())];
        parameters.extend(arguments.kind.as_deref().map(|kind| ("type", kind)));
        plane.ask("/debug/why", &parameters).map_err(|error| with_proxies(&plane, &arguments.proxy, error))
    });
    match asked {
        Ok(answer) => print(&arguments.output.render(&answer, text), ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// The error of an unknown proxy, with the names of those that are connected and called like it.
fn with_proxies(plane: &ControlPlane, wanted: &str, error: anyhow::Error) -> anyhow::Error {
    if !format!("{error:#}").contains("Proxy not connected") {
        return error;
    }
    let connected = plane.ask_all("/debug/syncz", &[]).unwrap_or_default();
    let connected = connected.as_array().into_iter().flatten();
    let known: Vec<String> = connected.filter_map(|one| one["proxy"].as_str().map(str::to_owned)).collect();
    anyhow!(
        "no proxy {wanted:?} is connected{}; `canopus proxy-status` lists those that are",
        names::hint(wanted, &known)
    )
}

fn text(answer: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut text = format!("{} of {}\n", word(&answer["resource"]), word(&answer["proxy"]));
    for (title, key) in [("made from", "objects"), ("looked for, and absent", "lookedFor")] {
        let listed = answer[key].as_array().map(Vec::as_slice).unwrap_or_default();
        if !listed.is_empty() {
            let _ = writeln!(text, "  {title}:");
        }
        for object in listed {
            let through: Vec<&str> =
                object["through"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let _ = writeln!(text, "    {}  (through {})", word(&object["object"]), through.join(" < "));
        }
    }
    for patch in answer["envoyFilters"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "  patched by {}: {}", word(&patch["object"]), word(&patch["operation"]));
    }
    if answer["meshConfig"] == Value::Bool(true) {
        text.push_str("  and the mesh configuration\n");
    }
    text
}
