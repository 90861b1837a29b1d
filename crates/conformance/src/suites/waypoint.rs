//! `istioctl waypoint list` and `status` on a real API server.

use anyhow::Context as _;
use canopus_base::tree::Node;
use serde_json::{Value as Json, json};

use super::Suite;
use super::cluster_stage::{ClusterStage, SharedStage};
use crate::case::{Case, Outcome};
use crate::compare::{Difference, text};
use crate::dump::Dump;
use crate::tool;

#[derive(Default)]
pub(super) struct Waypoint {
    stage: SharedStage,
}

impl Suite for Waypoint {
    fn name(&self) -> &str {
        "istioctl-waypoint"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        self.stage.compare(case, compare)
    }
}

fn compare(case: &Case, stage: &ClusterStage) -> anyhow::Result<Vec<Difference>> {
    stage.kubectl(&["delete", "gateways.gateway.networking.k8s.io", "--all", "--all-namespaces"])?;
    let entries = case.entry.get("gateways").and_then(Node::as_list).unwrap_or_default();
    let gateways: Vec<Json> = entries.iter().map(gateway).collect();
    let namespaces = gateways.iter().filter_map(|gateway| gateway["metadata"]["namespace"].as_str());
    stage.ensure_namespaces(namespaces)?;
    for gateway in &gateways {
        let mut fields = gateway.clone();
        fields["status"].take();
        stage.apply(&[fields])?;
        stage.set_status(gateway)?;
    }
    let default = case.shared.get("defaultNamespace").and_then(Node::as_str).unwrap_or("default");
    let mut arguments = vec!["waypoint"];
    arguments.extend(case.text("args").context("no arguments")?.split_whitespace());
    if !arguments.iter().any(|word| matches!(*word, "-A" | "--all-namespaces" | "-n" | "--namespace")) {
        arguments.extend(["-n", default]);
    }
    let output =
        tool::run_in_cluster(&arguments, &case.corpus.absolute(&case.path("")), "", &stage.kubeconfig())?;
    let golden =
        String::from_utf8(case.corpus.bytes(&case.path(case.text("golden").context("no golden")?))?)?;
    Ok(text::difference(&golden, &format!("{}{}", output.stdout, output.stderr)))
}

/// A waypoint as the API server has it.
fn gateway(entry: &Node) -> Json {
    let entry = entry.to_json();
    let status = if entry["programmed"] == true { "True" } else { "False" };
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": entry["name"], "namespace": entry["namespace"]},
        "spec": {
            "gatewayClassName": entry["gatewayClassName"],
            "listeners": [{"name": "mesh", "port": 15008, "protocol": "HBONE"}],
        },
        "status": {"conditions": [{
            "type": "Programmed",
            "status": status,
            "reason": "",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    if !entry["labels"].is_null() {
        gateway["metadata"]["labels"] = entry["labels"].clone();
    }
    gateway
}
