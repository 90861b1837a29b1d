//! Tunnels that a proxy opens to the workloads of an ambient mesh.

use canopus_proto::envoy::config::listener::v3::listener::{InternalListenerConfig, ListenerSpecifier};
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_runtime::flags::PILOT_ENABLE_SENDING_HBONE;

use super::inspect;
use crate::env::{Class, Env};
use crate::network::tcp;
use crate::telemetry::access_log;

/// The cluster behind the tunnel, and the internal listener in front of it.
const ORIGINATE: &str = "connect_originate";

/// The internal listener that puts connections into an HTTP CONNECT tunnel; `None` if proxies do not open any.
pub(crate) fn originate(env: &Env<'_>, class: Class) -> Option<Listener> {
    env.flag(PILOT_ENABLE_SENDING_HBONE).then(|| Listener {
        name: ORIGINATE.into(),
        use_original_dst: Some(false.into()),
        listener_specifier: Some(ListenerSpecifier::InternalListener(InternalListenerConfig::default())),
        listener_filters: vec![inspect::original_destination()],
        filter_chains: vec![FilterChain {
            filters: vec![tcp::tunnel(env, class, ORIGINATE)],
            ..Default::default()
        }],
        access_log: access_log::listener(env, class),
        ..Default::default()
    })
}
