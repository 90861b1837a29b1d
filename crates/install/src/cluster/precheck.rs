//! What is in the way of an installation, found before anything is changed.

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::labels;
use serde_json::Value as Json;

use super::object::ObjectId;
use super::{ClusterError, Installer, Owner, asking};
use crate::Generated;
use crate::package::OLDEST_KUBERNETES;

/// A fact about the cluster that an installer should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the installation would not work.
    pub is_error: bool,
    /// What it is and what to do.
    pub message: String,
}

const INJECTORS: (&str, &str) = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");

impl Installer {
    /// The version of Kubernetes, without the letter in front.
    pub async fn kubernetes_version(&mut self) -> Result<String, ClusterError> {
        let version = self.cluster.server_version().await.map_err(|error| asking("its version", error))?;
        Ok(version.trim_start_matches('v').to_owned())
    }

    /// Looks for what is in the way of installing this.
    pub async fn precheck(
        &mut self,
        generated: &Generated,
        owner: &Owner,
    ) -> Result<Vec<Finding>, ClusterError> {
        let mut findings = Vec::new();
        let version = self.kubernetes_version().await?;
        if let (Some(has), Some(needs)) = (minor(&version), minor(OLDEST_KUBERNETES))
            && has < needs
        {
            let oldest = OLDEST_KUBERNETES.trim_end_matches(".0");
            findings.push(error(format!(
                "Kubernetes is {version}, but {oldest} or newer is needed: upgrade the cluster"
            )));
        }
        findings.extend(self.missing_rights(generated, owner).await?);
        if findings.iter().any(|finding| finding.is_error) {
            // What follows would only fail for the same reasons.
            return Ok(findings);
        }
        findings.extend(self.helm_release(owner).await?);
        findings.extend(self.other_defaults(owner).await?);
        findings.extend(self.leftovers(generated).await?);
        Ok(findings)
    }

    /// Rights that the installation needs and this user lacks, all at once: found one by one they would take an administrator
    /// as many times.
    async fn missing_rights(
        &mut self,
        generated: &Generated,
        owner: &Owner,
    ) -> Result<Option<Finding>, ClusterError> {
        let mut asked = BTreeSet::new();
        let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for manifest in &generated.manifests {
            let object = ObjectId::from_manifest(manifest);
            // Kinds that the installation itself defines cannot be asked about yet.
            let Some(found) = self.resource_type(&object).await? else { continue };
            let namespace = match (found.is_namespaced, object.namespace.as_str()) {
                (false, _) => "",
                (true, "") => &owner.namespace,
                (true, namespace) => namespace,
            };
            if !asked.insert((found.api_version.clone(), found.plural.clone(), namespace.to_owned())) {
                continue;
            }
            for verb in ["get", "create", "patch"] {
                let allowed = self.cluster.may_i(verb, &found, namespace).await;
                if !allowed.map_err(|error| asking("rights", error))? {
                    let place = if namespace.is_empty() { "" } else { " in namespace " };
                    missing
                        .entry(format!("{}{place}{namespace}", found.group_resource()))
                        .or_default()
                        .push(verb);
                }
            }
        }
        if missing.is_empty() {
            return Ok(None);
        }
        let lines: String =
            missing.iter().map(|(what, verbs)| format!("\n  {} {what}", verbs.join(", "))).collect();
        Ok(Some(error(format!(
            "this user lacks rights in the cluster:{lines}\nrun this as an administrator (such as with the role cluster-admin), or have one grant these"
        ))))
    }

