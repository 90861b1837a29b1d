//! Clusters that are wanted twice: a service may have a port number, or a rule the name of a subset, more than once.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::proxy::View;
use canopus_mesh::service::Service;

use super::audience::Audience;
use super::{add_services, destinations};

/// The names of a view's clusters that are wanted more than once; the first of each counts.
pub(crate) struct Duplicates;

impl Query for Duplicates {
    const NAME: &'static str = "duplicate_clusters";
    type Key = View;
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Self::Value {
        let audience = Audience::of(ctx, view);
        let mut duplicates = BTreeSet::new();
        for (purpose, services) in destinations(ctx, view) {
            let repeating = services.iter().filter(|service| may_repeat(ctx, view, service));
            let services = repeating.cloned().collect::<Vec<_>>().into();
            let (mut names, mut clusters) = (BTreeSet::new(), Vec::new());
            add_services(&mut clusters, ctx, view, &audience, &services, purpose);
            for cluster in clusters {
                if !names.insert(cluster.name.clone()) {
                    duplicates.insert(cluster.name.to_string());
                }
            }
        }
        duplicates
    }
}

/// Whether two clusters of a service may have the same name; a scope has one service for each host.
fn may_repeat(ctx: &Ctx<'_>, view: &View, service: &Arc<Service>) -> bool {
    let mut ports = BTreeSet::new();
    if !service.ports.iter().all(|port| ports.insert(port.number)) {
        return true;
    }
    let Some(rule) = outbound_rule(ctx, view, &service.key()) else { return false };
    let mut subsets = BTreeSet::new();
    !rule.spec.subsets.iter().all(|subset| subsets.insert(&*subset.name))
}
