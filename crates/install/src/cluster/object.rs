use std::fmt;

use serde_json::Value as Json;

use crate::Manifest;

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectId {
    pub(super) fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn from_manifest(manifest: &Manifest) -> Self {
        Self::new(manifest.api_version(), manifest.kind(), manifest.namespace(), manifest.name())
    }

    /// The object that a list of the API server has; lists leave out the version and kind of their items.
    pub(super) fn from_list_item(api_version: &str, kind: &str, item: &Json) -> Self {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
        Self::new(api_version, kind, text("namespace"), text("name"))
    }

    /// Equal for all versions of an object's kind.
    pub(super) fn identity(&self) -> (&str, &str, &str, &str) {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        (group, &self.kind, &self.namespace, &self.name)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}
