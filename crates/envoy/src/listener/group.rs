//! The parts that a proxy's listeners come in: what several proxies share is generated and patched once.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_proto::resource::Resource;

use super::connect::Originated;
use super::gateway::GatewayListeners;
use super::sidecar::OtherOutbound;
use super::waypoint::WaypointListeners;
use super::{inbound, outbound};
use crate::audience::{ListenerAudience, PatchSet, Shared};
use crate::envoy_filter::{self, Patched, Side};

/// Listeners that are generated together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ListenerGroup {
    /// Listeners for services that a sidecar may call.
    Outbound(outbound::Audience),
    /// The sidecar's other outbound listeners.
    OtherOutbound(Shared<ListenerAudience>),
    /// Listeners of a sidecar's own workload.
    Inbound(inbound::Audience),
    /// Listeners of a gateway.
    Gateway(Shared<ListenerAudience>),
    /// Listeners of a waypoint.
    Waypoint(Shared<ListenerAudience>),
    /// Listeners that open tunnels to other proxies; no patch applies to them.
    Originated(Shared<ListenerAudience>),
}

impl ListenerGroup {
    fn audience(&self) -> &Shared<ListenerAudience> {
        match self {
            Self::Outbound((audience, _))
            | Self::OtherOutbound(audience)
            | Self::Inbound(inbound::Audience { proxy: audience, .. })
            | Self::Gateway(audience)
            | Self::Waypoint(audience)
            | Self::Originated(audience) => audience,
        }
    }

    /// The listeners as they are before the patches of EnvoyFilters.
    pub(super) fn generated(&self, ctx: &Ctx<'_>) -> Arc<Vec<Resource>> {
        match self {
            Self::Outbound(audience) => ctx.get::<outbound::OutboundListeners>(audience),
            Self::OtherOutbound(audience) => ctx.get::<OtherOutbound>(audience),
            Self::Inbound(audience) => ctx.get::<inbound::InboundListeners>(audience),
            Self::Gateway(audience) => ctx.get::<GatewayListeners>(audience),
            Self::Waypoint(audience) => ctx.get::<WaypointListeners>(audience),
            Self::Originated(audience) => ctx.get::<Originated>(audience),
        }
    }
}

/// A part after the patches of EnvoyFilters.
pub(super) struct PatchedListenerGroup;

impl Query for PatchedListenerGroup {
    const NAME: &'static str = "patched_listeners";
    type Key = (ListenerGroup, PatchSet);
    type Value = Patched;

    fn run(ctx: &Ctx<'_>, (part, patches): &Self::Key) -> Patched {
        let generated = part.generated(ctx);
        let (side, additions) = match part {
            ListenerGroup::Outbound(_) => (Side::Outbound, true),
            ListenerGroup::OtherOutbound(_) => (Side::Outbound, false),
            ListenerGroup::Inbound(_) | ListenerGroup::Waypoint(_) => (Side::Inbound, true),
            ListenerGroup::Gateway(_) => (Side::Gateway, true),
            ListenerGroup::Originated(_) => return Patched::untouched(generated),
        };
        envoy_filter::listeners(ctx, (patches, &part.audience().build), side, generated, additions)
    }
}
