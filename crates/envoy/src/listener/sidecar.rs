//! Everything a sidecar listens on.

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::target::Targets;
use canopus_mesh::world::settings;
use canopus_proto::resource::Resource;

use super::group::ListenerGroup;
use super::inbound::{Audience, Disagreement, ServicePort};
use super::outbound::EndpointAddresses;
use super::{catch_all, http_proxy, inbound, outbound};
use crate::audience::{ListenerAudience, Shared};
use crate::dns_cache;
use crate::env::Env;

/// The listeners of a sidecar: those of services it may call, those beside them, and those of its workload.
pub(super) fn groups(
    ctx: &Ctx<'_>,
    proxy: &Proxy,
    outbound: &Shared<ListenerAudience>,
    inbound: &Shared<ListenerAudience>,
) -> Vec<ListenerGroup> {
    if settings(ctx).mesh.proxy_listen_port <= 0 {
        return Vec::new();
    }
    vec![
        ListenerGroup::Outbound(outbound_audience(ctx, proxy, outbound, inbound)),
        ListenerGroup::OtherOutbound(other_outbound_audience(ctx, outbound)),
        ListenerGroup::Inbound(inbound_audience(ctx, proxy, inbound)),
    ]
}

fn outbound_audience(
    ctx: &Ctx<'_>,
    proxy: &Proxy,
    outbound: &Shared<ListenerAudience>,
    inbound: &Shared<ListenerAudience>,
) -> outbound::Audience {
    let address = proxy.id.addresses.first().map(ToString::to_string).unwrap_or_default();
    let place = (outbound.scope().clone(), outbound.addressing.clone());
    let own = ctx.get::<EndpointAddresses>(&place).contains(&address).then_some(address);
    (outbound::guarded(ctx, outbound, inbound), own)
}

fn inbound_audience(ctx: &Ctx<'_>, proxy: &Proxy, inbound: &Shared<ListenerAudience>) -> Audience {
    let ports = ctx.get::<Targets>(proxy).iter().map(ServicePort::from).collect();
    let own =
        if inbound::depend_on_addresses(ctx, inbound) { proxy.id.addresses.clone() } else { Vec::new() };
    Audience { proxy: inbound.clone(), ports, own }
}

/// Whether services disagree on what is spoken on a port of a sidecar's workload.
pub(crate) fn disagrees(ctx: &Ctx<'_>, proxy: &Proxy, inbound: &Shared<ListenerAudience>) -> bool {
    *ctx.get::<Disagreement>(&inbound_audience(ctx, proxy, inbound))
}

/// The names of a sidecar's outbound listeners on which two services cannot be told apart.
pub(crate) fn crowded(
    ctx: &Ctx<'_>,
    proxy: &Proxy,
    outbound: &Shared<ListenerAudience>,
    inbound: &Shared<ListenerAudience>,
) -> Vec<String> {
    outbound::crowded(ctx, &outbound_audience(ctx, proxy, outbound, inbound))
}

/// The audience of the outbound listeners that are not of services. Spans are of requests, which few of them look at.
fn other_outbound_audience(ctx: &Ctx<'_>, outbound: &Shared<ListenerAudience>) -> Shared<ListenerAudience> {
    let audience = outbound.without_caller(ctx);
    let looks_at_requests = http_proxy::port(&Env::new(ctx, outbound)).is_some()
        || dns_cache::resolves_unknown_hosts(outbound.role.kind, &outbound.outbound_policy);
    if looks_at_requests { audience } else { audience.for_connections(ctx) }
}

/// The outbound listeners that are not of services.
pub(super) struct OtherOutbound;

impl Query for OtherOutbound {
    const NAME: &'static str = "other_outbound_listeners";
    type Key = Shared<ListenerAudience>;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ListenerAudience>) -> Self::Value {
        let env = Env::new(ctx, audience);
        [http_proxy::listener(&env), catch_all::listener(&env)].into_iter().flatten().collect()
    }
}
