//! The workload that a pod belongs to, as far as the pod tells.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value as Json;

use super::pod;

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Name of the owner.
    pub name: String,
    /// Namespace of the owner.
    pub namespace: String,
    /// API version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
}

/// A CronJob's jobs are called after it and the minute they are due.
static CRON_JOB: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(.+)-\d{8,10}$").expect("the pattern is well formed"));

impl Owner {
    /// The owner of a pod: what controls it, or the Deployment, CronJob or other workload that controls that.
    pub fn find(pod: &Json) -> Self {
        let metadata = pod.get("metadata");
        let text =
            |field: &str| metadata.and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default();
        let mut owner = Self {
            name: text("name").to_owned(),
            namespace: text("namespace").to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
        };
        // A pod that was named by hand has no workload, whatever it says.
        if text("generateName").is_empty() {
            return owner;
        }
        let references = metadata.and_then(|metadata| metadata.get("ownerReferences")?.as_array());
        let is_controller =
            |reference: &&Json| reference.get("controller").and_then(Json::as_bool) == Some(true);
        let Some(controller) = references.into_iter().flatten().find(is_controller) else { return owner };
        let text = |field: &str| controller.get(field).and_then(Json::as_str).unwrap_or_default();
        let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let label = |key: &str| pod::label(pod, key).filter(|value| !value.is_empty());
        let without_hash = |key: &str| name.strip_suffix(label(key)?)?.strip_suffix('-');
        let (api_version, kind, name) = match kind {
            "ReplicaSet" => {
                match (without_hash("pod-template-hash"), without_hash("rollouts-pod-template-hash")) {
                    (Some(name), _) => (api_version, "Deployment", name),
                    (None, Some(name)) => ("v1alpha1", "Rollout", name),
                    (None, None) => (api_version, kind, name),
                }
            }
            "ReplicationController" => match label("deploymentconfig") {
                Some(name) => (api_version, "DeploymentConfig", name),
                None => (api_version, kind, name),
            },
            "Job" => match CRON_JOB.captures(name).and_then(|captures| captures.get(1)) {
                Some(name) => ("batch/v1", "CronJob", name.as_str()),
                None => (api_version, kind, name),
            },
            _ => (api_version, kind, name),
        };
        if !name.is_empty() {
            owner.name = name.to_owned();
        }
        owner.api_version = api_version.to_owned();
        owner.kind = kind.to_owned();
        owner
    }
}
