//! Outbound listeners as Envoy has them.

use canopus_mesh::service::Port;
use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use canopus_proto::envoy::config::listener::v3::listener::connection_balance_config::{
    BalanceType, ExactBalance,
};
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{
    MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP, PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT,
    PILOT_SIDECAR_USE_REMOTE_ADDRESS,
};

use super::plan::Entry;
use crate::dns_cache;
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::http::headers::ProxyHeaders;
use crate::http::{Http1, Manager, Routes, http10};
use crate::listener::chain::{Chain, Content, Http};
use crate::listener::draft::{Draft, FilterChain, Match};
use crate::listener::{address, catch_all, inspect};
use crate::names;
use crate::network::{Filters, tcp};

/// Builds a planned listener.
pub(crate) fn listener(env: &Env<'_>, entry: &Entry) -> Resource {
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
    let mut draft = Draft::new(listener);
    // Parity: of several chains for requests only the first has extensions of connections.
    let mut extensions = Placed::network(env, Class::Outbound, port).all_on_connections();
    for chain in &entry.chains {
        let written = FilterChain {
            matched: chain.to_match(),
            metadata: chain
                .origin
                .as_ref()
                .map(|origin| names::config_metadata("virtual-service", origin.namespace(), origin.name())),
            handshake_timeout: handshake_timeout(env),
            ..Default::default()
        };
        let filters = filters(env, chain, &entry.port, &name, &mut extensions);
        // What takes everything comes last, so that no connection is lost between chains that match a part of it each.
        match written.matched {
            Some(_) => draft.add(&written, &filters),
            None => draft.set_default(&written, &filters),
        }
    }
    if draft.leaves_gaps() {
        let matched = Some(Match::default());
        let rest = FilterChain { name: "PassthroughFilterChain", matched, ..Default::default() };
        draft.set_default(&rest, &catch_all::filters(env));
    }
    draft.listener.name = name;
    draft.encode()
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
fn filters(env: &Env<'_>, chain: &Chain, port: &Port, listener: &str, extensions: &mut Filters) -> Filters {
    match &chain.content {
        Content::Http(http) => {
            let manager = Manager { port: port.number, ..manager(env, http, listener) };
            let mut filters = std::mem::take(extensions);
            manager.add_to(&mut filters, env);
            filters
        }
        Content::Service(to) => tcp::to_service(env, &to.service, to.port, port),
        Content::Routed(to) => tcp::routed(env, &to.routes, &to.origin, port),
    }
}

fn manager<'a>(env: &Env<'_>, http: &'a Http, listener: &str) -> Manager<'a> {
    let routes = Routes::Named(http.table.clone());
    let manager = Manager::new(Class::Outbound, &["outbound_", listener].concat(), routes);
    let mut manager = ProxyHeaders::new(env, Class::Outbound).on(manager);
    manager.protocol = http.protocol;
    manager.service = http.service.as_deref();
    manager.particulars.http1 = http10(env);
    if http.forward_proxy {
        let http1 = manager.particulars.http1.unwrap_or_default();
        manager.particulars.http1 = Some(Http1 { allows_absolute_urls: true, ..http1 });
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
