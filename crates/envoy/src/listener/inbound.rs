//! Listeners for what comes in for a sidecar's workload.
//!
//! Redirected traffic comes to one listener, whose chains tell the ports of the workload apart; ports that a Sidecar binds
//! by itself have listeners of their own.

mod chains;
mod matching;
mod ports;
mod tls;
mod tunnel;

use std::net::IpAddr;

use canopus_engine::{Ctx, Query};
use canopus_mesh::scope;
use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::resource::Resource;

use self::chains::Chains;
use self::tls::Mutual;
use super::inspect;
use super::outbound::{connections_per_event, exact_balance};
use crate::address;
use crate::audience::Interception;
use crate::audience::{ListenerAudience, Shared};
use crate::env::{Class, Env};
use crate::names;
use crate::telemetry::access_log;

pub(crate) use self::ports::ServicePort;

const NAME: &str = "virtualInbound";

/// Identifies inbound listeners: proxies share them that stand for the same ports of the same services.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Audience {
    /// The audience of the proxies.
    pub(super) proxy: Shared<ListenerAudience>,
    /// What the proxies stand for, the oldest service first.
    pub(super) ports: Vec<ServicePort>,
    /// The proxy's own addresses, where listeners depend on them.
    pub(super) own: Vec<IpAddr>,
}

/// Whether listeners depend on the proxy's own addresses.
pub(super) fn depend_on_addresses(ctx: &Ctx<'_>, audience: &Shared<ListenerAudience>) -> bool {
    scope::scope_settings(ctx, audience.scope()).has_ingress() || tunnel::is_wanted(&Env::new(ctx, audience))
}

/// Whether services disagree on what is spoken on a port of a workload, so that the oldest decides.
pub(super) struct Disagreement;

impl Query for Disagreement {
    const NAME: &'static str = "inbound_disagreement";
    type Key = Audience;
    type Value = bool;

    fn run(ctx: &Ctx<'_>, audience: &Audience) -> bool {
        ports::disagree(&Env::new(ctx, &audience.proxy), audience)
    }
}

/// The inbound listeners of an audience.
pub(super) struct InboundListeners;

impl Query for InboundListeners {
    const NAME: &'static str = "inbound_listeners";
    type Key = Audience;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Audience) -> Self::Value {
        let env = Env::new(ctx, &audience.proxy);
        listeners(&env, audience)
    }
}

fn listeners(env: &Env<'_>, audience: &Audience) -> Vec<Resource> {
    let mutual = Mutual::new(env);
    let ports = ports::inbound_ports(env, audience);
    let mut listeners = Vec::new();
    if env.audience.sockets.interception != Interception::None {
        let mut target = redirect_target(env);
        chains::add_black_hole(&mut target, env);
        chains::add_passthrough(&mut target, env, audience, &mutual);
        let redirected = ports.iter().filter(|port| !port.binding.to_port);
        redirected.for_each(|port| chains::add(&mut target, env, port, &mutual));
        listeners.push(target.encode());
    }
    for port in ports.iter().filter(|port| port.binding.to_port) {
        let name = names::listener(port.binding.primary(), port.target);
        let mut bound = Chains::new(listener(env, name, &port.binding.addresses, port.target));
        chains::add(&mut bound, env, port, &mutual);
        listeners.push(bound.encode());
    }
    if tunnel::is_wanted(env) {
        listeners.extend(tunnel::listeners(env, audience, &ports));
    }
    listeners
}

/// The listener that all redirected traffic comes to.
fn redirect_target(env: &Env<'_>) -> Chains {
    let tproxy = env.audience.sockets.interception == Interception::Tproxy;
    let mut filters = vec![inspect::original_destination()];
    filters.extend(tproxy.then(inspect::original_source));
    let port = u32::try_from(env.mesh().proxy_inbound_listen_port).unwrap_or_default();
    Chains::new(Listener {
        listener_filters: filters,
        transparent: tproxy.then(|| true.into()),
        ..listener(env, NAME.into(), &address::wildcards(&env.audience.addressing), port)
    })
}

fn listener(env: &Env<'_>, name: String, addresses: &[String], port: u32) -> Listener {
    let (first, rest) = addresses.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let rest = if env.dual_stack() { rest } else { &[] };
    let exact = env.audience.sockets.balances_inbound;
    Listener {
        name,
        address: Some(address::bind(first, port)),
        additional_addresses: address::additional(rest, port),
        traffic_direction: TrafficDirection::Inbound as i32,
        continue_on_listener_filters_timeout: true,
        max_connections_to_accept_per_socket_event: connections_per_event(env),
        connection_balance_config: exact.then(exact_balance),
        access_log: access_log::listener(env, Class::Inbound),
        listener_filters_timeout: env.mesh().protocol_detection_timeout,
        ..Default::default()
    }
}
