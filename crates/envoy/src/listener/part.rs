//! The parts that a proxy's listeners come in: what several proxies share is generated and patched once.

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::View;

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

/// A part after the patches of EnvoyFilters.
pub(super) struct PatchedPart;

impl Query for PatchedPart {
    const NAME: &'static str = "patched_listeners";
    type Key = Part;
    type Value = Patched;

    fn run(ctx: &Ctx<'_>, part: &Part) -> Patched {
        match part {
            Part::Outbound(audience) => {
                let generated = ctx.get::<outbound::OutboundListeners>(audience);
                envoy_filter::listeners(ctx, &audience.0, Side::Outbound, generated, true)
            }
            Part::OtherOutbound(view) => {
                let generated = ctx.get::<OtherOutbound>(view);
                envoy_filter::listeners(ctx, view, Side::Outbound, generated, false)
            }
            Part::Inbound(audience) => {
                let generated = ctx.get::<inbound::InboundListeners>(audience);
                envoy_filter::listeners(ctx, &audience.view, Side::Inbound, generated, true)
            }
            Part::Gateway(view) => {
                let generated = ctx.get::<GatewayListeners>(view);
                envoy_filter::listeners(ctx, view, Side::Gateway, generated, true)
            }
            Part::Waypoint(view) => {
                let generated = ctx.get::<WaypointListeners>(view);
                envoy_filter::listeners(ctx, view, Side::Inbound, generated, true)
            }
            Part::Originated(view) => Patched::untouched(ctx.get::<Originated>(view)),
        }
    }
}
