//! The parts that a proxy's clusters come in: what several proxies share is generated and patched once.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_proto::resource::Resource;

use super::SharedClusters;
use super::inbound::{self, InboundClusters};
use crate::audience::{ClusterAudience, PatchSet, Shared};
use crate::envoy_filter::{self, Patched, Side};
use crate::names::ClusterName;

/// Clusters that are generated together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClusterGroup {
    /// Clusters that do not belong to a workload of the proxy.
    Shared(Shared<ClusterAudience>),
    /// Clusters of the proxy's own workload.
    Inbound(inbound::Audience),
}

impl ClusterGroup {
    /// The clusters before the patches of EnvoyFilters.
    pub(super) fn generated(&self, ctx: &Ctx<'_>) -> Arc<Vec<Resource>> {
        match self {
            Self::Shared(audience) => ctx.get::<SharedClusters>(audience),
            Self::Inbound(audience) => ctx.get::<InboundClusters>(audience),
        }
    }
}

/// A part after the patches of EnvoyFilters.
pub(super) struct PatchedClusterGroup;

impl Query for PatchedClusterGroup {
    const NAME: &'static str = "patched_clusters";
    type Key = (ClusterGroup, PatchSet);
    type Value = Patched;

    fn run(ctx: &Ctx<'_>, (part, patches): &Self::Key) -> Patched {
        let generated = part.generated(ctx);
        match part {
            ClusterGroup::Shared(audience) => {
                envoy_filter::shared_clusters(ctx, patches, audience.role.kind, generated)
            }
            ClusterGroup::Inbound(audience) => {
                let hosts_of = |name: &ClusterName<'_>| -> Vec<Arc<str>> {
                    let of_port = audience.targets.iter().filter(|target| target.target_port == name.port);
                    of_port.map(|target| target.service.host.clone()).collect()
                };
                envoy_filter::clusters(ctx, patches, generated, |_| Some(Side::Inbound), hosts_of)
            }
        }
    }
}
