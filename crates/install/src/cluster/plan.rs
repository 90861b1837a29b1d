use std::collections::BTreeSet;

use canopus_api::labels;
use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_sources::kubernetes::ApplyOptions;
use serde_json::{Value as Json, json};
use similar::TextDiff;

use super::object::ObjectId;
use super::owner::{NOT_PRUNED, OWNER, OWNER_NAMESPACE};
use super::{ClusterError, FIELD_MANAGER, Installer, Owner, asking, refusal};
use crate::component::COMPONENTS;
use crate::{Generated, Manifest};

/// Kinds of objects that installations consist of, the most dependent first: they are deleted in this order.
pub(super) const KINDS: [(&str, &str); 21] = [
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("v1", "Service"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("networking.istio.io/v1alpha3", "EnvoyFilter"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "ServiceAccount"),
    ("v1", "ResourceQuota"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"),
];

/// What applying an object amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The object does not exist yet.
    Create,
    /// The object is changed; the difference as lines with `-` and `+`.
    Change(String),
    /// The object is as it should be.
    Keep,
}

/// One object of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which object.
    pub object: ObjectId,
    /// What happens to it.
    pub action: Action,
    /// The fields that are applied.
    pub manifest: Manifest,
}

/// What an installation does to a cluster.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Objects that are applied, in order.
    pub steps: Vec<Step>,
    /// Objects of the same owner that are not part of the installation any more.
    pub prune: Vec<ObjectId>,
}

impl Plan {
    /// Whether nothing is created, changed or deleted.
    pub fn is_empty(&self) -> bool {
        self.prune.is_empty() && self.steps.iter().all(|step| step.action == Action::Keep)
    }
}

impl Installer {
    /// Asks the API server what applying would do, object by object; nothing is changed.
    pub async fn plan(&mut self, generated: &Generated, owner: &Owner) -> Result<Plan, ClusterError> {
        let mut manifests = vec![namespace(owner)];
        manifests.extend(generated.manifests.iter().cloned());
        // The order within a component is the manifests' own.
        manifests.sort_by_key(|manifest| phase(manifest.component));
        let mut plan = Plan::default();
        for mut manifest in manifests {
            owner.mark(&mut manifest);
            self.complete_namespace(&mut manifest, owner).await?;
            let object = ObjectId::from_manifest(&manifest);
            let live = self.read(&object).await?;
            if let Some(live) = &live {
                leave_policy(&mut manifest, live);
                leave_owner(&mut manifest, live);
            }
            let action = self.action(&object, &manifest, live).await?;
            plan.steps.push(Step { object, action, manifest });
        }
        plan.prune = self.find_unwanted(&plan.steps, owner).await?;
        Ok(plan)
    }

    /// Charts may leave out the namespace of the release.
    async fn complete_namespace(
        &mut self,
        manifest: &mut Manifest,
        owner: &Owner,
    ) -> Result<(), ClusterError> {
        let object = ObjectId::from_manifest(manifest);
        if !object.namespace.is_empty() {
            return Ok(());
        }
        if self.resource_type(&object).await?.is_some_and(|found| found.is_namespaced) {
            manifest.object["metadata"]["namespace"] = json!(owner.namespace);
        }
        Ok(())
    }

    async fn action(
        &mut self,
        object: &ObjectId,
        manifest: &Manifest,
        live: Option<Json>,
    ) -> Result<Action, ClusterError> {
        let Some(live) = live else { return Ok(Action::Create) };
        let Some(path) = self.path(object).await? else { return Ok(Action::Create) };
        let options = ApplyOptions { manager: FIELD_MANAGER, subresource: "", force: true, dry_run: true };
        let applied = self.cluster.apply_at(&path, &manifest.object, options).await;
        let applied = applied.map_err(|error| refusal(object, "change", error))?;
        let (before, after) = (shown(&live), shown(&applied));
        if before == after {
            return Ok(Action::Keep);
        }
        let difference = TextDiff::from_lines(&before, &after);
        Ok(Action::Change(difference.unified_diff().context_radius(2).to_string()))
    }

