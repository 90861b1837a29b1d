//! `canopus remote-clusters`: the clusters that each control plane reads.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use crate::cluster::{Cluster, KubeArguments};
use crate::control_plane::{self, ControlPlaneArguments};
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
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match list(global, kube, arguments) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn list(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<String> {
    let revision = Some(arguments.revision.as_str()).filter(|revision| !revision.is_empty());
    if arguments.control_plane.daemon.is_none() {
        let cluster = Cluster::connect(kube)?;
        if control_plane::running(&cluster, &global.istio_namespace, None, revision)?.is_empty() {
            bail!("unable to find any Istiod instances");
        }
    }
    let planes = arguments.control_plane.connect_to(global, kube, None, revision)?;
    Ok(table(&planes.ask_each("/debug/clusterz", &[])?))
}

fn table(answers: &[(String, Value)]) -> String {
    let mut rows = vec![row(["NAME", "SECRET", "STATUS", "ISTIOD"])];
    for (istiod, clusters) in answers {
        for cluster in clusters.as_array().into_iter().flatten() {
            let field = |key: &str| cluster[key].as_str().unwrap_or_default().to_owned();
            rows.push(vec![field("id"), field("secretName"), field("syncStatus"), istiod.clone()]);
        }
    }
    aligned(&rows, 5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_control_plane_lists_its_clusters() {
        let west = json!([{"id": "west", "secretName": "istio-system/west", "syncStatus": "synced"}]);
        let text = table(&[("istiod-a".to_owned(), west.clone()), ("istiod-b".to_owned(), west)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "SECRET", "STATUS", "ISTIOD"]);
        assert_eq!(lines[1], ["west", "istio-system/west", "synced", "istiod-a"]);
        assert_eq!(lines[2][3], "istiod-b");
    }
}
