//! `canopus version`: this program, and the control planes and proxies of a mesh.

use std::collections::BTreeMap;
use std::process::ExitCode;

use canopus_api::Kind;
use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_runtime::version::{BuildInfo, Format};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};

/// The port on which a control plane says its version.
const MONITORING_PORT: u16 = 15014;

/// Print the version of this program and of the mesh.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit codes: 0 printed, 1 the cluster does not answer, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Print version numbers alone.
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    short: bool,
    /// Print for machines.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    /// Also ask the mesh: by default if there is a kubeconfig.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    remote: Option<bool>,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let build = BuildInfo::current();
    let mut mesh = Mesh::default();
    if arguments.remote.unwrap_or_else(|| kube.is_configured()) {
        match Mesh::ask(global, kube) {
            Ok(found) if found.planes.is_empty() => {
                say(
                    &format!(
                        "Istio is not present in the cluster: no running Istio pods in namespace {:?}\n",
                        global.istio_namespace
                    ),
                    ExitCode::SUCCESS,
                );
            }
            Ok(found) => mesh = found,
            Err(error) => return say(&format!("Error: {error:#}\n"), exit::FAILURE),
        }
    }
    print(&render(&build, &mesh, arguments), ExitCode::SUCCESS)
}

/// What runs in a mesh.
#[derive(Default)]
struct Mesh {
    /// Control planes: pod, revision, build.
    planes: Vec<(String, String, Value)>,
    /// Proxies and their versions.
    proxies: Vec<(String, String)>,
}

impl Mesh {
    fn ask(global: &Global, kube: &KubeArguments) -> anyhow::Result<Self> {
        let cluster = Cluster::connect(kube)?;
        let namespace = &global.istio_namespace;
        let text = |pod: &Node, pointer: &str| pod.pointer(pointer).and_then(Node::as_str).map(str::to_owned);
        let mut mesh = Self::default();
        for pod in cluster.list(Kind::Pod, namespace)? {
            let is_plane = text(&pod, "/metadata/labels/app").as_deref() == Some("istiod")
                && text(&pod, "/status/phase").as_deref() == Some("Running");
            let Some(name) = name_of(&pod).filter(|_| is_plane) else { continue };
            let labels = pod.pointer("/metadata/labels");
            let revision = labels.and_then(|labels| labels.get("istio.io/rev")?.as_str()).unwrap_or_default();
            let answer = cluster.ask_pod(namespace, &name, MONITORING_PORT, Method::GET, "/version")?;
            mesh.planes.push((name.clone(), revision.to_owned(), build(&answer)));
            let proxies = cluster.ask_pod(namespace, &name, 8080, Method::GET, "/debug/syncz")?;
            let proxies: Value = serde_json::from_slice(&proxies).unwrap_or_default();
            for proxy in proxies.as_array().into_iter().flatten() {
                let field = |key: &str| proxy[key].as_str().unwrap_or_default().to_owned();
                mesh.proxies.push((field("proxy"), field("istio_version")));
            }
        }
        Ok(mesh)
    }
}

/// A build from what `/version` answers: JSON, or `version-revision-status` in one line.
fn build(answer: &[u8]) -> Value {
    if let Ok(value @ Value::Object(_)) = serde_json::from_slice(answer) {
        return value;
    }
    let text = String::from_utf8_lossy(answer);
    let mut parts = text.trim().rsplitn(3, '-');
    let (status, revision, version) = (parts.next(), parts.next(), parts.next());
    match (version, revision, status) {
        (Some(version), Some(revision), Some(status)) => {
            json!({"version": version, "revision": revision, "golang_version": "", "status": status, "tag": version})
        }
        _ => json!({"version": text.trim(), "revision": "", "golang_version": "", "status": "", "tag": ""}),
    }
}

fn render(build: &BuildInfo, mesh: &Mesh, arguments: &Arguments) -> String {
    let mut report = json!({"clientVersion": build});
    if !mesh.planes.is_empty() {
        report["meshVersion"] = mesh
            .planes
            .iter()
            .map(|(pod, revision, info)| json!({"Component": pod, "Revision": revision, "Info": info}))
            .collect();
        report["dataPlaneVersion"] = mesh
            .proxies
            .iter()
            .map(|(proxy, version)| json!({"ID": proxy, "IstioVersion": version, "Type": ""}))
            .collect();
    }
    match arguments.output {
        Some(Format::Json) => return format!("{report:#}\n"),
        // Parity: the command ends its YAML with an empty line.
        Some(Format::Yaml) => return yaml::node_to_string(&Node::from(report)) + "\n",
        None => {}
    }
    let client = if arguments.short { build.version.clone() } else { build.long_form() };
    let mut text = format!("client version: {client}\n");
    let versions: Vec<&str> =
        mesh.planes.iter().map(|(.., info)| info["version"].as_str().unwrap_or_default()).collect();
    if let Some((first, others)) = versions.split_first() {
        if others.iter().all(|other| other == first) {
            text.push_str(&format!("control plane version: {first}\n"));
        } else {
            for ((pod, ..), version) in mesh.planes.iter().zip(&versions) {
                text.push_str(&format!("{pod} version: {version}\n"));
            }
        }
        text.push_str(&proxies(&mesh.proxies));
    }
    text
}

/// How many proxies have which version.
fn proxies(proxies: &[(String, String)]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    proxies.iter().for_each(|(_, version)| *counts.entry(version).or_default() += 1);
    if counts.is_empty() {
        return "data plane version: none\n".to_owned();
    }
    let counted = counts.iter().map(|(version, count)| {
        let noun = if *count == 1 { "proxy" } else { "proxies" };
        format!("{version} ({count} {noun})")
    });
    format!("data plane version: {}\n", counted.collect::<Vec<_>>().join(", "))
}
