//! Everything a sidecar listens on.

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, View};
use canopus_mesh::target::Targets;
use canopus_mesh::world::settings;
use canopus_proto::resource::Resource;

use super::inbound::{Audience, Disagreement, ServicePort};
use super::outbound::EndpointAddresses;
use super::part::Part;
use super::{catch_all, http_proxy, inbound, outbound};
use crate::env::Env;

/// The listeners of a sidecar: those of services it may call, those beside them, and those of its workload.
pub(super) fn parts(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> Vec<Part> {
    if settings(ctx).mesh.proxy_listen_port <= 0 {
        return Vec::new();
    }
    let outbound = outbound_audience(ctx, proxy, view);
    let inbound = inbound_audience(ctx, proxy, view);
    vec![Part::Outbound(outbound), Part::OtherOutbound(view.clone()), Part::Inbound(inbound)]
}

fn outbound_audience(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> outbound::Audience {
    let address = proxy.id.addresses.first().map(ToString::to_string).unwrap_or_default();
    let own = ctx.get::<EndpointAddresses>(view).contains(&address).then_some(address);
    (view.clone(), own)
}

fn inbound_audience(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> Audience {
    let ports = ctx.get::<Targets>(proxy).iter().map(ServicePort::from).collect();
    let own = if inbound::depend_on_addresses(ctx, view) { proxy.id.addresses.clone() } else { Vec::new() };
    Audience { view: view.clone(), ports, own }
}

/// Whether services disagree on what is spoken on a port of a sidecar's workload.
pub(crate) fn disagrees(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> bool {
    *ctx.get::<Disagreement>(&inbound_audience(ctx, proxy, view))
}

/// The names of a sidecar's outbound listeners on which two services cannot be told apart.
pub(crate) fn crowded(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> Vec<String> {
    outbound::crowded(ctx, &outbound_audience(ctx, proxy, view))
}

/// The outbound listeners that are not of services.
pub(super) struct OtherOutbound;

impl Query for OtherOutbound {
    const NAME: &'static str = "other_outbound_listeners";
    type Key = View;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Self::Value {
        let env = Env::new(ctx, view);
        [http_proxy::listener(&env), catch_all::listener(&env)].into_iter().flatten().collect()
    }
}
