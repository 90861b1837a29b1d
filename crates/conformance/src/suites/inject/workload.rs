//! The pods that controllers make of workloads.

use anyhow::Context;
use canopus_api::builtin;
use canopus_base::tree::Limits;
use canopus_base::yaml;
use serde_json::{Value as Json, json};

/// A pod, and the namespace that it is created in.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) pod: Json,
    pub(super) namespace: String,
}

const WORKLOADS: [&str; 8] = [
    "Deployment",
    "DeploymentConfig",
    "DaemonSet",
    "StatefulSet",
    "Job",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
];

/// One pod of every workload in a text.
pub(super) fn pods(text: &str) -> anyhow::Result<Vec<Made>> {
    let mut made = Vec::new();
    for document in yaml::parse_all(text, &Limits::default()) {
        let object = document?.node.to_json();
        match object["kind"].as_str() {
            Some("List") => {
                for item in object["items"].as_array().into_iter().flatten() {
                    made.extend(pod(item)?);
                }
            }
            _ => made.extend(pod(&object)?),
        }
    }
    Ok(made)
}

fn pod(object: &Json) -> anyhow::Result<Option<Made>> {
    let kind = object["kind"].as_str().unwrap_or_default();
    if !WORKLOADS.contains(&kind) {
        return Ok(None);
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let mut pod = if kind == "Pod" {
        object.clone()
    } else {
        let template = object["spec"].get("template").context("no template")?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut metadata = template
            .get("metadata")
            .filter(|metadata| !metadata.is_null())
            .cloned()
            .unwrap_or_else(|| json!({}));
        let (version, kind, owner, prefix) = match kind {
            "Deployment" => ("apps/v1", "ReplicaSet", format!("{name}-fake"), format!("{name}-fake-")),
            _ => (object["apiVersion"].as_str().unwrap_or_default(), kind, name.to_owned(), name.to_owned()),
        };
        metadata["generateName"] = json!(prefix);
        metadata["ownerReferences"] =
            json!([{"apiVersion": version, "kind": kind, "name": owner, "uid": "", "controller": true}]);
        if object["kind"] == "Deployment" {
            metadata["labels"]["pod-template-hash"] = json!("fake");
        }
        json!({"metadata": metadata, "spec": template["spec"]})
    };
    builtin::pod().normalize(&mut pod)?;
    Ok(Some(Made { pod, namespace }))
}

/// A pod without the annotation that names what was injected, in the form Go encodes.
pub(super) fn without_status(mut pod: Json) -> Json {
    if let Some(Json::Object(annotations)) = pod.pointer_mut("/metadata/annotations") {
        annotations.remove("sidecar.istio.io/status");
    }
    // What is no pod shows as a difference.
    let _ = builtin::pod().normalize(&mut pod);
    pod
}
