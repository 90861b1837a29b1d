//! What is looked at of a pod.
//!
//! Only these fields are decoded: an agent keeps all pods of its node, and the rest of a pod is many times larger.

use std::collections::BTreeMap;
use std::net::IpAddr;

use canopus_base::labels::Labels;
use canopus_capture::ambient::PodOverrides;
use serde::{Deserialize, Deserializer};

/// The annotation of pods that injection gave a sidecar.
pub const SIDECAR_STATUS: &str = "sidecar.istio.io/status";
/// The annotation that tells how far a pod's enrolment is.
pub const REDIRECTION: &str = "ambient.istio.io/redirection";
const BYPASS_INBOUND: &str = "ambient.istio.io/bypass-inbound-capture";
const DNS_CAPTURE: &str = "ambient.istio.io/dns-capture";
const VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";
const INJECT: &str = "sidecar.istio.io/inject";

const PROXY_CONTAINER: &str = "istio-proxy";
const INIT_CONTAINER: &str = "istio-init";

/// Kubernetes writes `null` where Go has an empty list or map.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<Labels, D::Error> {
    let map: BTreeMap<String, String> = or_default(from)?;
    let mut labels = Labels::default();
    map.into_iter().for_each(|(key, value)| labels.insert(key, value));
    Ok(labels)
}

/// An object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Tells objects of one name apart.
    pub uid: String,
    /// The version of this state.
    pub resource_version: String,
    /// The labels.
    #[serde(deserialize_with = "labels")]
    pub labels: Labels,
    /// The annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Name and labels of the namespace.
    pub metadata: Metadata,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Name, namespace, labels and annotations of the pod.
    pub metadata: Metadata,
    /// What was asked for.
    pub spec: PodSpec,
    /// What became of it.
    pub status: PodStatus,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Whether the pod is in the node's network namespace.
    pub host_network: bool,
    /// Service account that the pod runs as.
    pub service_account_name: String,
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(deserialize_with = "or_default")]
    args: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    env: Vec<Variable>,
    #[serde(deserialize_with = "or_default")]
    security_context: SecurityContext,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SecurityContext {
    run_as_user: Option<u32>,
    run_as_group: Option<u32>,
}

/// What became of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pod_ips: Vec<PodIp>,
    /// What became of the init containers.
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: String,
}

/// What became of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// The container.
    pub name: String,
    /// What it does now.
    pub state: ContainerState,
    /// How it last ended.
    pub last_state: ContainerState,
}

/// A container's state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set if it has ended.
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    /// The exit code.
    pub exit_code: i32,
    /// A word.
    pub reason: String,
    /// What the container left.
    pub message: String,
}

/// How far a pod's enrolment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// Redirection has not begun.
    None,
    /// Rules are there, ztunnel has not taken the pod.
    Pending,
    /// All is done.
    Enabled,
}

