//! The EnvoyFilters that apply to a proxy, in the order in which their patches are applied.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::EnvoyFilter;
use canopus_engine::{Ctx, Query};

use crate::attachment::{PolicyAttachment, PolicyTarget};
use crate::world::{ObjectIndex, Origin, indexed_objects, settings};

/// The EnvoyFilters that apply to a proxy, from the root namespace and its own. Sorted by priority, then the root
/// namespace's first, then by age.
pub struct EnvoyFilters;

impl Query for EnvoyFilters {
    const NAME: &'static str = "envoy_filters";
    type Key = PolicyTarget;
    type Value = Vec<(Origin, Arc<EnvoyFilter>)>;

    fn run(ctx: &Ctx<'_>, target: &PolicyTarget) -> Self::Value {
        let settings = settings(ctx);
        let root = settings.root_namespace();
        let subject = target.subject(ctx);
        let namespaces = BTreeSet::from([root, &target.namespace]);
        let mut selected: Vec<_> = namespaces
            .into_iter()
            .flat_map(|namespace| in_namespace(ctx, namespace))
            .filter(|(origin, filter)| subject.is_targeted_by(&claim(origin, filter)))
            .collect();
        selected.sort_by_cached_key(|(origin, filter)| {
            let name = format!("{}.{}", origin.name(), origin.namespace());
            let age = filter.meta.creation_timestamp;
            (filter.spec.priority, origin.namespace() != root, age, name)
        });
        selected
    }
}

fn in_namespace(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<EnvoyFilter>)> {
    indexed_objects(ctx, &ObjectIndex::Namespace(Kind::EnvoyFilter, namespace.into()))
}

fn claim<'a>(origin: &'a Origin, filter: &'a EnvoyFilter) -> PolicyAttachment<'a> {
    PolicyAttachment {
        namespace: origin.namespace(),
        selector: filter.spec.workload_selector.as_ref().map(|selector| &selector.labels),
        targets: &filter.spec.target_refs,
    }
}
