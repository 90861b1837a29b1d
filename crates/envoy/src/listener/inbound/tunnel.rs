//! What comes in for a sidecar's workload through HBONE tunnels.

use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::PILOT_ENABLE_SIDECAR_LISTENING_HBONE;

use super::Audience;
use super::chains::{Chains, Site};
use super::ports::InboundPort;
use crate::address;
use crate::env::{Class, Env};
use crate::listener::{connect, inspect};
use crate::telemetry::access_log;
use crate::tunnel::MAIN_INTERNAL;

/// Whether tunnels end at the sidecar.
pub(in crate::listener) fn is_wanted(env: &Env<'_>) -> bool {
    env.flag(PILOT_ENABLE_SIDECAR_LISTENING_HBONE) && env.audience.tunnels.takes
}

/// The listener at which tunnels end, and the one behind it with the chains of the workload's ports. A tunnel may name any
/// address, so these match the workload's own alone.
pub(super) fn listeners(env: &Env<'_>, audience: &Audience, ports: &[InboundPort]) -> [Resource; 2] {
    let mut main = Chains::new(Listener {
        name: MAIN_INTERNAL.into(),
        traffic_direction: TrafficDirection::Inbound as i32,
        continue_on_listener_filters_timeout: true,
        access_log: access_log::listener(env, Class::Inbound),
        listener_filters: vec![inspect::original_destination()],
        ..connect::internal()
    });
    let own = audience.own.iter().filter_map(|own| address::range_of(&own.to_string()));
    let own: Vec<_> = own.collect();
    for port in ports {
        Site::new(port).through_tunnel().add_tunnelled(&mut main, env, &own);
    }
    Site::passthrough(0).add_tunnelled(&mut main, env, &own);
    [connect::terminate(env), main.encode()]
}
