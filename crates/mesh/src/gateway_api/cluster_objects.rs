//! Lookups in the cluster whose configuration is converted.

use std::sync::Arc;

use canopus_api::kube::Namespace;
use canopus_api::{Kind, Meta, ObjectKey, Typed};
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};

use crate::service::ServicesByHost;
use crate::world::{
    MeshSettings, ObjectIndex, Objects, Origin, any_object, indexed_objects, object, settings,
};

/// The label with the name of a namespace. Older clusters do not set it.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The objects of the control plane's own cluster, which Gateway API objects are read from.
pub(super) struct ClusterObjects<'a> {
    pub(super) ctx: &'a Ctx<'a>,
    pub(super) settings: Arc<MeshSettings>,
}

impl<'a> ClusterObjects<'a> {
    pub(super) fn new(ctx: &'a Ctx<'a>) -> Self {
        Self { ctx, settings: settings(ctx) }
    }

    pub(super) fn origin(&self, kind: Kind, namespace: &str, name: &str) -> Origin {
        Origin::new(self.settings.cluster.clone(), ObjectKey::new(kind, namespace, name))
    }

    pub(super) fn object<T: Typed>(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        object(self.ctx, &self.origin(T::KIND, namespace, name))
    }

    /// The objects of a type in a namespace.
    pub(super) fn objects_in<T: Typed>(&self, namespace: &str) -> Vec<(Origin, Arc<T>)> {
        indexed_objects(
            self.ctx,
            &ObjectIndex::InCluster(T::KIND, self.settings.cluster.clone(), namespace.into()),
        )
    }

    /// The origins of the objects of a kind in a namespace.
    pub(super) fn origins_in(&self, kind: Kind, namespace: &str) -> Vec<Origin> {
        let index = ObjectIndex::InCluster(kind, self.settings.cluster.clone(), namespace.into());
        self.ctx.members::<Objects>(&index).to_vec()
    }

    /// The objects that refer to another one.
    pub(super) fn referrers(&self, to: &ObjectKey) -> Vec<Origin> {
        let all = self.ctx.members::<Objects>(&ObjectIndex::ReferringTo(to.clone()));
        all.iter().filter(|origin| origin.cluster == self.settings.cluster).cloned().collect()
    }

    pub(super) fn exists(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        *self.ctx.get::<Exists>(&self.origin(kind, namespace, name))
    }

    /// Whether a namespace defines a service with this host.
    pub(super) fn host_exists(&self, host: &str, namespace: &str) -> bool {
        self.ctx.get::<ServicesByHost>(&host.into()).contains_key(namespace)
    }

    /// The host of a Kubernetes Service.
    pub(super) fn service_host(&self, name: &str, namespace: &str) -> String {
        format!("{name}.{namespace}.svc.{}", self.settings.domain)
    }

    /// The labels of a namespace, its name among them; `None` if there is no such namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> Option<Labels> {
        self.object::<Namespace>("", name).map(|namespace| labels_with_name(&namespace.meta))
    }

    /// All namespaces with their labels, by name.
    pub(super) fn namespaces(&self) -> Vec<(Box<str>, Labels)> {
        let all = self.objects_in::<Namespace>("");
        all.into_iter()
            .map(|(origin, namespace)| (origin.key.name, labels_with_name(&namespace.meta)))
            .collect()
    }
}

fn labels_with_name(meta: &Meta) -> Labels {
    let mut labels = meta.labels.clone();
    labels.insert(NAMESPACE_NAME, meta.name.clone());
    labels
}

/// Whether an object exists. Unlike its value, this changes only when it is created or deleted.
struct Exists;

impl Query for Exists {
    const NAME: &'static str = "exists";
    type Key = Origin;
    type Value = bool;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> bool {
        any_object(ctx, origin).is_some()
    }
}
