//! EnvoyFilter: patches that users apply to what was generated.
//!
//! Patches apply to encoded parts of a proxy's configuration after everything else, so generators know nothing of them
//! and proxies without patches pay nothing. A patch that cannot be applied is left out by itself.

mod cluster;
mod compile;
mod extension;
mod filter_chain;
mod list;
mod listener;
mod merge;
mod network_filter;
mod route;
mod sound;
mod tally;
mod virtual_host;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::Ctx;
use canopus_proto::resource::Resource;

pub use crate::audience::PatchId;
pub(crate) use cluster::{clusters, shared_clusters};
pub(crate) use compile::problem;
pub(crate) use extension::extension;
pub(crate) use listener::listeners;
pub(crate) use route::table;
pub use tally::Count;
pub(crate) use tally::Tally;

use canopus_proto::istio::networking::v1alpha3::envoy_filter::PatchContext;

use crate::audience::PatchSet;

/// The side of a proxy that a patch may be limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Side {
    /// Traffic to the workload of a sidecar.
    Inbound,
    /// Traffic from the workload of a sidecar.
    Outbound,
    /// A gateway.
    Gateway,
}

impl Side {
    /// The side that the resources of a proxy are on which are not of its own workload.
    pub(crate) fn for_kind(kind: NodeKind) -> Self {
        if kind == NodeKind::Router { Self::Gateway } else { Self::Outbound }
    }

    fn is_in(self, context: PatchContext) -> bool {
        match context {
            PatchContext::Any => true,
            PatchContext::SidecarInbound => self == Self::Inbound,
            PatchContext::SidecarOutbound => self == Self::Outbound,
            PatchContext::Gateway => self == Self::Gateway,
            PatchContext::Waypoint => false,
        }
    }

    /// Whether what patches add goes to this side: what is added nowhere in particular is not added twice.
    fn takes_additions(self, context: PatchContext) -> bool {
        self.is_in(context) && (context != PatchContext::Any || self != Self::Inbound)
    }
}

/// A part of a proxy's configuration after its patches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Patched {
    /// The resources; those generated, where nothing applies.
    pub(crate) resources: Arc<Vec<Resource>>,
    /// What became of the patches.
    pub(crate) tally: Tally,
}

impl Patched {
    /// A part that no patch is for.
    pub(crate) fn untouched(resources: Arc<Vec<Resource>>) -> Self {
        Self { resources, tally: Tally::default() }
    }
}

/// The patches of a set, ready to be applied.
fn patches(ctx: &Ctx<'_>, set: &PatchSet) -> Arc<compile::Patches> {
    ctx.get::<compile::Compiled>(set)
}
