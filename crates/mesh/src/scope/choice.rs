//! Which Sidecar applies to a proxy.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Sidecar;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_engine::Ctx;

use super::ScopeKey;
use crate::world::{ObjectIndex, Origin, indexed_objects, oldest_first, settings};

/// Chooses the scope of a proxy by its kind, namespace and labels.
pub(crate) fn choose(ctx: &Ctx<'_>, kind: NodeKind, namespace: &Arc<str>, labels: &Labels) -> ScopeKey {
    if kind != NodeKind::Sidecar {
        return ScopeKey::Gateways(namespace.clone());
    }
    ScopeKey::Sidecars(namespace.clone(), sidecar_for(ctx, namespace, labels))
}

/// Finds the Sidecar of a workload: the oldest that selects it, else the oldest without a selector, else that of the root
/// namespace.
fn sidecar_for(ctx: &Ctx<'_>, namespace: &str, labels: &Labels) -> Option<Origin> {
    let of_namespace = sidecars_in(ctx, namespace);
    let selects = |sidecar: &Sidecar| {
        let selector = sidecar.spec.workload_selector.as_ref()?;
        Some(selector.labels.iter().all(|(key, value)| labels.get(key) == Some(value)))
    };
    let selecting = of_namespace.iter().find(|(_, sidecar)| selects(sidecar) == Some(true));
    let general = of_namespace.iter().find(|(_, sidecar)| selects(sidecar).is_none());
    if let Some((origin, _)) = selecting.or(general) {
        return Some(origin.clone());
    }
    let root = sidecars_in(ctx, settings(ctx).root_namespace());
    root.into_iter().find(|(_, sidecar)| sidecar.spec.workload_selector.is_none()).map(|(origin, _)| origin)
}

fn sidecars_in(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<Sidecar>)> {
    let mut sidecars =
        indexed_objects::<Sidecar>(ctx, &ObjectIndex::Namespace(Kind::Sidecar, namespace.into()));
    oldest_first(&mut sidecars);
    sidecars
}
