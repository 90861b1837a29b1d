//! Outbound traffic that no listener of a service takes.

use canopus_mesh::scope;
use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch, Listener};
use canopus_proto::envoy::config::route::v3::VirtualHost;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::outbound_traffic_policy::Mode;
use canopus_runtime::flags::{
    ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS, PILOT_SIDECAR_USE_REMOTE_ADDRESS,
};

use super::outbound::{connections_per_event, plain_http};
use super::port::Interception;
use super::{address, inspect};
use crate::env::{Class, Env};
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes, http10_options};
use crate::network::tcp;
use crate::route::destination::cluster_name;
use crate::route_config::{self, Table};
use crate::telemetry::{access_log, metrics};
use crate::{dns_cache, names};

const NAME: &str = "virtualOutbound";
const ANY_HOST: &str = "allow_any_dynamic_dns";
const CATCH_ALL: &str = "virtualOutbound-catchall-tcp";

/// The listener that redirected traffic comes to first; `None` if nothing is redirected.
pub(super) fn listener(env: &Env<'_>) -> Option<Listener> {
    let interception = Interception::of(env.view);
    if interception == Interception::None {
        return None;
    }
    let port = u32::try_from(env.mesh().proxy_listen_port).ok()?;
    let addresses = address::wildcards(env.view);
    let from_v6 = env.flag(ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS) && !env.view.ipv4;
    let additional = match addresses.as_slice() {
        [_, extra @ ..] if env.dual_stack() && !extra.is_empty() => address::additional(extra, port),
        _ if from_v6 => address::additional(&["0.0.0.0".to_owned()], port),
        _ => Vec::new(),
    };
    let mut listener = Listener {
        name: NAME.into(),
        address: Some(address::bind(&addresses[0], port)),
        additional_addresses: additional,
        transparent: (interception == Interception::Tproxy).then(|| true.into()),
        use_original_dst: Some(true.into()),
        filter_chains: vec![black_hole(env, port)],
        traffic_direction: TrafficDirection::Outbound as i32,
        max_connections_to_accept_per_socket_event: connections_per_event(env),
        access_log: access_log::listener(env, Class::Outbound),
        ..Default::default()
    };
    if dns_cache::resolves_unknown_hosts(env) {
        listener.filter_chains.push(resolving(env));
        listener.listener_filters.push(inspect::http_inspector());
    }
    listener.filter_chains.push(FilterChain {
        name: CATCH_ALL.into(),
        filters: filters(env),
        ..Default::default()
    });
    Some(listener)
}

/// What becomes of connections that no chain of a service takes.
pub(super) fn filters(env: &Env<'_>) -> Vec<Filter> {
    let mut filters = metrics::network(env, Class::Outbound);
    filters.push(tcp::proxy_to(env, Class::Outbound, &cluster(env)));
    filters
}

/// Where unknown traffic goes: anywhere, to an egress proxy, or nowhere.
fn cluster(env: &Env<'_>) -> String {
    let terms = scope::terms(env.ctx, env.view);
    let policy = &terms.outbound_policy;
    let resolving = policy.mode == Mode::AllowAnyDynamicDns as i32;
    if !terms.allows_any() && !resolving {
        return names::BLACK_HOLE.into();
    }
    match &policy.egress_proxy {
        Some(proxy) => cluster_name(proxy, None, 0),
        None => names::PASSTHROUGH.into(),
    }
}

/// Connections to the port itself would come back to it for ever.
fn black_hole(env: &Env<'_>, port: u32) -> FilterChain {
    let mut filters = metrics::network(env, Class::Outbound);
    filters.push(tcp::black_hole());
    FilterChain {
        name: "virtualOutbound-blackhole".into(),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(port.into()),
            ..Default::default()
        }),
        filters,
        ..Default::default()
    }
}

/// Plain HTTP to whatever address the requested host has.
fn resolving(env: &Env<'_>) -> FilterChain {
    let headers = ProxyHeaders::new(env, Class::Outbound);
    let routes = Routes::Inline(Box::new(to_any_host(env, &headers)));
    let mut manager =
        headers.on(Manager::new(Class::Outbound, &format!("outbound_{NAME}_{ANY_HOST}"), routes));
    manager.use_remote_address = env.flag(PILOT_SIDECAR_USE_REMOTE_ADDRESS);
    manager.base.http_protocol_options = http10_options(env);
    FilterChain {
        name: format!("{CATCH_ALL}-http"),
        filter_chain_match: Some(FilterChainMatch {
            application_protocols: plain_http(env),
            ..Default::default()
        }),
        filters: vec![manager.filter(env)],
        ..Default::default()
    }
}

fn to_any_host(env: &Env<'_>, headers: &ProxyHeaders) -> Table {
    let policy = &scope::terms(env.ctx, env.view).outbound_policy;
    let host = VirtualHost {
        include_request_attempt_count: headers.attempt_count,
        ..route_config::catch_all::virtual_host(policy, headers.forwarded_host)
    };
    Table::new(ANY_HOST, vec![host.into()], route_config::settings())
}
