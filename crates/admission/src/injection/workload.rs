//! Workloads with proxies written out, as `kube-inject` does it.
//!
//! Documents of kinds without pods are passed on as they are.

use canopus_api::{builtin, mesh_config};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use serde_json::{Value as Json, json};

use super::{Config, InjectionError, Injector, Owner, Subject, pod};

/// What became of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// The documents, each followed by `---`.
    pub text: String,
    /// What the user should know, such as workloads that were left alone.
    pub warnings: Vec<String>,
}

/// Why a text cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A document is no YAML.
    #[error(transparent)]
    Syntax(#[from] yaml::Error),
    /// An object has fields of other types than its kind.
    #[error("{object}: {error}")]
    Type {
        /// The object.
        object: String,
        /// What is wrong.
        error: builtin::TypeError,
    },
    /// A workload has no pod template.
    #[error("{object}: spec.template is required value")]
    NoTemplate {
        /// The object.
        object: String,
    },
    /// A pod cannot be injected.
    #[error(transparent)]
    Injection(#[from] InjectionError),
    /// The annotation with settings of the proxy cannot be read.
    #[error("{object}: annotation proxy.istio.io/config: {error}")]
    ProxyConfig {
        /// The object.
        object: String,
        /// What is wrong.
        error: mesh_config::MeshConfigError,
    },
}

/// Kinds with pods, with the type that each is read as.
///
/// Parity: whatever API version they are written in.
const WORKLOADS: [(&str, &str); 9] = [
    ("Pod", "core/v1.Pod"),
    ("ReplicationController", "core/v1.ReplicationController"),
    ("Deployment", "apps/v1.Deployment"),
    ("DaemonSet", "apps/v1.DaemonSet"),
    ("ReplicaSet", "apps/v1.ReplicaSet"),
    ("StatefulSet", "apps/v1.StatefulSet"),
    ("Job", "batch/v1.Job"),
    ("CronJob", "batch/v1.CronJob"),
    ("DeploymentConfig", "apps.openshift.io/v1.DeploymentConfig"),
];

impl Injector {
    /// Injects the workloads of a text. Native sidecars are for the caller to decide about.
    pub fn rewrite(&self, text: &str, native_sidecars: bool) -> Result<Rewritten, WorkloadError> {
        let mut rewritten = Rewritten::default();
        for document in yaml::parse_all(text, &Limits::default()) {
            let document = document?;
            let mut object = document.node.to_json();
            if self.rewrite_object(&mut object, native_sidecars, &mut rewritten.warnings)? {
                rewritten.text.push_str(&yaml::node_to_string(&Node::from(object)));
            } else {
                rewritten.text.push_str(text.get(document.text_range).unwrap_or_default());
                if !rewritten.text.ends_with('\n') {
                    rewritten.text.push('\n');
                }
            }
            rewritten.text.push_str("---\n");
        }
        Ok(rewritten)
    }

    /// Injects an object; false if it is of a kind that is passed on as it is.
    pub fn rewrite_object(
        &self,
        object: &mut Json,
        native_sidecars: bool,
        warnings: &mut Vec<String>,
    ) -> Result<bool, WorkloadError> {
        let field = |name: &str| object.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (field("apiVersion"), field("kind"));
        if kind == "List" {
            for item in object.get_mut("items").and_then(Json::as_array_mut).into_iter().flatten() {
                self.rewrite_object(item, native_sidecars, warnings)?;
            }
            normalize(object, &kind, "core/v1.List")?;
            return Ok(true);
        }
        let Some((_, object_type)) = WORKLOADS.iter().find(|(known, _)| *known == kind) else {
            return Ok(false);
        };
        normalize(object, &kind, object_type)?;
        self.inject_workload(object, &api_version, &kind, native_sidecars, warnings)?;
        normalize(object, &kind, object_type)?;
        Ok(true)
    }

    fn inject_workload(
        &self,
        object: &mut Json,
        api_version: &str,
        kind: &str,
        native_sidecars: bool,
        warnings: &mut Vec<String>,
    ) -> Result<(), WorkloadError> {
        let object_name = described(object, kind);
        // Parity: the metadata of a CronJob's pods is that of its jobs.
        let (metadata, spec) = match kind {
            "Pod" => ("/metadata", "/spec"),
            "CronJob" => ("/spec/jobTemplate/metadata", "/spec/jobTemplate/spec/template/spec"),
            _ => ("/spec/template/metadata", "/spec/template/spec"),
        };
        if object.pointer(spec).is_none() {
            return Err(WorkloadError::NoTemplate { object: object_name });
        }
        let part = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_else(|| json!({}));
        let subject_pod = json!({"metadata": part(metadata), "spec": part(spec)});
        let text =
            |json: &Json, field: &str| json.get(field).and_then(Json::as_str).unwrap_or_default().to_owned();
        let own = object.get("metadata").cloned().unwrap_or_default();
        let owner = if kind == "Pod" {
            Owner::find(object)
        } else {
            Owner {
                name: text(&own, "name"),
                namespace: text(&own, "namespace"),
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            }
        };
        if let Some(reason) = reason_to_skip(&subject_pod) {
            let pod_name = text(&subject_pod["metadata"], "name");
            let name = if pod_name.is_empty() { owner.name.clone() } else { pod_name };
            let full = if owner.namespace.is_empty() { name } else { format!("{}/{name}", owner.namespace) };
            warnings.push(format!("===> Skipping injection because {kind} {full:?} has {reason}\n"));
            return Ok(());
        }
        let proxy_config = match pod::annotation(&subject_pod, "proxy.istio.io/config") {
            None => self.mesh().default_config.clone(),
            Some(annotation) => {
                mesh_config::apply_proxy_config(annotation, self.mesh())
                    .map_err(|error| WorkloadError::ProxyConfig { object: object_name, error })?
                    .default_config
            }
        };
        let injected = self.inject(Subject {
            pod: &subject_pod,
            owner,
            proxy_config: Some(proxy_config.unwrap_or_default()),
            namespace_annotations: None,
            native_sidecars,
            environment: Default::default(),
        })?;
        if let Some(place) = object.pointer_mut(spec) {
            *place = injected.get("spec").cloned().unwrap_or_default();
        }
        set(object, metadata, injected.get("metadata").cloned().unwrap_or_default());
        Ok(())
    }
}

/// Sets a value whose parent exists.
fn set(object: &mut Json, pointer: &str, value: Json) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    if let Some(Json::Object(map)) = object.pointer_mut(parent) {
        map.insert(last.to_owned(), value);
    }
}

fn normalize(object: &mut Json, kind: &str, object_type: &str) -> Result<(), WorkloadError> {
    let Some(object_type) = builtin::struct_type(object_type) else { return Ok(()) };
    let result = object_type.normalize(object);
    result.map_err(|error| WorkloadError::Type { object: described(object, kind), error })
}

/// A workload in the words of an error: `Deployment shop/cart`.
fn described(object: &Json, kind: &str) -> String {
    let text = |field: &str| object.get("metadata").and_then(|metadata| metadata.get(field)?.as_str());
    let name = text("name").unwrap_or("(unnamed)");
    match text("namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Why a pod is left alone.
fn reason_to_skip(pod: &Json) -> Option<&'static str> {
    if pod.pointer("/spec/hostNetwork").and_then(Json::as_bool) == Some(true) {
        return Some("host networking enabled");
    }
    let everything = Config::from_templates(Default::default(), &Default::default()).ok()?;
    (!everything.is_required(pod)).then_some("sidecar injection disabled")
}
