//! Rendered documents, in the order Helm installs them.

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

use super::Error;

/// One rendered document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// The template it came from, by its path under the chart's name.
    pub source: String,
    /// The YAML text.
    pub text: String,
    /// The object's kind.
    pub kind: String,
    /// Whether it is a hook, to be run at its own time.
    pub is_hook: bool,
}

/// The kinds in the order they are installed; all others come after them.
const INSTALL_ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

const HOOKS: [&str; 10] = [
    "pre-install",
    "post-install",
    "pre-delete",
    "post-delete",
    "pre-upgrade",
    "post-upgrade",
    "pre-rollback",
    "post-rollback",
    "test",
    "test-success",
];

/// Splits rendered files into documents and sorts them, hooks last.
pub(super) fn sorted(mut files: Vec<(String, String)>) -> Result<Vec<Manifest>, Error> {
    files.sort();
    let mut manifests = Vec::new();
    for (path, text) in files {
        if path.ends_with("NOTES.txt") {
            continue;
        }
        for document in split(&text) {
            manifests.extend(manifest(&path, document)?);
        }
    }
    manifests.sort_by(|a, b| (a.is_hook, rank(&a.kind)).cmp(&(b.is_hook, rank(&b.kind))));
    Ok(manifests)
}

fn rank(kind: &str) -> (usize, &str) {
    match INSTALL_ORDER.iter().position(|known| *known == kind) {
        Some(at) => (at, ""),
        None => (INSTALL_ORDER.len(), kind),
    }
}

/// The documents of a file: whatever stands between lines that start with `---`.
fn split(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let text = text.trim_start();
    let mut start = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(rest) = line.strip_prefix("---") {
            documents.push(&text[start..at]);
            start = at + line.len() - rest.trim_start_matches([' ', '\t']).len();
        }
        at += line.len();
    }
    documents.push(&text[start..]);
    documents.into_iter().map(str::trim_start).filter(|document| !document.is_empty()).collect()
}

/// A document with what its head says; nothing for a hook of an unknown type.
fn manifest(path: &str, text: &str) -> Result<Option<Manifest>, Error> {
    let head = match yaml::parse_all(text, &Limits::default()).into_iter().next() {
        None => Node::default(),
        Some(document) => document.map_err(|error| Error::Yaml { path: path.to_owned(), error })?.node,
    };
    let kind = head.get("kind").and_then(Node::as_str).unwrap_or_default().to_owned();
    let hook = head.get("metadata").and_then(|metadata| metadata.get("annotations")?.get("helm.sh/hook"));
    let hook = hook.and_then(Node::as_str);
    let known = |hook: &str| HOOKS.contains(&hook.trim().to_ascii_lowercase().as_str());
    if hook.is_some_and(|hooks| !hooks.split(',').all(known)) {
        return Ok(None);
    }
    let manifest = Manifest { source: path.to_owned(), text: text.to_owned(), kind, is_hook: hook.is_some() };
    Ok(Some(manifest))
}
