//! The parts that a proxy's listeners come in: what several proxies share is generated and patched once.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::View;
use canopus_proto::resource::Resource;

use super::connect::Originated;
use super::sidecar::OtherOutbound;
use super::waypoint::WaypointListeners;
use super::{inbound, outbound};
use crate::envoy_filter::{self, Patched, Side};
use crate::gateway::GatewayListeners;

/// Listeners that are generated together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// Those of services that a sidecar may call.
    Outbound(outbound::Audience),
    /// Those beside them.
    OtherOutbound(View),
    /// Those of a sidecar's workload.
    Inbound(inbound::Audience),
    /// Those of a gateway.
    Gateway(View),
    /// Those of a waypoint.
    Waypoint(View),
    /// Those that open tunnels to other proxies, which are nobody's to change.
    Originated(View),
}

impl Part {
    /// The listeners as they are before the patches of EnvoyFilters.
    pub(super) fn generated(&self, ctx: &Ctx<'_>) -> Arc<Vec<Resource>> {
        match self {
            Self::Outbound(audience) => ctx.get::<outbound::OutboundListeners>(audience),
            Self::OtherOutbound(view) => ctx.get::<OtherOutbound>(view),
            Self::Inbound(audience) => ctx.get::<inbound::InboundListeners>(audience),
            Self::Gateway(view) => ctx.get::<GatewayListeners>(view),
            Self::Waypoint(view) => ctx.get::<WaypointListeners>(view),
            Self::Originated(view) => ctx.get::<Originated>(view),
        }
    }
}

/// A part after the patches of EnvoyFilters.
pub(super) struct PatchedPart;

impl Query for PatchedPart {
    const NAME: &'static str = "patched_listeners";
    type Key = Part;
    type Value = Patched;

    fn run(ctx: &Ctx<'_>, part: &Part) -> Patched {
        let generated = part.generated(ctx);
        match part {
            Part::Outbound((view, _)) => envoy_filter::listeners(ctx, view, Side::Outbound, generated, true),
            Part::OtherOutbound(view) => envoy_filter::listeners(ctx, view, Side::Outbound, generated, false),
            Part::Inbound(audience) => {
                envoy_filter::listeners(ctx, &audience.view, Side::Inbound, generated, true)
            }
            Part::Gateway(view) => envoy_filter::listeners(ctx, view, Side::Gateway, generated, true),
            Part::Waypoint(view) => envoy_filter::listeners(ctx, view, Side::Inbound, generated, true),
            Part::Originated(_) => Patched::untouched(generated),
        }
    }
}
