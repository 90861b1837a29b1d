//! Clusters that are wanted twice: a service may have a port number, or a rule the name of a subset, more than once.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::service::Service;

use super::Env;
use super::traits::ClientTraits;
use super::{add_services, destinations};
use crate::audience::{ClusterAudience, Shared};

/// The names of an audience's clusters that are wanted more than once; the first of each counts.
pub(crate) struct Duplicates;

impl Query for Duplicates {
    const NAME: &'static str = "duplicate_clusters";
    type Key = Shared<ClusterAudience>;
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ClusterAudience>) -> Self::Value {
        let env = &Env::new(ctx, &**audience);
        let traits = ClientTraits::from(&**audience);
        let mut duplicates = BTreeSet::new();
        for (purpose, services) in destinations(env) {
            let repeating = services.iter().filter(|service| may_repeat(env, service));
            let services = repeating.cloned().collect::<Vec<_>>().into();
            let (mut names, mut clusters) = (BTreeSet::new(), Vec::new());
            add_services(&mut clusters, env, &traits, &services, purpose);
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
fn may_repeat(env: &Env<'_>, service: &Arc<Service>) -> bool {
    let mut ports = BTreeSet::new();
    if !service.ports.iter().all(|port| ports.insert(port.number)) {
        return true;
    }
    let Some(rule) = outbound_rule(env.ctx, &env.audience.caller, &service.key()) else { return false };
    let mut subsets = BTreeSet::new();
    !rule.spec.subsets.iter().all(|subset| subsets.insert(&*subset.name))
}
