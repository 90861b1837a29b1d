//! Which Sidecar narrows what a proxy sees.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Sidecar;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};

use super::ScopeKey;
use crate::proxy::View;
use crate::world::{Origin, Shelf, objects_on, oldest_first, settings};

/// Whose scope a view has.
pub(super) struct ScopeOf;

impl Query for ScopeOf {
    const NAME: &'static str = "scope_of";
    type Key = View;
    type Value = ScopeKey;

    fn run(ctx: &Ctx<'_>, view: &View) -> ScopeKey {
        if view.kind != NodeKind::Sidecar {
            return ScopeKey::Gateways(view.namespace.clone());
        }
        ScopeKey::Sidecars(view.namespace.clone(), sidecar_for(ctx, &view.namespace, &view.labels))
    }
}

/// The Sidecar that narrows the scope of a view; only sidecar proxies have one.
pub(crate) fn sidecar_of(ctx: &Ctx<'_>, view: &View) -> Option<Origin> {
    match ctx.get::<ScopeOf>(view).as_ref() {
        ScopeKey::Sidecars(_, sidecar) => sidecar.clone(),
        ScopeKey::Gateways(_) => None,
    }
}

/// The Sidecar of a workload: the oldest that selects it, else the oldest without selector, else that of the root
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
    let mut sidecars = objects_on::<Sidecar>(ctx, &Shelf::Namespace(Kind::Sidecar, namespace.into()));
    oldest_first(&mut sidecars);
    sidecars
}