    async fn find_unwanted(&mut self, steps: &[Step], owner: &Owner) -> Result<Vec<ObjectId>, ClusterError> {
        let wanted: BTreeSet<_> = steps.iter().map(|step| step.object.identity()).collect();
        let mut found = Vec::new();
        for component in &COMPONENTS {
            // Without this label it was not applied from a manifest, as the tags that a command sets.
            let selector =
                format!("{},{}=Reconcile", owner.selector(component.name), labels::OPERATOR_MANAGED.name);
            for object in self.owned(&selector).await? {
                if !wanted.contains(&object.identity()) {
                    found.push(object);
                }
            }
        }
        Ok(found)
    }

    /// Objects with these labels, of all kinds that installations consist of.
    pub(super) async fn owned(&mut self, labels: &str) -> Result<Vec<ObjectId>, ClusterError> {
        let mut found = Vec::new();
        for (api_version, kind) in KINDS {
            let all = ObjectId::new(api_version, kind, "", "");
            let Some(path) = self.path(&all).await? else { continue };
            let items = self.cluster.list_at(&path, labels).await.map_err(|error| asking(kind, error))?;
            let may_go = |item: &&Json| item["metadata"]["labels"][NOT_PRUNED] != "true";
            found.extend(
                items.iter().filter(may_go).map(|item| ObjectId::from_list_item(api_version, kind, item)),
            );
        }
        Ok(found)
    }
}

/// The namespace of the mesh, which charts do not have.
fn namespace(owner: &Owner) -> Manifest {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": owner.namespace}});
    Manifest { object, component: "Base" }
}

/// Keeps the live webhook's `failurePolicy`: the control plane sets it to `Fail` once it has answered.
fn leave_policy(manifest: &mut Manifest, live: &Json) {
    if manifest.kind() != "ValidatingWebhookConfiguration" {
        return;
    }
    for webhook in manifest.object["webhooks"].as_array_mut().into_iter().flatten() {
        let found = live["webhooks"].as_array().into_iter().flatten();
        let found = found.into_iter().find(|found| found["name"] == webhook["name"]);
        if let Some(found) = found
            && webhook["failurePolicy"] == "Ignore"
        {
            webhook["failurePolicy"] = found["failurePolicy"].clone();
        }
    }
}

/// Leaves the base with whoever installed it first: it is shared, and two owners would take it from each other for ever.
fn leave_owner(manifest: &mut Manifest, live: &Json) {
    if manifest.component != "Base" {
        return;
    }
    let own = &live["metadata"]["labels"];
    // Charts that no installer has applied say `unknown`.
    if own[OWNER].as_str().is_none_or(|owner| matches!(owner, "" | "unknown")) {
        return;
    }
    for label in [OWNER, OWNER_NAMESPACE] {
        if own[label].is_string() {
            manifest.object["metadata"]["labels"][label] = own[label].clone();
        }
    }
}

/// When a component's turn comes: what others need comes first.
pub(super) fn phase(component: &str) -> usize {
    match component {
        "Base" => 0,
        "Cni" | "Pilot" => 1,
        _ => 2,
    }
}

/// An object as it is compared and shown: without what the server counts for itself.
fn shown(object: &Json) -> String {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        if let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut) {
            for field in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
                metadata.remove(field);
            }
        }
        // A difference in a secret is shown, its content is not.
        if object.get("kind").is_some_and(|kind| kind == "Secret") {
            for field in ["data", "stringData"] {
                for value in object
                    .get_mut(field)
                    .and_then(Json::as_object_mut)
                    .into_iter()
                    .flat_map(|map| map.values_mut())
                {
                    *value = json!(format!("({} bytes)", value.as_str().map_or(0, str::len)));
                }
            }
        }
    }
    yaml::node_to_string(&Node::from(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_stays_with_whoever_installed_it_first() {
        let labels =
            |owner: &str| json!({"metadata": {"labels": {OWNER: owner, OWNER_NAMESPACE: "istio-system"}}});
        let left = |component: &'static str, live: &str| {
            let mut manifest = Manifest { object: labels("canary"), component };
            leave_owner(&mut manifest, &labels(live));
            manifest.object["metadata"]["labels"][OWNER].as_str().unwrap().to_owned()
        };
        assert_eq!(left("Base", "installed-state"), "installed-state");
        assert_eq!(left("Base", "unknown"), "canary");
        assert_eq!(left("Pilot", "installed-state"), "canary");
    }
}
