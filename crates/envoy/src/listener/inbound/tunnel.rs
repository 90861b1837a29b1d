//! What comes in for a sidecar's workload through HBONE tunnels.

use canopus_mesh::peer_authentication::MutualTls;
use canopus_proto::envoy::config::core::v3::{CidrRange, TrafficDirection};
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_runtime::flags::PILOT_ENABLE_SIDECAR_LISTENING_HBONE;

use super::chains::{self, Site};
use super::{Audience, ports};
use crate::cluster::hbone::MAIN_INTERNAL;
use crate::env::{Class, Env};
use crate::listener::{address, connect, inspect};
use crate::telemetry::access_log;

/// Whether tunnels end at the sidecar.
pub(in crate::listener) fn is_wanted(env: &Env<'_>) -> bool {
    env.flag(PILOT_ENABLE_SIDECAR_LISTENING_HBONE) && env.view.metadata.enable_hbone.0
}

/// The listener at which tunnels end, and the one behind it with the chains of the workload's ports.
pub(super) fn listeners(env: &Env<'_>, audience: &Audience) -> [Listener; 2] {
    let ports = ports::of(env, audience);
    let sites = ports.iter().map(|port| Site::of(port).through_tunnel());
    let sites = sites.chain([Site::passthrough(0)]);
    let chains: Vec<_> = sites
        .flat_map(|site| chains::of_mode(env, &site, MutualTls::Disable))
        .map(|chain| to_workload(audience, chain))
        .collect();
    let mut filters = vec![inspect::original_destination()];
    filters.extend(inspect::inspectors(&chains));
    let main = Listener {
        name: MAIN_INTERNAL.into(),
        traffic_direction: TrafficDirection::Inbound as i32,
        continue_on_listener_filters_timeout: true,
        access_log: access_log::listener(env, Class::Inbound),
        filter_chains: chains,
        listener_filters: filters,
        ..connect::internal()
    };
    [connect::terminate(env), main]
}

/// A chain for connections to the workload itself: a tunnel may name any address. There is no TLS left to tell apart.
fn to_workload(audience: &Audience, mut chain: FilterChain) -> FilterChain {
    let matched = chain.filter_chain_match.get_or_insert_default();
    matched.transport_protocol.clear();
    let own = audience.own.iter().filter_map(|own| address::range_of(&own.to_string()));
    matched.prefix_ranges = own.collect::<Vec<CidrRange>>();
    chain
}
