//! `canopus remote-clusters`: the clusters that each control plane reads.

use std::process::ExitCode;

use canopus_api::Kind;
use canopus_base::tree::Node;
use http::Method;
use serde_json::Value;

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::table::{aligned, row};

/// List the clusters that each control plane reads, and whether it has read them.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Revision of the control planes.
    #[arg(short, long, value_name = "REVISION", default_value = "", hide_default_value = true)]
    revision: String,
    /// Address of a control plane's debug port, outside Kubernetes.
    #[arg(long, value_name = "URL")]
    daemon: Option<String>,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match list(global, kube, arguments) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn list(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<String> {
    let mut answers: Vec<(String, Value)> = Vec::new();
    if let Some(url) = &arguments.daemon {
        answers.push((url.clone(), crate::daemon::ask(url, "/debug/clusterz", &[])?));
    } else {
        let cluster = Cluster::connect(kube)?;
        let namespace = &global.istio_namespace;
        for pod in cluster.list(Kind::Pod, namespace)? {
            let label = |name: &str| pod.pointer("/metadata/labels")?.get(name)?.as_str();
            let is_meant = label("app") == Some("istiod")
                && (arguments.revision.is_empty() || label("istio.io/rev") == Some(&arguments.revision))
                && pod.pointer("/status/phase").and_then(Node::as_str) == Some("Running");
            let Some(name) = name_of(&pod).filter(|_| is_meant) else { continue };
            let answer = cluster.ask_pod(namespace, &name, 8080, Method::GET, "/debug/clusterz")?;
            answers.push((name, serde_json::from_slice(&answer)?));
        }
        if answers.is_empty() {
            anyhow::bail!("unable to find any Istiod instances");
        }
    }
    let mut rows = vec![row(["NAME", "SECRET", "STATUS", "ISTIOD"])];
    for (istiod, clusters) in &answers {
        for cluster in clusters.as_array().into_iter().flatten() {
            let field = |key: &str| cluster[key].as_str().unwrap_or_default().to_owned();
            rows.push(vec![field("id"), field("secretName"), field("syncStatus"), istiod.clone()]);
        }
    }
    Ok(aligned(&rows, 5))
}
