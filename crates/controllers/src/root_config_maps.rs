//! The root certificate and the revocation lists in a ConfigMap of each namespace, for pods to mount.

use std::any::Any;
use std::sync::Arc;

use canopus_api::kube::{ConfigMap, Namespace};
use canopus_api::{Kind, Object, ObjectKey};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::world::{MeshSettings, ObjectIndex, Objects, Origin, is_namespace_discovered, settings};
use canopus_runtime::flags::{
    ENABLE_CLUSTER_TRUST_BUNDLE_API, ISTIO_WATCH_NAMESPACE, PILOT_CA_CERT_CONFIGMAP, PILOT_CRL_CONFIGMAP,
    PILOT_ENABLE_CA_CRL,
};
use jiff::Timestamp;
use serde_json::json;

use crate::controller::{Basis, Change, Controller, Ownership, Plan, Write};
use crate::trust::DistributedRoots;

/// The key of the root certificates.
const ROOT_CERT: &str = "root-cert.pem";

/// The key of the revocation lists.
const CA_CRL: &str = "ca-crl.pem";

/// Namespaces of Kubernetes itself in which nothing of a mesh runs. Parity: kube-system is not one, for ztunnels run there.
const IGNORED: [&str; 3] = ["kube-public", "kube-node-lease", "local-path-storage"];

/// Writes `istio-ca-root-cert` and `istio-ca-crl` into the namespaces of the mesh in one cluster.
#[derive(Clone, Debug)]
pub struct RootConfigMapController {
    /// The cluster; the control plane's own, or a remote one that lets it write.
    pub cluster: Arc<str>,
}

impl Controller for RootConfigMapController {
    fn name(&self) -> &'static str {
        "root-config-maps"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<PendingConfigMaps>(&self.cluster)?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<PendingConfigMaps>(world, &self.cluster)
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<PendingConfigMaps>(Arc::clone(&self.cluster))))
    }
}

/// The ConfigMaps of a cluster that are missing or say something else.
struct PendingConfigMaps;

impl Query for PendingConfigMaps {
    const NAME: &'static str = "pending_root_config_maps";
    type Key = Arc<str>;
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, cluster: &Arc<str>) -> Self::Value {
        let settings = settings(ctx);
        if settings.flags.get(ENABLE_CLUSTER_TRUST_BUNDLE_API) || ctx.read::<DistributedRoots>(&()).is_none()
        {
            return Vec::new();
        }
        let namespaces = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::Namespace));
        let own: Vec<Origin> =
            namespaces.iter().filter(|origin| origin.cluster == *cluster).cloned().collect();
        ctx.get_all::<PendingInNamespace>(&own).iter().flat_map(|writes| writes.to_vec()).collect()
    }
}

/// The writes that one namespace needs.
struct PendingInNamespace;

impl Query for PendingInNamespace {
    const NAME: &'static str = "pending_root_config_maps_in_namespace";
    type Key = Origin;
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, namespace: &Origin) -> Self::Value {
        let settings = settings(ctx);
        let Some(roots) = ctx.read::<DistributedRoots>(&()) else { return Vec::new() };
        if !is_served(ctx, &settings, namespace) {
            return Vec::new();
        }
        let flags = &settings.flags;
        let writes = [
            pending(ctx, namespace, flags.get(PILOT_CA_CERT_CONFIGMAP), ROOT_CERT, &roots.roots),
            pending(ctx, namespace, flags.get(PILOT_CRL_CONFIGMAP), CA_CRL, &roots.crl)
                .filter(|_| flags.get(PILOT_ENABLE_CA_CRL)),
        ];
        writes.into_iter().flatten().collect()
    }
}

/// Whether a namespace gets the ConfigMaps.
fn is_served(ctx: &Ctx<'_>, settings: &MeshSettings, origin: &Origin) -> bool {
    let name = origin.name();
    let watched = settings.flags.get(ISTIO_WATCH_NAMESPACE);
    let object = ctx.read::<Objects>(origin);
    let Some(namespace) = object.as_deref().and_then(Object::get::<Namespace>) else { return false };
    let is_ending = &*namespace.status.phase == "Terminating" || namespace.meta.deletion_timestamp.is_some();
    !is_ending
        && !IGNORED.contains(&name)
        && (watched.is_empty() || watched == name)
        && is_namespace_discovered(ctx, &origin.cluster, name)
}

