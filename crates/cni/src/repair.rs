//! Repairs pods with a sidecar that started before the plugin was installed on their node.
//!
//! Such a pod has no rules, and its init container `istio-validation` ends with a code of its own, again and again. What is
//! done about it is a setting: the rules are made now, the pod is deleted so that another one takes its place, or it is
//! labelled for others to see.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use canopus_runtime::flags::Flags;
use canopus_runtime::metrics::{Registry, catalogue};
use canopus_sources::kubernetes::{ApiError, Cluster, Followable, Followed};
use serde_json::json;

use crate::ambient::NamespaceFinder;
use crate::plugin::redirect;
use crate::pod::{Pod, Terminated};

/// How often one pod is tried.
const ATTEMPTS: u32 = 5;

/// The pause before a pod is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What is done about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Make its rules.
    Repair,
    /// Delete it.
    Delete,
    /// Label it.
    Label,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Delete => "delete",
            Self::Label => "label",
        }
    }
}

/// What is looked for, and what is done.
#[derive(Clone, Debug)]
pub struct RepairSettings {
    /// What is done.
    pub mode: Mode,
    /// The node; all nodes if empty.
    pub node: String,
    /// The label of labelled pods.
    pub label: (String, String),
    /// The annotation that pods must have; any pod if empty.
    pub annotation: String,
    /// The init container to look at; any if empty.
    pub container: String,
    /// Termination message of a broken init container; any if empty.
    pub message: String,
    /// Exit code of a broken init container; any if 0.
    pub exit_code: i32,
    /// Selects pods by labels.
    pub labels: String,
    /// Selects pods by fields.
    pub fields: String,
    /// Make rules with nftables.
    pub native_nftables: bool,
}

/// Why a pod was not repaired.
#[derive(Debug, thiserror::Error)]
enum RepairError {
    #[error("its network namespace is not found")]
    NoNamespace,
    #[error("{0}")]
    Namespace(std::io::Error),
    #[error("{0}")]
    Pod(String),
    #[error("{0}")]
    Rules(#[from] canopus_capture::RunError),
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("the work was cut short: {0}")]
    Panicked(String),
}

impl RepairSettings {
    /// Whether a pod is broken in the way that is looked for.
    pub fn is_broken(&self, pod: &Pod) -> bool {
        if !self.annotation.is_empty() && !pod.metadata.annotations.contains_key(&self.annotation) {
            return false;
        }
        let message = self.message.trim();
        let is_it = |ended: &Terminated| {
            (message.is_empty() || message == ended.message.trim())
                && (self.exit_code == 0 || self.exit_code == ended.exit_code)
        };
        pod.status.init_container_statuses.iter().any(|status| {
            let is_named = self.container.is_empty() || self.container == status.name;
            let is_well = status
                .state
                .terminated
                .as_ref()
                .is_some_and(|ended| ended.reason == "Completed" || ended.exit_code == 0);
            is_named && !is_well && status.last_state.terminated.as_ref().is_some_and(is_it)
        })
    }
}

/// Repairs pods.
pub struct Repair<'a> {
    settings: RepairSettings,
    cluster: Cluster,
    finder: Option<NamespaceFinder>,
    flags: &'a Flags,
    metrics: Registry,
    /// Pods that were repaired, by UID.
    repaired: BTreeSet<String>,
}

impl<'a> Repair<'a> {
    /// Prepares to repair. Without `proc` rules cannot be made.
    pub fn new(
        settings: RepairSettings,
        cluster: Cluster,
        proc: &Path,
        flags: &'a Flags,
        metrics: Registry,
    ) -> Self {
        let finder = NamespaceFinder::new(proc);
        let finder = finder.inspect_err(|error| tracing::warn!("{}: {error}", proc.display())).ok();
        Self { settings, cluster, finder, flags, metrics, repaired: BTreeSet::new() }
    }

    /// Repairs pods until the future is dropped.
    pub async fn run(mut self) {
        let mut fields = vec![self.settings.fields.clone()];
        if !self.settings.node.is_empty() {
            fields.push(format!("spec.nodeName={}", self.settings.node));
        }
        fields.retain(|field| !field.is_empty());
        let what = Followable {
            path: "/api/v1/pods".to_owned(),
            fields: fields.join(","),
            labels: self.settings.labels.clone(),
        };
        let cluster = self.cluster.clone();
        cluster
            .follow_at(&what, async |told: Followed<Pod>| match told {
                Followed::Listed(pods) => {
                    let is_there = |uid: &String| pods.iter().any(|pod| pod.metadata.uid == *uid);
                    self.repaired.retain(is_there);
                    for pod in &pods {
                        self.examine(pod).await;
                    }
                }
                Followed::Present(pod) => self.examine(&pod).await,
                Followed::Gone(pod) => {
                    self.repaired.remove(&pod.metadata.uid);
                }
            })
            .await;
    }

