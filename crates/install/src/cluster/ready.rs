//! Whether an object is ready, and if not, why: in words that name the pod and the container.

use serde_json::Value as Json;

use super::apply::count;
use super::object::ObjectId;
use super::{ClusterError, Installer, asking};

impl Installer {
    /// Why an object is not ready; nothing if it is.
    pub(super) async fn why_not_ready(&mut self, object: &ObjectId) -> Result<Option<String>, ClusterError> {
        let Some(live) = self.read(object).await? else { return Ok(Some("it is gone".to_owned())) };
        if object.kind == "CustomResourceDefinition" {
            let established = condition(&live, "Established").is_some_and(|found| found["status"] == "True");
            return Ok((!established).then(|| "its definition is not established yet".to_owned()));
        }
        let Some(short) = shortfall(&object.kind, &live) else { return Ok(None) };
        match self.trouble_of_pods(object, &live).await? {
            Some(trouble) => Ok(Some(format!("{short}: {trouble}"))),
            None => Ok(Some(short)),
        }
    }

    /// What keeps the pods of a workload from being ready.
    async fn trouble_of_pods(
        &mut self,
        object: &ObjectId,
        live: &Json,
    ) -> Result<Option<String>, ClusterError> {
        let labels = live.pointer("/spec/selector/matchLabels").and_then(Json::as_object);
        let selector = labels.into_iter().flatten();
        let selector: Vec<String> =
            selector.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        let pods = ObjectId::new("v1", "Pod", &object.namespace, "");
        let Some(path) = self.path(&pods).await? else { return Ok(None) };
        let items = self.cluster.list_at(&path, &selector.join(",")).await;
        let items = items.map_err(|error| asking("pods", error))?;
        if items.is_empty() {
            let failed = condition(live, "ReplicaFailure").and_then(|found| found["message"].as_str());
            return Ok(failed.map(|message| format!("no pod can be created: {message}")));
        }
        Ok(items.iter().find_map(trouble_of_pod))
    }
}

/// How much a workload lacks; nothing if it is ready.
fn shortfall(kind: &str, live: &Json) -> Option<String> {
    if count(live, "/status/observedGeneration") < count(live, "/metadata/generation") {
        return Some("the change is not noticed yet".to_owned());
    }
    let (wanted, updated, ready) = if kind == "DaemonSet" {
        let wanted = count(live, "/status/desiredNumberScheduled");
        (wanted, count(live, "/status/updatedNumberScheduled"), count(live, "/status/numberReady"))
    } else {
        let wanted = live.pointer("/spec/replicas").and_then(Json::as_i64).unwrap_or(1);
        (wanted, count(live, "/status/updatedReplicas"), count(live, "/status/availableReplicas"))
    };
    let left = count(live, "/status/replicas") - updated;
    if updated < wanted || ready < wanted {
        Some(format!("{} of {wanted} ready", ready.min(updated)))
    } else if kind != "DaemonSet" && left > 0 {
        Some(format!("{left} of the old pods still end"))
    } else {
        None
    }
}

fn condition<'a>(object: &'a Json, kind: &str) -> Option<&'a Json> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|found| found["type"] == kind)
}

/// What keeps a pod from being ready.
fn trouble_of_pod(pod: &Json) -> Option<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(scheduled) = condition(pod, "PodScheduled")
        && scheduled["status"] == "False"
    {
        return Some(format!(
            "pod {name} cannot be scheduled: {}",
            scheduled["message"].as_str().unwrap_or_default()
        ));
    }
    for list in ["/status/initContainerStatuses", "/status/containerStatuses"] {
        for container in pod.pointer(list).and_then(Json::as_array).into_iter().flatten() {
            let text = |path: &str| container.pointer(path).and_then(Json::as_str).unwrap_or_default();
            let (container_name, reason) = (text("/name"), text("/state/waiting/reason"));
            if !matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
                let message = text("/state/waiting/message");
                return Some(format!("pod {name}: {container_name}: {reason}: {message}"));
            }
        }
    }
    let ready = condition(pod, "Ready")?;
    let is_unready = ready["status"] == "False" && ready["reason"] == "ContainersNotReady";
    is_unready.then(|| format!("pod {name}: {}", ready["message"].as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(status: Json) -> Option<String> {
        shortfall(
            "Deployment",
            &json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}),
        )
    }

    #[test]
    fn deployment_is_ready_when_all_its_pods_are_new_and_available() {
        let status = |generation, replicas, updated, available| json!({"observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available});
        assert_eq!(deployment(status(2, 2, 2, 2)), None);
        assert_eq!(deployment(status(1, 2, 2, 2)).unwrap(), "the change is not noticed yet");
        assert_eq!(deployment(status(2, 3, 1, 2)).unwrap(), "1 of 2 ready");
        assert_eq!(deployment(status(2, 3, 2, 2)).unwrap(), "1 of the old pods still end");
        assert_eq!(deployment(json!({"observedGeneration": 2})).unwrap(), "0 of 2 ready");
    }

    #[test]
    fn trouble_names_the_container_and_the_message() {
        let waiting = json!({"name": "discovery", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}});
        let pod = json!({"metadata": {"name": "istiod-1"}, "status": {"containerStatuses": [waiting]}});
        assert_eq!(trouble_of_pod(&pod).unwrap(), "pod istiod-1: discovery: ErrImagePull: not found");
    }
}
