//! VirtualServices derived from routes. Routes of one listener and host share a VirtualService.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::{Kind, annotations, istio};
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_ENABLE_GATEWAY_API;
use jiff::Timestamp;

use super::matching;
use super::route::{DerivedRoute, RouteOf};
use crate::world::{ObjectIndex, Objects, Origin, settings};

/// The routes that share a VirtualService, by the key of [`DerivedRoute`].
pub struct RouteGroups;

impl Query for RouteGroups {
    const NAME: &'static str = "route_groups";
    type Key = ();
    type Value = BTreeMap<Arc<str>, Vec<Origin>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        let mut groups = Self::Value::new();
        if !settings.flags.get(PILOT_ENABLE_GATEWAY_API) {
            return groups;
        }
        for kind in [Kind::HttpRoute, Kind::GrpcRoute, Kind::TcpRoute, Kind::TlsRoute] {
            for origin in ctx.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
                if origin.cluster != settings.cluster {
                    continue;
                }
                for routed in &ctx.get::<RouteOf>(origin).virtual_services {
                    let group = groups.entry(routed.key.clone()).or_default();
                    if group.last() != Some(origin) {
                        group.push(origin.clone());
                    }
                }
            }
        }
        groups
    }
}

/// The routes of one group.
struct RouteGroup;

impl Query for RouteGroup {
    const NAME: &'static str = "route_group";
    type Key = Arc<str>;
    type Value = Vec<Origin>;

    fn run(ctx: &Ctx<'_>, key: &Arc<str>) -> Self::Value {
        ctx.get::<RouteGroups>(&()).get(key).cloned().unwrap_or_default()
    }
}

/// The VirtualService of a group of routes, merged oldest first and sorted by match precedence.
pub struct DerivedVirtualService;

impl Query for DerivedVirtualService {
    const NAME: &'static str = "derived_virtual_service";
    /// The key of [`DerivedRoute`].
    type Key = Arc<str>;
    type Value = Option<Arc<istio::VirtualService>>;

    fn run(ctx: &Ctx<'_>, key: &Arc<str>) -> Self::Value {
        let mut parts: Vec<DerivedRoute> = Vec::new();
        for origin in ctx.get::<RouteGroup>(key).iter() {
            let facts = ctx.get::<RouteOf>(origin);
            let of_group = facts.virtual_services.iter().filter(|routed: &&DerivedRoute| routed.key == *key);
            parts.extend(of_group.cloned());
        }
        parts.sort_by(|a, b| order(a).cmp(&order(b)));
        merge(&parts)
    }
}

/// Sorts by age, then namespace, then name.
fn order(routed: &DerivedRoute) -> (Option<Timestamp>, &str, &str) {
    let meta = &routed.object.meta;
    (meta.creation_timestamp, &meta.namespace, &routed.rank)
}

/// The names of the routes behind a VirtualService.
fn parents(object: &istio::VirtualService) -> &str {
    object.meta.annotation(annotations::INTERNAL_PARENTS.name).unwrap_or_default()
}

fn merge(parts: &[DerivedRoute]) -> Option<Arc<istio::VirtualService>> {
    let (first, others) = parts.split_first()?;
    if others.is_empty() {
        return Some(first.object.clone());
    }
    let mut merged = first.object.as_ref().clone();
    for DerivedRoute { object: other, .. } in others {
        merged.spec.http.extend(other.spec.http.iter().cloned());
        let names = format!("{},{}", parents(&merged), parents(other));
        merged.meta.annotations.insert(annotations::INTERNAL_PARENTS.name, names);
    }
    matching::sort(&mut merged.spec.http);
    Some(Arc::new(merged))
}
