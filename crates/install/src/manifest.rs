//! Objects that charts rendered.

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use serde_json::Value as Json;

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The object.
    pub object: Json,
    /// The component it belongs to; empty before that is known.
    pub component: &'static str,
}

impl Manifest {
    /// Reads the objects of a text. Documents without a kind are no objects and left out.
    pub(crate) fn read_all(text: &str) -> Result<Vec<Self>, yaml::Error> {
        let mut manifests = Vec::new();
        for document in yaml::parse_all(text, &Limits::default()) {
            let object = document?.node.to_json();
            if object.get("kind").and_then(Json::as_str).is_some_and(|kind| !kind.is_empty()) {
                manifests.push(Self { object, component: "" });
            }
        }
        Ok(manifests)
    }

    /// The object's kind.
    pub fn kind(&self) -> &str {
        self.object.get("kind").and_then(Json::as_str).unwrap_or_default()
    }

    /// The object's API group; empty for Kubernetes' core.
    pub fn group(&self) -> &str {
        let version = self.object.get("apiVersion").and_then(Json::as_str).unwrap_or_default();
        version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The object's API version.
    pub fn api_version(&self) -> &str {
        self.object.get("apiVersion").and_then(Json::as_str).unwrap_or_default()
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.metadata("name")
    }

    /// The object's namespace, if it names one.
    pub fn namespace(&self) -> &str {
        self.metadata("namespace")
    }

    fn metadata(&self, field: &str) -> &str {
        self.object.get("metadata").and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default()
    }

    /// A label of the object.
    pub fn label(&self, name: &str) -> &str {
        self.object["metadata"]["labels"][name].as_str().unwrap_or_default()
    }

    /// The object in the words of an error.
    pub(crate) fn described(&self) -> String {
        format!("{} {}", self.kind(), self.name())
    }

    /// Where the object stands among others: what others need comes first.
    fn rank(&self) -> i32 {
        match (self.group(), self.kind()) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => -1000,
            ("", "ServiceAccount") | ("rbac.authorization.k8s.io", "ClusterRole") => 1,
            ("rbac.authorization.k8s.io", "ClusterRoleBinding") => 2,
            // Applied early, so that one left behind by an earlier installation does not refuse the rest.
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => 3,
            ("", "ConfigMap") => 100,
            ("autoscaling", "HorizontalPodAutoscaler") => 1001,
            ("", "Service") => 10_000,
            _ => 1000,
        }
    }

    /// Sorts objects into the order they are applied in.
    pub(crate) fn sort(manifests: &mut [Self]) {
        manifests.sort_by(|a, b| {
            let key = |manifest: &Self| {
                (
                    manifest.rank(),
                    manifest.group().to_owned(),
                    manifest.kind().to_owned(),
                    manifest.name().to_owned(),
                )
            };
            key(a).cmp(&key(b))
        });
    }
}

/// Objects as one text.
pub fn to_yaml(manifests: &[Manifest]) -> String {
    let mut text = String::new();
    for manifest in manifests {
        text.push_str(&yaml::node_to_string(&Node::from(manifest.object.clone())));
        text.push_str("\n---\n");
    }
    text
}
