//! The parts that a proxy's clusters come in: what several proxies share is generated and patched once.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, View, ViewOf};
use canopus_mesh::target::Targets;

use super::SharedClusters;
use super::inbound::InboundClusters;
use crate::envoy_filter::{self, Patched, Side};
use crate::names::ClusterName;

/// Clusters that are generated together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// Those that all proxies of a view have.
    Shared(View),
    /// Those of a proxy's own workload.
    Inbound(Proxy),
}

/// A part after the patches of EnvoyFilters.
pub(super) struct PatchedPart;

impl Query for PatchedPart {
    const NAME: &'static str = "patched_clusters";
    type Key = Part;
    type Value = Patched;

    fn run(ctx: &Ctx<'_>, part: &Part) -> Patched {
        match part {
            Part::Shared(view) => envoy_filter::shared_clusters(ctx, view, ctx.get::<SharedClusters>(view)),
            Part::Inbound(proxy) => {
                let view = ctx.get::<ViewOf>(proxy);
                let targets = ctx.get::<Targets>(proxy);
                let hosts_of = |name: &ClusterName<'_>| -> Vec<Arc<str>> {
                    let of_port = targets.iter().filter(|target| target.target_port == name.port);
                    of_port.map(|target| target.service.host.clone()).collect()
                };
                let generated = ctx.get::<InboundClusters>(proxy);
                envoy_filter::clusters(ctx, &view, generated, |_| Some(Side::Inbound), hosts_of)
            }
        }
    }
}
