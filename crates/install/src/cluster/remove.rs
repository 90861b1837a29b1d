use std::time::Duration;

use canopus_api::labels;
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};

use super::apply::Progress;
use super::object::ObjectId;
use super::owner::{OWNER, OWNER_NAMESPACE};
use super::{ClusterError, Installer, Owner, asking};

/// What an uninstallation takes away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The control plane of a revision, and what was installed with it.
    Revision(String),
    /// What was installed from one IstioOperator.
    Owner(Owner),
    /// All of it, with the definitions of kinds (and so all objects of them), the root and the namespaces that were made.
    Purge {
        /// The namespace of the mesh.
        namespace: String,
    },
}

/// Labels of what the control plane itself wrote.
const WRITTEN: &str = "istio.io/config=true";

/// What is deleted first: whatever is asked or runs.
const EARLY: [&str; 8] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "HorizontalPodAutoscaler",
    "PodDisruptionBudget",
    "Deployment",
    "DaemonSet",
];

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// The definition of IstioOperators.
const OPERATORS: &str = "istiooperators.install.istio.io";

impl Installer {
    /// The objects that a removal would delete, in order.
    pub async fn to_remove(&mut self, removal: &Removal) -> Result<Vec<ObjectId>, ClusterError> {
        let component = labels::OPERATOR_COMPONENT.name;
        match removal {
            Removal::Revision(revision) => {
                self.owned(&format!("{component},{}={revision}", labels::REVISION.name)).await
            }
            Removal::Owner(owner) => self.installed_by(owner).await,
            Removal::Purge { namespace } => self.everything(namespace).await,
        }
    }

    /// What an owner installed. The base is shared: it goes with the last control plane, whoever installed it.
    async fn installed_by(&mut self, owner: &Owner) -> Result<Vec<ObjectId>, ClusterError> {
        let component = labels::OPERATOR_COMPONENT.name;
        let own = format!("{OWNER}={},{OWNER_NAMESPACE}={}", owner.name, owner.namespace);
        let all_planes = self.listed(DEPLOYMENT, &format!("{component}=Pilot")).await?;
        let own_planes = self.listed(DEPLOYMENT, &format!("{component}=Pilot,{own}")).await?;
        let mut found = self.owned(&format!("{component},{component}!=Base,{own}")).await?;
        if all_planes.iter().all(|plane| own_planes.contains(plane)) {
            let whose = if own_planes.is_empty() { format!(",{own}") } else { String::new() };
            found.extend(self.owned(&format!("{component}=Base{whose}")).await?);
        }
        Ok(found)
    }

    async fn everything(&mut self, namespace: &str) -> Result<Vec<ObjectId>, ClusterError> {
        let mut found = self.owned(labels::OPERATOR_COMPONENT.name).await?;
        // Charts of Istio label their objects less than the installer does.
        found.extend(self.owned("app.kubernetes.io/part-of=istio").await?);
        found.extend(self.listed(("v1", "ConfigMap"), WRITTEN).await?);
        let definitions = self.listed(DEFINITION, labels::OPERATOR_COMPONENT.name).await?;
        found.extend(definitions);
        found.extend(self.listed(("v1", "Namespace"), labels::OPERATOR_COMPONENT.name).await?);
        let root = ObjectId::new("v1", "Secret", namespace, "istio-ca-secret");
        if self.read(&root).await?.is_some() {
            found.push(root);
        }
        let mut seen = std::collections::BTreeSet::new();
        found.retain(|object| seen.insert(object.clone()));
        // The account and the rights of the control plane go last but for definitions, and the namespace goes at the very end.
        found.sort_by_key(|object| match object.kind.as_str() {
            "CustomResourceDefinition" => 1,
            "Namespace" => 2,
            _ => 0,
        });
        Ok(found)
    }

    async fn listed(&mut self, kind: (&str, &str), selector: &str) -> Result<Vec<ObjectId>, ClusterError> {
        let all = ObjectId::new(kind.0, kind.1, "", "");
        let Some(path) = self.path(&all).await? else { return Ok(Vec::new()) };
        let items = self.cluster.list_at(&path, selector).await.map_err(|error| asking(kind.1, error))?;
        Ok(items.iter().map(|item: &Json| ObjectId::from_list_item(kind.0, kind.1, item)).collect())
    }

    /// Deletes objects and waits until they are gone.
    ///
    /// Workloads go first, with their pods: a control plane that still runs would write again what is deleted.
    pub async fn remove(
        &mut self,
        objects: &[ObjectId],
        patience: Duration,
        progress: &mut dyn Progress,
    ) -> Result<(), ClusterError> {
        let is_early = |object: &&ObjectId| EARLY.contains(&object.kind.as_str());
        let early: Vec<ObjectId> = objects.iter().filter(is_early).cloned().collect();
        let late: Vec<ObjectId> = objects.iter().filter(|object| !is_early(object)).cloned().collect();
        for stage in [early, late] {
            for object in &stage {
                if object.kind == DEFINITION.1 && object.name == OPERATORS {
                    // The operator is gone by now and cannot remove its finalizers.
                    self.release_operators().await?;
                }
                let was_there = self.delete(object).await?;
                progress.done(object, if was_there { "deleted" } else { "gone already" });
            }
            self.wait_until_gone(stage, patience, progress).await?;
        }
        Ok(())
    }

    async fn wait_until_gone(
        &mut self,
        objects: Vec<ObjectId>,
        patience: Duration,
        progress: &mut dyn Progress,
    ) -> Result<(), ClusterError> {
        let started = Instant::now();
        let mut left = objects;
        while !patience.is_zero() {
            let mut still = Vec::new();
            for object in left {
                if self.read(&object).await?.is_some() {
                    still.push(object);
                }
            }
            if still.is_empty() {
                return Ok(());
            }
            let pending: Vec<String> =
                still.iter().map(|object| format!("{object}: is being deleted")).collect();
            if started.elapsed() >= patience {
                return Err(ClusterError::NotReady { seconds: patience.as_secs(), pending });
            }
            progress.waiting(&pending);
            left = still;
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
}
