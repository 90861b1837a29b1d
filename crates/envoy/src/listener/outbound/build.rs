//! Outbound listeners as Envoy has them.

use canopus_mesh::service::Port;
use canopus_proto::envoy::config::core::v3::{Http1ProtocolOptions, TrafficDirection};
use canopus_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use canopus_proto::envoy::config::listener::v3::listener::connection_balance_config::{
    BalanceType, ExactBalance,
};
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch, Listener};
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_runtime::flags::{
    MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP, PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT,
    PILOT_SIDECAR_USE_REMOTE_ADDRESS,
};

use super::plan::Entry;
use crate::dns_cache;
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes, http10_options};
use crate::listener::chain::{Chain, Content, Http};
use crate::listener::{address, catch_all, inspect};
use crate::names;
use crate::network::tcp;

/// Builds a planned listener.
pub(crate) fn listener(env: &Env<'_>, entry: &Entry) -> Listener {
    let port = entry.port.number;
    let name = names::listener(entry.binding.primary(), port);
    let mut listener = Listener {
        address: Some(address::bind(entry.binding.primary(), port)),
        additional_addresses: address::additional(entry.binding.extra(), port),
        traffic_direction: TrafficDirection::Outbound as i32,
        continue_on_listener_filters_timeout: true,
        listener_filters_timeout: Some(Duration::from_secs(0)),
        ..Default::default()
    };
    if env.view.metadata.outbound_listener_exact_balance.0 {
        listener.connection_balance_config = Some(exact_balance());
    }
    if entry.binding.to_port {
        listener.max_connections_to_accept_per_socket_event = connections_per_event(env);
    } else {
        listener.bind_to_port = Some(false.into());
    }
    add_inspectors(env, entry, &mut listener);
    // Parity: of several chains for requests only the first has extensions of connections.
    let mut extensions = Placed::network(env, Class::Outbound, port).all_network_filters();
    for chain in &entry.chains {
        let built = FilterChain {
            filter_chain_match: chain.to_match(),
            filters: filters(env, chain, &entry.port, &name, &mut extensions),
            metadata: chain
                .origin
                .as_ref()
                .map(|origin| names::config_metadata("virtual-service", origin.namespace(), origin.name())),
            transport_socket_connect_timeout: handshake_timeout(env),
            ..Default::default()
        };
        if chain.takes_all() {
            listener.default_filter_chain = Some(built);
        } else {
            listener.filter_chains.push(built);
        }
    }
    // What takes everything comes last, so that no connection is lost between chains that match a part of it each.
    if listener.filter_chains.is_empty() {
        listener.filter_chains.extend(listener.default_filter_chain.take());
    } else if listener.default_filter_chain.is_none() {
        listener.default_filter_chain = Some(FilterChain {
            filter_chain_match: Some(FilterChainMatch::default()),
            name: "PassthroughFilterChain".into(),
            filters: catch_all::filters(env),
            ..Default::default()
        });
    }
    listener.name = name;
    listener
}

fn add_inspectors(env: &Env<'_>, entry: &Entry, listener: &mut Listener) {
    let needs_name = |chain: &Chain| !chain.server_names.is_empty() || resolves_names(env, chain);
    if entry.chains.iter().any(needs_name) {
        listener.listener_filters.push(inspect::tls_inspector());
    }
    if entry.chains.iter().any(|chain| chain.sniffed.is_some()) {
        listener.listener_filters.push(inspect::http_inspector());
        listener.listener_filters_timeout = env.mesh().protocol_detection_timeout;
    }
}

/// Whether connections go to whatever address the name has that the client asks for.
fn resolves_names(env: &Env<'_>, chain: &Chain) -> bool {
    match &chain.content {
        Content::Service(to) => dns_cache::is_for(env, Class::Outbound, &to.service),
        Content::Http(_) | Content::Routed(_) => false,
    }
}

/// The filters of a chain; one for requests takes those of `extensions` that are left.
fn filters(
    env: &Env<'_>,
    chain: &Chain,
    port: &Port,
    listener: &str,
    extensions: &mut Vec<Filter>,
) -> Vec<Filter> {
    match &chain.content {
        Content::Http(http) => {
            let manager = Manager { port: port.number, ..manager(env, http, listener) };
            let mut filters = std::mem::take(extensions);
            filters.push(manager.filter(env));
            filters
        }
        Content::Service(to) => tcp::to_service(env, &to.service, to.port, port),
        Content::Routed(to) => tcp::routed(env, &to.routes, &to.origin, port),
    }
}

fn manager<'a>(env: &Env<'_>, http: &'a Http, listener: &str) -> Manager<'a> {
    let routes = Routes::Named(http.table.clone());
    let manager = Manager::new(Class::Outbound, &format!("outbound_{listener}"), routes);
    let mut manager = ProxyHeaders::new(env, Class::Outbound).on(manager);
    manager.protocol = http.protocol;
    manager.service = http.service.as_deref();
    manager.base.http_protocol_options = http10_options(env);
    if http.forward_proxy {
        let options = manager.base.http_protocol_options.take().unwrap_or_default();
        manager.base.http_protocol_options =
            Some(Http1ProtocolOptions { allow_absolute_url: Some(true.into()), ..options });
        manager.peer_headers_in_mesh_only = false;
    } else {
        manager.use_remote_address = env.flag(PILOT_SIDECAR_USE_REMOTE_ADDRESS);
    }
    manager
}

/// Balances connections exactly over worker threads.
pub(in crate::listener) fn exact_balance() -> ConnectionBalanceConfig {
    ConnectionBalanceConfig { balance_type: Some(BalanceType::ExactBalance(ExactBalance {})) }
}

/// How many connections a worker accepts before it does something else.
pub(crate) fn connections_per_event(env: &Env<'_>) -> Option<UInt32Value> {
    let limit = u32::try_from(env.flag(MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP)).ok()?;
    (limit > 0).then(|| limit.into())
}

/// How long a client may take for its handshake.
pub(crate) fn handshake_timeout(env: &Env<'_>) -> Option<Duration> {
    let limit = env.flag(PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT);
    (!limit.is_zero()).then(|| limit.into())
}