impl Pod {
    /// Namespace and name.
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str)
    }

    /// Whether injection gave it a sidecar.
    pub fn has_sidecar(&self) -> bool {
        self.annotation(SIDECAR_STATUS).is_some()
    }

    /// How far its enrolment is, as its annotation says.
    pub fn redirection(&self) -> Redirection {
        match self.annotation(REDIRECTION) {
            Some("enabled") => Redirection::Enabled,
            Some("pending") => Redirection::Pending,
            _ => Redirection::None,
        }
    }

    /// Whether all its containers have ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether this is a ztunnel, which must not be captured by itself.
    pub fn is_ztunnel(&self, system_namespace: &str) -> bool {
        self.metadata.namespace == system_namespace && self.metadata.labels.get("app") == Some("ztunnel")
    }

    /// Addresses of the pod.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let several = self.status.pod_ips.iter().filter_map(|address| address.ip.parse().ok());
        let addresses: Vec<IpAddr> = several.collect();
        if addresses.is_empty() { self.status.pod_ip.parse().into_iter().collect() } else { addresses }
    }

    /// What its annotations say about its rules in ambient mode. Values that cannot be used are logged and ignored.
    pub fn ambient_overrides(&self) -> PodOverrides {
        let flag = |key| {
            let text = self.annotation(key)?;
            let parsed = parse_bool(text);
            if parsed.is_none() {
                tracing::warn!(
                    "pod {}: annotation {key}: {text:?} is not true or false; ignored",
                    self.key()
                );
            }
            parsed
        };
        let interfaces = self.annotation(VIRTUAL_INTERFACES).unwrap_or_default().split(',').map(str::trim);
        let virtual_interfaces = interfaces.filter(|name| !name.is_empty()).filter_map(|name| {
            name.parse()
                .map_err(|error| {
                    tracing::warn!("pod {}: annotation {VIRTUAL_INTERFACES}: {error}; ignored", self.key());
                })
                .ok()
        });
        PodOverrides {
            virtual_interfaces: virtual_interfaces.collect(),
            ingress_mode: flag(BYPASS_INBOUND).unwrap_or_default(),
            dns_capture: flag(DNS_CAPTURE),
        }
    }

    fn containers(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().chain(&self.spec.containers)
    }

    /// What the rules of its sidecar depend on, or why it gets none.
    pub fn sidecar(&self) -> Result<canopus_capture::pod::Pod, NoSidecar> {
        let has = |name: &str| self.containers().any(|container| container.name == name);
        if has(INIT_CONTAINER) {
            return Err(NoSidecar("istio-init sets up its rules"));
        }
        let proxy = self.containers().filter(|container| container.name == PROXY_CONTAINER).last();
        let proxy = proxy.ok_or(NoSidecar("it has no container istio-proxy"))?;
        let environment: BTreeMap<String, String> =
            proxy.env.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect();
        if environment.get("DISABLE_ENVOY").and_then(|text| parse_bool(text)).unwrap_or_default() {
            return Err(NoSidecar("DISABLE_ENVOY is set"));
        }
        let is_other_proxy =
            matches!(&proxy.args[..], [command, kind, ..] if command == "proxy" && kind != "sidecar");
        if is_other_proxy {
            return Err(NoSidecar("its proxy is not a sidecar"));
        }
        let inject = self.metadata.labels.get(INJECT).or_else(|| self.annotation(INJECT));
        if inject.and_then(parse_bool) == Some(false) {
            return Err(NoSidecar("sidecar.istio.io/inject is false"));
        }
        if !self.has_sidecar() {
            return Err(NoSidecar("it has no annotation sidecar.istio.io/status"));
        }
        Ok(canopus_capture::pod::Pod {
            annotations: self.metadata.annotations.clone(),
            proxy_environment: environment,
            proxy_uid: proxy.security_context.run_as_user,
            proxy_gid: proxy.security_context.run_as_group,
        })
    }
}

/// Why a pod gets no rules of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoSidecar(&'static str);

/// A boolean as Go reads it.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    fn injected(change: impl FnOnce(&mut serde_json::Value)) -> Result<canopus_capture::pod::Pod, NoSidecar> {
        let mut json = serde_json::json!({
            "metadata": {"name": "a", "namespace": "b", "annotations": {SIDECAR_STATUS: "{}"}, "labels": null},
            "spec": {"containers": [{"name": "app"}], "initContainers": [{
                "name": "istio-proxy", "args": ["proxy", "sidecar"],
                "env": [{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"}],
                "securityContext": {"runAsUser": 1500}}]},
        });
        change(&mut json);
        pod(json).sidecar()
    }

    #[test]
    fn every_reason_to_leave_a_pod_alone_is_told() {
        let facts = injected(|_| ()).unwrap();
        assert_eq!(facts.proxy_uid, Some(1500));
        assert_eq!(facts.proxy_environment["ISTIO_META_DNS_CAPTURE"], "true");
        let reason = |change: fn(&mut serde_json::Value)| injected(change).unwrap_err().to_string();
        assert_eq!(
            reason(|pod| pod["spec"]["containers"][0]["name"] = "istio-init".into()),
            "istio-init sets up its rules"
        );
        assert_eq!(
            reason(|pod| pod["spec"]["initContainers"][0]["env"][0] =
                serde_json::json!({"name": "DISABLE_ENVOY", "value": "1"})),
            "DISABLE_ENVOY is set"
        );
        assert_eq!(
            reason(|pod| pod["spec"]["initContainers"][0]["args"][1] = "router".into()),
            "its proxy is not a sidecar"
        );
        assert_eq!(
            reason(|pod| pod["metadata"]["labels"] = serde_json::json!({"sidecar.istio.io/inject": "false"})),
            "sidecar.istio.io/inject is false"
        );
        assert!(
            reason(|pod| pod["metadata"]["annotations"] = serde_json::Value::Null).contains("no annotation")
        );
        assert!(
            reason(|pod| pod["spec"]["initContainers"] = serde_json::Value::Null).contains("no container")
        );
    }

    #[test]
    fn addresses_and_overrides_are_read_as_far_as_they_can_be() {
        let pod = pod(serde_json::json!({
            "metadata": {"annotations": {
                BYPASS_INBOUND: "true", DNS_CAPTURE: "maybe", VIRTUAL_INTERFACES: "net1, bad name,net2"}},
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }));
        assert_eq!(pod.addresses().len(), 2);
        let overrides = pod.ambient_overrides();
        assert!(overrides.ingress_mode && overrides.dns_capture.is_none());
        assert_eq!(overrides.virtual_interfaces.len(), 2);
    }
}