    async fn examine(&mut self, pod: &Pod) {
        if !self.settings.is_broken(pod) {
            return;
        }
        let mode = self.settings.mode;
        for attempt in 1..=ATTEMPTS {
            let (result, error) = match self.treat(pod).await {
                Ok(true) => ("success", None),
                Ok(false) => ("skip", None),
                Err(error) => ("fail", Some(error)),
            };
            // Pods that were repaired before are broken until their container runs once more.
            if result != "skip" || mode == Mode::Label {
                self.count(mode, result);
            }
            let Some(error) = error else { return };
            tracing::error!("pod {}: cannot {} it: {error}", pod.key(), mode.name());
            if attempt < ATTEMPTS {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    fn count(&self, mode: Mode, result: &str) {
        let repaired = self.metrics.family(catalogue::ISTIO_CNI_REPAIR_PODS_REPAIRED_TOTAL);
        repaired.with([result, mode.name()]).inc();
    }

    /// Whether something was done.
    async fn treat(&mut self, pod: &Pod) -> Result<bool, RepairError> {
        match self.settings.mode {
            Mode::Repair => self.repair(pod).await,
            Mode::Delete => {
                let deleted = self
                    .cluster
                    .delete_unchanged_at(&path(pod), &pod.metadata.uid, &pod.metadata.resource_version)
                    .await;
                self.report(pod, "DeleteBrokenPod", "deleted", "delete", &deleted).await;
                tracing::info!("pod {}: broken, deleted", pod.key());
                Ok(deleted.map(|()| true)?)
            }
            Mode::Label => {
                let (key, value) = &self.settings.label;
                if pod.metadata.labels.contains_key(key) {
                    return Ok(false);
                }
                let patch = json!({"metadata": {"labels": {key: value}}});
                let labelled = self.cluster.merge_patch_at(&format!("{}/status", path(pod)), &patch).await;
                self.report(pod, "LabelBrokenPod", "labeled", "label", &labelled).await;
                tracing::info!("pod {}: broken, labelled", pod.key());
                Ok(labelled.map(|()| true)?)
            }
        }
    }

    async fn repair(&mut self, pod: &Pod) -> Result<bool, RepairError> {
        let uid = pod.metadata.uid.clone();
        if self.repaired.contains(&uid) {
            return Ok(false);
        }
        let facts = pod.sidecar().map_err(|reason| RepairError::Pod(reason.to_string()))?;
        let line = facts.command_line().map_err(|error| RepairError::Pod(error.to_string()))?;
        let finder = self.finder.clone().ok_or(RepairError::NoNamespace)?;
        let wanted: BTreeMap<String, Vec<IpAddr>> = [(uid.clone(), pod.addresses())].into();
        let native_nftables = self.settings.native_nftables;
        let variables: BTreeMap<String, String> =
            self.flags.prefixed("").map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let work = move || {
            let found = finder.find(&wanted).map_err(RepairError::Namespace)?;
            let found = found.into_values().next().ok_or(RepairError::NoNamespace)?;
            use std::os::fd::AsRawFd as _;
            let namespace = format!("/proc/self/fd/{}", found.namespace.as_raw_fd());
            Ok::<_, RepairError>(redirect(
                line,
                Path::new(&namespace),
                native_nftables,
                &Flags::read(&variables),
            )?)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| RepairError::Panicked(error.to_string()))??;
        self.repaired.insert(uid);
        tracing::info!("pod {}: repaired", pod.key());
        Ok(true)
    }

    /// Leaves an event at the pod.
    async fn report(&self, pod: &Pod, reason: &str, done: &str, verb: &str, result: &Result<(), ApiError>) {
        let message = match result {
            Ok(()) => format!("pod detected as broken, {done}"),
            Err(error) => format!("pod detected as broken, but failed to {verb}: {error}"),
        };
        let (metadata, now) = (&pod.metadata, jiff::Timestamp::now().to_string());
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": format!("{}.", metadata.name), "namespace": metadata.namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": metadata.name, "namespace": metadata.namespace,
                "uid": metadata.uid, "resourceVersion": metadata.resource_version,
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "cni-repair"},
        });
        let path = format!("/api/v1/namespaces/{}/events", metadata.namespace);
        if let Err(error) = self.cluster.create_at(&path, &event).await {
            tracing::warn!("pod {}: cannot leave an event: {error}", pod.key());
        }
    }
}

fn path(pod: &Pod) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.metadata.namespace, pod.metadata.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> RepairSettings {
        RepairSettings {
            mode: Mode::Repair,
            node: String::new(),
            label: ("cni.istio.io/uninitialized".into(), "true".into()),
            annotation: "sidecar.istio.io/status".into(),
            container: "istio-validation".into(),
            message: String::new(),
            exit_code: 126,
            labels: String::new(),
            fields: String::new(),
            native_nftables: false,
        }
    }

    fn pod(state: serde_json::Value, last: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "b", "annotations": {"sidecar.istio.io/status": "{}"}},
            "status": {"initContainerStatuses": [{"name": "istio-validation", "state": state, "lastState": last}]},
        }))
        .unwrap()
    }

    #[test]
    fn only_pods_whose_validation_keeps_failing_are_broken() {
        let failed = |code: i32| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert!(settings().is_broken(&pod(waiting.clone(), failed(126))));
        assert!(!settings().is_broken(&pod(waiting.clone(), failed(1))));
        assert!(
            !settings()
                .is_broken(&pod(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), failed(126)))
        );
        assert!(!settings().is_broken(&pod(failed(126), json!({}))));
        let any_code = RepairSettings { exit_code: 0, container: String::new(), ..settings() };
        assert!(any_code.is_broken(&pod(waiting.clone(), failed(1))));
        let said = RepairSettings { message: "no rules".into(), ..settings() };
        assert!(!said.is_broken(&pod(waiting, failed(126))));
    }
}