    /// Webhooks of meshes that are gone: whatever they are asked about fails or waits for a timeout.
    async fn leftovers(&mut self, generated: &Generated) -> Result<Vec<Finding>, ClusterError> {
        let mut findings = Vec::new();
        for kind in [INJECTORS.1, "ValidatingWebhookConfiguration"] {
            let all = ObjectId::new(INJECTORS.0, kind, "", "");
            let Some(path) = self.path(&all).await? else { continue };
            let items = self.cluster.list_at(&path, labels::REVISION.name).await;
            for item in items.map_err(|error| asking("webhooks", error))? {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                if generated.manifests.iter().any(|own| own.kind() == kind && own.name() == name) {
                    continue;
                }
                let service = item.pointer("/webhooks/0/clientConfig/service").cloned().unwrap_or_default();
                let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
                let service = ObjectId::new("v1", "Service", &text("namespace"), &text("name"));
                if service.name.is_empty() || self.read(&service).await?.is_some() {
                    continue;
                }
                findings.push(Finding {
                    is_error: false,
                    message: format!(
                        "the webhook {name} asks {service}, which does not exist: it is left over from another installation and keeps what it is asked about from being created; remove it: kubectl delete {} {name}",
                        kind.to_lowercase()
                    ),
                });
            }
        }
        Ok(findings)
    }

    /// A control plane that Helm keeps would be changed back by its next upgrade.
    async fn helm_release(&mut self, owner: &Owner) -> Result<Option<Finding>, ClusterError> {
        let name = match owner.revision.as_str() {
            "default" => "istiod".to_owned(),
            revision => format!("istiod-{revision}"),
        };
        let object = ObjectId::new("apps/v1", "Deployment", &owner.namespace, &name);
        let Some(live) = self.read(&object).await? else { return Ok(None) };
        let release = live["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str();
        Ok(release.map(|release| {
            error(format!(
                "{object} belongs to the Helm release {release}: upgrade that with Helm, or install another revision beside it with --revision"
            ))
        }))
    }

    /// Two injectors that answer for the same namespaces inject twice.
    async fn other_defaults(&mut self, owner: &Owner) -> Result<Vec<Finding>, ClusterError> {
        let all = ObjectId::new(INJECTORS.0, INJECTORS.1, "", "");
        let Some(path) = self.path(&all).await? else { return Ok(Vec::new()) };
        let items = self.cluster.list_at(&path, labels::REVISION.name).await;
        let items = items.map_err(|error| asking("webhooks", error))?;
        let label = |item: &Json, name: &str| {
            item["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned()
        };
        let is_other = |item: &&Json| {
            let revision = label(item, labels::REVISION.name);
            let namespace = item.pointer("/webhooks/0/clientConfig/service/namespace").and_then(Json::as_str);
            let is_elsewhere = namespace.is_some_and(|namespace| namespace != owner.namespace);
            owner.revision == "default" && injects_unlabelled(item) && (revision != "default" || is_elsewhere)
        };
        let finding = |item: &Json| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let remedy = match label(item, labels::TAG.name).as_str() {
                "" => format!(
                    "remove it, or install with --revision: kubectl delete mutatingwebhookconfiguration {name}"
                ),
                tag => {
                    format!("move the tag afterwards, or install with --revision: canopus tag remove {tag}")
                }
            };
            error(format!(
                "the webhook {name} already injects namespaces labelled istio-injection=enabled: {remedy}"
            ))
        };
        Ok(items.iter().filter(is_other).map(finding).collect())
    }
}

/// Whether a webhook configuration answers for namespaces that name no revision.
fn injects_unlabelled(configuration: &Json) -> bool {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks
        .flat_map(|webhook| webhook.pointer("/namespaceSelector/matchExpressions").and_then(Json::as_array))
        .flatten()
        .any(|expression| expression["key"] == "istio-injection" && expression["operator"] == "In")
}

fn error(message: String) -> Finding {
    Finding { is_error: true, message }
}

/// The minor version of Kubernetes 1.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.split(['.', '+', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn version_is_compared_by_its_minor() {
        assert_eq!(minor("1.36.3"), Some(36));
        assert_eq!(minor("1.32.0-gke.5"), Some(32));
        assert_eq!(minor("2.0"), None);
    }

    #[test]
    fn webhook_for_labelled_namespaces_is_told_from_one_for_a_revision() {
        let webhook = |key: &str| {
            let expression = json!({"key": key, "operator": "In", "values": ["enabled"]});
            json!({"webhooks": [{"namespaceSelector": {"matchExpressions": [expression]}}]})
        };
        assert!(injects_unlabelled(&webhook("istio-injection")));
        assert!(!injects_unlabelled(&webhook("istio.io/rev")));
    }
}
