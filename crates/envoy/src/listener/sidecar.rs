//! Everything a sidecar listens on.

use std::net::IpAddr;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, View};
use canopus_mesh::scope;
use canopus_mesh::target::Targets;
use canopus_mesh::world::settings;
use canopus_proto::resource::Resource;

use super::inbound::{Audience, InboundListeners, ServicePort};
use super::outbound::{EndpointAddresses, OutboundListeners};
use super::{catch_all, connect, http_proxy};
use crate::env::{Class, Env};
use crate::resources::Resources;

/// The listeners of a sidecar: those of services it may call, those beside them, and those of its workload.
pub(super) fn listeners(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> Resources {
    let mut listeners = Resources::new();
    if settings(ctx).mesh.proxy_listen_port <= 0 {
        return listeners;
    }
    let address = proxy.id.addresses.first().map(ToString::to_string).unwrap_or_default();
    let own = ctx.get::<EndpointAddresses>(view).contains(&address).then_some(address);
    listeners.push(ctx.get::<OutboundListeners>(&(view.clone(), own)));
    listeners.push(ctx.get::<OtherOutbound>(view));
    let ports = ctx.get::<Targets>(proxy).iter().map(ServicePort::from).collect();
    let named_after_proxy = scope::scope(ctx, view).has_ingress();
    let own = named_after_proxy.then(|| unicast_address(&proxy.id.addresses)).flatten();
    listeners.push(ctx.get::<InboundListeners>(&Audience { view: view.clone(), ports, own }));
    listeners
}

/// The first address that is neither of this host alone nor of a link nor of a group.
fn unicast_address(addresses: &[IpAddr]) -> Option<String> {
    let special = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let unicast = |address: &&IpAddr| {
        !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && !special(address)
    };
    addresses.iter().find(unicast).map(ToString::to_string)
}

/// The outbound listeners that are not of services.
struct OtherOutbound;

impl Query for OtherOutbound {
    const NAME: &'static str = "other_outbound_listeners";
    type Key = View;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Self::Value {
        let env = Env::new(ctx, view);
        let listeners = [
            http_proxy::listener(&env),
            catch_all::listener(&env),
            connect::originate(&env, Class::Outbound),
        ];
        let listeners = listeners.iter().flatten();
        listeners.map(|listener| Resource::encode(listener.name.as_str(), listener)).collect()
    }
}
