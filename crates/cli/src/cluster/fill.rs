//! The objects of a cluster for analysis.

use std::sync::Arc;

use anyhow::Context as _;
use canopus_analysis::analyzer;
use canopus_analysis::{Resource, World};
use canopus_api::registry::Category;
use canopus_api::{Kind, labels, mesh_config};
use canopus_base::tree::Node;

use super::Cluster;

/// Kinds that clusters of the control plane alone are asked for.
const HOME_KINDS: [Kind; 4] = [
    Kind::Deployment,
    Kind::ConfigMap,
    Kind::ValidatingWebhookConfiguration,
    Kind::MutatingWebhookConfiguration,
];

impl Cluster {
    /// Adds the objects that analyzers read, and the mesh configuration of a revision.
    pub(crate) fn fill(&self, world: &mut World, cluster: &str, revision: &str) -> anyhow::Result<()> {
        let kinds = Kind::ALL
            .iter()
            .copied()
            .filter(|kind| analyzer::reads(*kind) || kind.info().category == Category::Istio);
        self.add(kinds, world, cluster, revision)?;
        self.read_mesh_config(world, revision)
    }

    /// Adds the objects of a cluster that the control plane runs elsewhere for.
    pub(crate) fn fill_remote(&self, world: &mut World, cluster: &str) -> anyhow::Result<()> {
        let kinds = Kind::ALL.iter().copied().filter(|kind| {
            analyzer::reads(*kind)
                && kind.info().category == Category::Kubernetes
                && !HOME_KINDS.contains(kind)
        });
        self.add(kinds, world, cluster, "default")
    }

    fn add(
        &self,
        kinds: impl Iterator<Item = Kind>,
        world: &mut World,
        cluster: &str,
        revision: &str,
    ) -> anyhow::Result<()> {
        let cluster: Arc<str> = cluster.into();
        let system_namespace = world.system_namespace.clone();
        for kind in kinds {
            let namespace = if kind == Kind::ConfigMap { &*system_namespace } else { "" };
            for document in self.list(kind, namespace)? {
                // What the control plane itself could not read is not analyzed either.
                let Ok(resource) = Resource::read(kind, document, "", &cluster, None) else { continue };
                if counts(&resource, revision) {
                    world.insert_if_absent(resource);
                }
            }
        }
        Ok(())
    }

    fn read_mesh_config(&self, world: &mut World, revision: &str) -> anyhow::Result<()> {
        let name = if revision == "default" { "istio".to_owned() } else { format!("istio-{revision}") };
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", world.system_namespace);
        let Some(config) = self.get(&path)? else { return Ok(()) };
        let data = |key: &str| config.get("data")?.get(key)?.as_str().map(str::to_owned);
        if let Some(text) = data("mesh") {
            let applied = mesh_config::apply(&text, &mesh_config::default_mesh_config());
            world.mesh_config = applied.with_context(|| format!("ConfigMap {name}: mesh"))?.value;
        }
        if let Some(text) = data("meshNetworks") {
            let read = mesh_config::read_networks(&text);
            world.mesh_networks = read.with_context(|| format!("ConfigMap {name}: meshNetworks"))?.value;
        }
        Ok(())
    }
}

/// Whether an object is for this revision, and is one that analyzers look at.
fn counts(resource: &Resource, revision: &str) -> bool {
    let is_for_revision = match resource.object.kind().info().category {
        Category::Istio => resource.labels().get(&labels::REVISION).is_none_or(|label| label == revision),
        _ => true,
    };
    let text = |pointer: &str| resource.document.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
    is_for_revision
        && match resource.object.kind() {
            Kind::ConfigMap => {
                resource.name().starts_with("istio")
                    && resource.annotation("control-plane.alpha.kubernetes.io/leader").is_none()
            }
            Kind::Secret => {
                !matches!(text("/type"), "helm.sh/release.v1" | "kubernetes.io/service-account-token")
            }
            _ => true,
        }
}
