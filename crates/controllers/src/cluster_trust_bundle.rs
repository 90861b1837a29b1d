//! The root certificates as a ClusterTrustBundle, which pods mount without a ConfigMap of their namespace.

use std::sync::Arc;

use canopus_api::kube::ClusterTrustBundle;
use canopus_api::{Kind, Object, ObjectKey};
use canopus_engine::{QueryError, Snapshot};
use canopus_mesh::world::{Objects, Origin, Settings};
use canopus_runtime::flags::ENABLE_CLUSTER_TRUST_BUNDLE_API;
use jiff::Timestamp;
use serde_json::json;

use crate::controller::{Basis, Change, Controller, Ownership, Plan, Write};
use crate::trust::DistributedRoots;

const NAME: &str = "istio.io:istiod-ca:root-cert";

const SIGNER: &str = "istio.io/istiod-ca";

/// Writes the ClusterTrustBundle of the mesh (`ENABLE_CLUSTER_TRUST_BUNDLE_API`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterTrustBundleController;

impl Controller for ClusterTrustBundleController {
    fn name(&self) -> &'static str {
        "cluster-trust-bundle"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        let settings = world.read::<Settings>(&()).unwrap_or_default();
        let roots = world.read::<DistributedRoots>(&());
        let Some(roots) = roots.filter(|_| settings.flags.get(ENABLE_CLUSTER_TRUST_BUNDLE_API)) else {
            return Ok(Plan::default());
        };
        let target = target();
        let present = world.read::<Objects>(&Origin::new(settings.cluster.clone(), target.clone()));
        let present = present.as_deref().and_then(Object::get::<ClusterTrustBundle>);
        if present.is_some_and(|bundle| *bundle.spec.trust_bundle == *roots.roots) {
            return Ok(Plan::default());
        }
        let fields = json!({
            "apiVersion": Kind::ClusterTrustBundle.info().api_version(),
            "kind": "ClusterTrustBundle",
            "metadata": {"name": NAME},
            "spec": {"signerName": SIGNER, "trustBundle": &*roots.roots},
        });
        let change = Change::Apply { fields, ownership: Ownership::Take };
        Ok(vec![Arc::new(Write { target, change })].into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        let settings = world.read::<Settings>(&()).unwrap_or_default();
        let basis = Basis::default()
            .and_input::<Settings>(world, &())
            .and_input::<DistributedRoots>(world, &())
            .and_input::<Objects>(world, &Origin::new(settings.cluster.clone(), target()));
        Some(basis)
    }
}

fn target() -> ObjectKey {
    ObjectKey::new(Kind::ClusterTrustBundle, "", NAME)
}

#[cfg(test)]
mod tests {
    use canopus_engine::Batch;
    use canopus_mesh::world::MeshSettings;
    use canopus_runtime::flags::Flags;

    use super::*;
    use crate::testing::{objects, plan, world};
    use crate::trust::Roots;

    #[test]
    fn bundle_is_written_when_asked_for_and_different() {
        let engine = world("");
        let mut batch = Batch::new();
        batch.set::<DistributedRoots>((), Roots { roots: "ROOT".into(), crl: "".into() });
        engine.apply(batch);
        assert!(plan(&ClusterTrustBundleController, &engine).writes.is_empty());

        let flags = Arc::new(Flags::read(&[("ENABLE_CLUSTER_TRUST_BUNDLE_API", "true")]));
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings { flags, ..MeshSettings::default() });
        engine.apply(batch);
        assert_eq!(plan(&ClusterTrustBundleController, &engine).writes.len(), 1);
        let says = |text: &str| {
            objects(&format!(
                "{{apiVersion: certificates.k8s.io/v1beta1, kind: ClusterTrustBundle, metadata: {{name: '{NAME}'}}, \
                 spec: {{trustBundle: {text}}}}}"
            ))
        };
        engine.apply(says("ROOT"));
        assert!(plan(&ClusterTrustBundleController, &engine).writes.is_empty());
        engine.apply(says("OTHER"));
        assert_eq!(plan(&ClusterTrustBundleController, &engine).writes.len(), 1);
    }
}
