//! Which EnvoyFilters are for a proxy, in the order their patches apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::EnvoyFilter;
use canopus_engine::{Ctx, Query};

use crate::attachment::{Claim, Subject};
use crate::proxy::View;
use crate::world::{Origin, Shelf, objects_of, objects_on, settings};

/// The EnvoyFilters of a view: those of the root namespace and of its own that are for it, by priority, then the root
/// namespace's first, then by age.
pub struct EnvoyFilters;

impl Query for EnvoyFilters {
    const NAME: &'static str = "envoy_filters";
    type Key = View;
    type Value = Vec<(Origin, Arc<EnvoyFilter>)>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Self::Value {
        let settings = settings(ctx);
        let root = settings.root_namespace();
        let subject = Subject::of(ctx, view);
        let namespaces = BTreeSet::from([root, &view.namespace]);
        let mut selected: Vec<_> = namespaces
            .into_iter()
            .flat_map(|namespace| in_namespace(ctx, namespace))
            .filter(|(origin, filter)| subject.is_meant_by(&claim(origin, filter)))
            .collect();
        selected.sort_by_cached_key(|(origin, filter)| {
            let name = format!("{}.{}", origin.name(), origin.namespace());
            let age = filter.meta.creation_timestamp;
            (filter.spec.priority, origin.namespace() != root, age, name)
        });
        selected
    }
}

/// The node metadata that some EnvoyFilter looks at: proxies that differ in it cannot share what they get.
pub struct MatchedMetadata;

impl Query for MatchedMetadata {
    const NAME: &'static str = "envoy_filter_metadata";
    type Key = ();
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let filters = objects_of::<EnvoyFilter>(ctx);
        let patches = filters.iter().flat_map(|(_, filter)| &filter.spec.config_patches);
        let proxies = patches.filter_map(|patch| patch.r#match.as_ref()?.proxy.as_ref());
        proxies.flat_map(|proxy| proxy.metadata.keys().cloned()).collect()
    }
}

fn in_namespace(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<EnvoyFilter>)> {
    objects_on(ctx, &Shelf::Namespace(Kind::EnvoyFilter, namespace.into()))
}

fn claim<'a>(origin: &'a Origin, filter: &'a EnvoyFilter) -> Claim<'a> {
    Claim {
        namespace: origin.namespace(),
        selector: filter.spec.workload_selector.as_ref().map(|selector| &selector.labels),
        targets: &filter.spec.target_refs,
    }
}
