//! Outbound traffic that no listener of a service takes.

use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::route::v3::VirtualHost;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::outbound_traffic_policy::Mode as MeshMode;
use canopus_proto::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{
    ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS, PILOT_SIDECAR_USE_REMOTE_ADDRESS,
};

use super::draft::{Draft, FilterChain, Match};
use super::inspect;
use super::outbound::{connections_per_event, plain_http};
use crate::address;
use crate::audience::Interception;
use crate::env::{Class, Env};
use crate::filter::Filters;
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes, http10};
use crate::network::tcp;
use crate::route::destination::cluster_name;
use crate::route_config::{self, Table};
use crate::telemetry::{access_log, metrics};
use crate::{dns_cache, names};

const NAME: &str = "virtualOutbound";
const ANY_HOST: &str = "allow_any_dynamic_dns";
const CATCH_ALL: &str = "virtualOutbound-catchall-tcp";
const CATCH_ALL_HTTP: &str = "virtualOutbound-catchall-tcp-http";

/// The listener that redirected traffic comes to first; `None` if nothing is redirected.
pub(super) fn listener(env: &Env<'_>) -> Option<Resource> {
    let interception = env.audience.sockets.interception;
    if interception == Interception::None {
        return None;
    }
    let port = u32::try_from(env.mesh().proxy_listen_port).ok()?;
    let addresses = address::wildcards(&env.audience.addressing);
    let from_v6 =
        env.flag(ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS) && !env.audience.addressing.ipv4;
    let additional = match addresses.as_slice() {
        [_, extra @ ..] if env.dual_stack() && !extra.is_empty() => address::additional(extra, port),
        _ if from_v6 => address::additional(&["0.0.0.0".to_owned()], port),
        _ => Vec::new(),
    };
    let mut draft = Draft::new(Listener {
        name: NAME.into(),
        address: Some(address::bind(&addresses[0], port)),
        additional_addresses: additional,
        transparent: (interception == Interception::Tproxy).then(|| true.into()),
        use_original_dst: Some(true.into()),
        traffic_direction: TrafficDirection::Outbound as i32,
        max_connections_to_accept_per_socket_event: connections_per_event(env),
        access_log: access_log::listener(env, Class::Outbound),
        ..Default::default()
    });
    add_black_hole(&mut draft, env, port);
    if dns_cache::resolves_unknown_hosts(env.audience.role.kind, &env.audience.outbound_policy) {
        add_resolving(&mut draft, env);
        draft.listener.listener_filters.push(inspect::http_inspector());
    }
    draft.add(&FilterChain { name: CATCH_ALL, ..Default::default() }, &filters(env));
    Some(draft.encode())
}

/// What becomes of connections that no chain of a service takes.
pub(super) fn filters(env: &Env<'_>) -> Filters {
    let mut filters = Filters::default();
    metrics::on_connections(&mut filters, env, Class::Outbound);
    tcp::to(&mut filters, env, Class::Outbound, &cluster(env));
    filters
}

/// Where unknown traffic goes: anywhere, to an egress proxy, or nowhere.
fn cluster(env: &Env<'_>) -> String {
    let policy = &env.audience.outbound_policy;
    let resolving = policy.mode == MeshMode::AllowAnyDynamicDns as i32;
    if policy.mode() != Mode::AllowAny && !resolving {
        return names::BLACK_HOLE.into();
    }
    match &policy.egress_proxy {
        Some(proxy) => cluster_name(proxy, None, 0),
        None => names::PASSTHROUGH.into(),
    }
}

/// Connections to the port itself would come back to it for ever.
fn add_black_hole(draft: &mut Draft, env: &Env<'_>, port: u32) {
    let mut filters = Filters::default();
    metrics::on_connections(&mut filters, env, Class::Outbound);
    tcp::black_hole(&mut filters);
    let matched = Some(Match { port, ..Default::default() });
    let chain = FilterChain { name: "virtualOutbound-blackhole", matched, ..Default::default() };
    draft.add(&chain, &filters);
}

/// Plain HTTP to whatever address the requested host has.
fn add_resolving(draft: &mut Draft, env: &Env<'_>) {
    let headers = ProxyHeaders::new(env, Class::Outbound);
    let routes = Routes::Inline(Box::new(to_any_host(env, &headers)));
    let stat_prefix = format!("outbound_{NAME}_{ANY_HOST}");
    let mut manager = headers.on(Manager::new(Class::Outbound, &stat_prefix, routes));
    manager.use_remote_address = env.flag(PILOT_SIDECAR_USE_REMOTE_ADDRESS);
    manager.particulars.http1 = http10(env);
    let mut filters = Filters::default();
    manager.add_to(&mut filters, env);
    let matched = Some(Match { protocols: plain_http(env), ..Default::default() });
    draft.add(&FilterChain { name: CATCH_ALL_HTTP, matched, ..Default::default() }, &filters);
}

fn to_any_host(env: &Env<'_>, headers: &ProxyHeaders) -> Table {
    let policy = &env.audience.outbound_policy;
    let host = VirtualHost {
        include_request_attempt_count: headers.attempt_count,
        ..route_config::catch_all::virtual_host(policy, headers.forwarded_host)
    };
    Table::new(ANY_HOST, vec![host.into()], route_config::settings())
}
