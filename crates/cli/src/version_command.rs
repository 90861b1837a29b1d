//! `canopus version`: this program, and the control planes and proxies of a mesh.

use std::collections::BTreeMap;
use std::process::ExitCode;

use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_runtime::version::{BuildInfo, Format};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::control_plane;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_status::status;
use crate::xds::{self, XdsArguments};

/// The port on which a control plane says its version.
const MONITORING_PORT: u16 = 15014;

/// The port on which it says who is connected.
const DEBUG_PORT: u16 = 8080;

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

/// Print the version of this program and of the mesh; control planes may be reached over their discovery port.
#[derive(clap::Args, Debug)]
pub(crate) struct ExperimentalArguments {
    #[command(flatten)]
    common: Arguments,
    #[command(flatten)]
    xds: XdsArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    if !arguments.remote.unwrap_or_else(|| kube.is_configured()) {
        return print(&render(&BuildInfo::current(), &Mesh::default(), arguments), ExitCode::SUCCESS);
    }
    finish(Mesh::ask(global, kube, None, None), global, arguments)
}

pub(crate) fn run_experimental(
    global: &Global,
    kube: &KubeArguments,
    arguments: &ExperimentalArguments,
) -> ExitCode {
    let ExperimentalArguments { common, xds } = arguments;
    if common.remote == Some(false) || !xds.is_given() && xds.selector().is_none() && xds.revision().is_none()
    {
        return run(global, kube, common);
    }
    let asked = if xds.is_given() {
        xds.ask(global, kube, xds::SYNCZ).map(|response| Mesh::read(&response))
    } else {
        Mesh::ask(global, kube, xds.selector(), xds.revision())
    };
    finish(asked, global, common)
}

fn finish(asked: anyhow::Result<Mesh>, global: &Global, arguments: &Arguments) -> ExitCode {
    let mesh = match asked {
        Ok(mesh) => mesh,
        Err(error) => return say(&format!("Error: {error:#}\n"), exit::FAILURE),
    };
    if mesh.planes.is_empty() {
        let words = format!(
            "Istio is not present in the cluster: no running Istio pods in namespace {:?}\n",
            global.istio_namespace
        );
        say(&words, ExitCode::SUCCESS);
    }
    print(&render(&BuildInfo::current(), &mesh, arguments), ExitCode::SUCCESS)
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
    /// Asks all control planes of a cluster.
    fn ask(
        global: &Global,
        kube: &KubeArguments,
        selector: Option<&str>,
        revision: Option<&str>,
    ) -> anyhow::Result<Self> {
        let cluster = Cluster::connect(kube)?;
        let namespace = &global.istio_namespace;
        let mut mesh = Self::default();
        for pod in control_plane::running(&cluster, namespace, selector, revision)? {
            let Some(name) = name_of(&pod) else { continue };
            let labels = pod.pointer("/metadata/labels");
            let revision = labels.and_then(|labels| labels.get("istio.io/rev")?.as_str()).unwrap_or_default();
            let answer = cluster.ask_pod(namespace, &name, MONITORING_PORT, Method::GET, "/version")?;
            mesh.planes.push((name.clone(), revision.to_owned(), build(&answer)));
            let proxies = cluster.ask_pod(namespace, &name, DEBUG_PORT, Method::GET, "/debug/syncz")?;
            let proxies: Value = serde_json::from_slice(&proxies).unwrap_or_default();
            for proxy in proxies.as_array().into_iter().flatten() {
                let field = |key: &str| proxy[key].as_str().unwrap_or_default().to_owned();
                mesh.proxies.push((field("proxy"), field("istio_version")));
            }
        }
        Ok(mesh)
    }

    /// What a discovery port answers about all proxies also says who answers.
    fn read(response: &Node) -> Self {
        let identifier = status::identifier(response);
        let component = identifier["Component"].as_str().unwrap_or_default().to_owned();
        let proxies = status::listed(response).into_iter().map(|proxy| (proxy.id, proxy.version));
        Self {
            planes: vec![(component, String::new(), identifier["Info"].clone())],
            proxies: proxies.collect(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(output: Option<Format>) -> Arguments {
        Arguments { short: true, output, remote: None }
    }

    fn mesh() -> Mesh {
        Mesh {
            planes: vec![
                ("istiod-a".into(), "default".into(), build(b"1.32.0-abc-Clean")),
                ("istiod-b".into(), "canary".into(), build(br#"{"version": "1.33.0"}"#)),
            ],
            proxies: vec![("a.shop".into(), "1.32.0".into()), ("b.shop".into(), "1.32.0".into())],
        }
    }

    #[test]
    fn versions_of_control_planes_that_differ_are_listed_one_by_one() {
        let text = render(&BuildInfo::current(), &mesh(), &arguments(None));
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "istiod-a version: 1.32.0",
                "istiod-b version: 1.33.0",
                "data plane version: 1.32.0 (2 proxies)"
            ]
        );
        let mut same = mesh();
        same.planes.pop();
        same.proxies.clear();
        let text = render(&BuildInfo::current(), &same, &arguments(None));
        assert!(text.ends_with("control plane version: 1.32.0\ndata plane version: none\n"), "{text}");
    }

    #[test]
    fn documents_have_every_proxy() {
        let json: Value =
            serde_json::from_str(&render(&BuildInfo::current(), &mesh(), &arguments(Some(Format::Json))))
                .unwrap();
        assert_eq!(json["meshVersion"][0]["Info"]["revision"], "abc");
        assert_eq!(
            json["dataPlaneVersion"][1],
            json!({"ID": "b.shop", "IstioVersion": "1.32.0", "Type": ""})
        );
        let alone = render(&BuildInfo::current(), &Mesh::default(), &arguments(Some(Format::Json)));
        assert!(!alone.contains("meshVersion"));
    }

    #[test]
    fn a_discovery_port_says_who_it_is_and_who_is_connected() {
        let response = Node::from(json!({
            "controlPlane": {"identifier": r#"{"Component": "istiod", "ID": "istiod-0", "Info": {"version": "1.2"}}"#},
            "resources": [{
                "@type": "type.googleapis.com/envoy.service.status.v3.ClientConfig",
                "node": {"id": "a.shop", "metadata": {"ISTIO_VERSION": "1.1"}},
            }],
        }));
        let mesh = Mesh::read(&response);
        assert_eq!(mesh.planes, [("istiod".to_owned(), String::new(), json!({"version": "1.2"}))]);
        assert_eq!(mesh.proxies, [("a.shop".to_owned(), "1.1".to_owned())]);
    }
}