/// The write that makes a ConfigMap say this under a key; other keys and labels are of no concern.
fn pending(ctx: &Ctx<'_>, namespace: &Origin, name: &str, key: &str, text: &str) -> Option<Arc<Write>> {
    let target = ObjectKey::new(Kind::ConfigMap, namespace.name(), name);
    let present = ctx.read::<Objects>(&Origin::new(namespace.cluster.clone(), target.clone()));
    let present = present.as_deref().and_then(Object::get::<ConfigMap>).and_then(|map| map.spec.get(key));
    // An empty text needs no ConfigMap.
    if present.unwrap_or_default() == text {
        return None;
    }
    let fields = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace.name(),
            "labels": {"istio.io/config": "true"},
        },
        "data": {key: text},
    });
    Some(Arc::new(Write { target, change: Change::Apply { fields, ownership: Ownership::Take } }))
}

#[cfg(test)]
mod tests {
    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::Batch;
    use canopus_mesh::world::Settings;
    use canopus_proto::istio::mesh::v1alpha1::LabelSelector;
    use canopus_runtime::flags::Flags;

    use super::*;
    use crate::testing::{objects, plan, world};
    use crate::trust::Roots;

    const NAMESPACES: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {mesh: 'yes'}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-public}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: local-path-storage}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: leaving}, status: {phase: Terminating}}
";

    fn with_roots(documents: &str, crl: &str) -> Engine {
        let engine = world(documents);
        let mut batch = Batch::new();
        batch.set::<DistributedRoots>((), Roots { roots: "ROOT".into(), crl: crl.into() });
        engine.apply(batch);
        engine
    }

    fn targets(engine: &Engine) -> Vec<String> {
        targets_in(engine, &MeshSettings::default().cluster)
    }

    fn targets_in(engine: &Engine, cluster: &str) -> Vec<String> {
        let writes = plan(&RootConfigMapController { cluster: cluster.into() }, engine).writes;
        writes.iter().map(|write| format!("{}/{}", write.target.namespace, write.target.name)).collect()
    }

    #[test]
    fn namespaces_of_the_mesh_get_the_root_when_there_is_one() {
        assert!(targets(&world(NAMESPACES)).is_empty());
        let engine = with_roots(NAMESPACES, "");
        assert_eq!(targets(&engine), ["kube-system/istio-ca-root-cert", "shop/istio-ca-root-cert"]);
        let engine = with_roots(NAMESPACES, "CRL");
        assert_eq!(targets(&engine).len(), 4);
    }

    #[test]
    fn each_cluster_has_a_controller_of_its_own() {
        let engine = with_roots(NAMESPACES, "");
        assert!(targets_in(&engine, "west").is_empty());
        let mut batch = Batch::new();
        for read in decode_documents(NAMESPACES, &Limits::default(), Options::watch()) {
            let object = read.unwrap().value;
            batch.set::<Objects>(Origin::new("west", object.key()), object);
        }
        engine.apply(batch);
        assert_eq!(
            targets_in(&engine, "west"),
            ["kube-system/istio-ca-root-cert", "shop/istio-ca-root-cert"]
        );
        assert_eq!(targets(&engine).len(), 2);
    }

    #[test]
    fn selectors_and_the_watched_namespace_narrow_down_who_gets_it() {
        let engine = with_roots(NAMESPACES, "");
        let mut settings = MeshSettings::default();
        let match_labels = [("mesh".to_owned(), "yes".to_owned())].into_iter().collect();
        settings.mesh.discovery_selectors = vec![LabelSelector { match_labels, ..LabelSelector::default() }];
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        engine.apply(batch);
        assert_eq!(targets(&engine), ["shop/istio-ca-root-cert"]);

        let flags = Arc::new(Flags::read(&[("ISTIO_WATCH_NAMESPACE", "kube-system")]));
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings { flags, ..MeshSettings::default() });
        engine.apply(batch);
        assert_eq!(targets(&engine), ["kube-system/istio-ca-root-cert"]);
    }

    #[test]
    fn drift_of_the_value_counts_and_other_keys_and_labels_do_not() {
        let engine = with_roots("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "");
        let say = |data: &str| {
            engine.apply(objects(&format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: istio-ca-root-cert, namespace: shop}}, data: {data}}}"
            )));
            targets(&engine).len()
        };
        assert_eq!(say("{root-cert.pem: ROOT, extra: kept}"), 0);
        assert_eq!(say("{root-cert.pem: tampered, extra: kept}"), 1);
        assert_eq!(say("{extra: kept}"), 1);
        let mut batch = Batch::new();
        batch.set::<DistributedRoots>((), Roots { roots: "NEXT".into(), crl: "".into() });
        engine.apply(batch);
        assert_eq!(say("{root-cert.pem: ROOT}"), 1);
    }

    #[test]
    fn revocation_lists_that_are_withdrawn_are_emptied() {
        let engine = with_roots("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "");
        engine.apply(objects(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-ca-root-cert, namespace: shop}, data: {root-cert.pem: ROOT}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-ca-crl, namespace: shop}, data: {ca-crl.pem: OLD}}",
        ));
        assert_eq!(targets(&engine), ["shop/istio-ca-crl"]);
    }
}
