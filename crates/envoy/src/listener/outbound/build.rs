//! Outbound listeners as Envoy has them.

use std::sync::LazyLock;

use canopus_mesh::destination_rule::{self, RuleId};
use canopus_mesh::service::Port;
use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use canopus_proto::envoy::config::listener::v3::listener::connection_balance_config::{
    BalanceType, ExactBalance,
};
use canopus_proto::fields;
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_proto::resource::Resource;
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_runtime::flags::{
    MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP, PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT,
    PILOT_SIDECAR_USE_REMOTE_ADDRESS,
};

use super::plan::Entry;
use crate::address;
use crate::dns_cache;
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::filter::Filters;
use crate::http::headers::ProxyHeaders;
use crate::http::{Http1, Manager, Routes, http10};
use crate::listener::chain::{Chain, Content, Http};
use crate::listener::draft::{FilterChain, FilterChains, Match};
use crate::listener::{catch_all, inspect};
use crate::names;
use crate::network::tcp;

/// Builds a planned listener, given the rules for the services that its chains lead to.
pub(crate) fn listener(env: &Env<'_>, entry: &Entry, rules: &[Option<RuleId>]) -> Resource {
    let mut rules = rules.iter();
    let (address, port) = (entry.binding.primary(), entry.port.number);
    let name = names::listener(address, port);
    let mut chains = FilterChains::default();
    // Parity: of several chains for requests only the first has extensions of connections.
    let mut is_first = true;
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
        let filters = match &chain.content {
            Content::Http(http) => http_filters(env, http, &entry.port, &name, &mut is_first),
            Content::Service(to) => {
                let rule = rules.next().and_then(Option::as_ref);
                let rule = rule.and_then(|id| destination_rule::rule(env.ctx, id));
                tcp::to_service(env, &to.service, rule.as_deref(), to.port, &entry.port)
            }
            Content::Routed(to) => tcp::routed(env, &to.routes, &to.origin, &entry.port),
        };
        // What takes everything comes last, so that no connection is lost between chains that match a part of it each.
        match written.matched {
            Some(_) => chains.add(&written, &filters),
            None => chains.set_default(&written, &filters),
        }
    }
    if chains.leave_gaps() {
        let matched = Some(Match::default());
        let rest = FilterChain { name: "PassthroughFilterChain", matched, ..Default::default() };
        chains.set_default(&rest, &catch_all::filters(env));
    }
    let write_address =
        |all: &mut ProtoWriter<Listener>| address::write(all, fields::listener::ADDRESS, address, port);
    chains.in_listener(&name, write_address, |all| write_rest(env, entry, all))
}

/// Adds what an outbound listener says besides its name, its address and its chains.
fn write_rest(env: &Env<'_>, entry: &Entry, all: &mut ProtoWriter<Listener>) {
    static USUAL: LazyLock<Encoded<Listener>> =
        LazyLock::new(|| Encoded::new(&Listener { bind_to_port: Some(false.into()), ..every_listener() }));
    let inspections = Inspections::needed(env, entry);
    let is_balanced = env.audience.sockets.balances_outbound;
    let is_usual = !is_balanced
        && !entry.binding.to_port
        && entry.binding.extra().is_empty()
        && inspections == Inspections::default();
    if is_usual {
        return all.append(&*USUAL);
    }
    let mut listener = every_listener();
    listener.additional_addresses = address::additional(entry.binding.extra(), entry.port.number);
    if is_balanced {
        listener.connection_balance_config = Some(exact_balance());
    }
    if entry.binding.to_port {
        listener.max_connections_to_accept_per_socket_event = connections_per_event(env);
    } else {
        listener.bind_to_port = Some(false.into());
    }
    if inspections.server_name {
        listener.listener_filters.push(inspect::tls_inspector());
    }
    if inspections.http {
        listener.listener_filters.push(inspect::http_inspector());
        listener.listener_filters_timeout = env.mesh().protocol_detection_timeout;
    }
    all.append_message(&listener);
}

/// What all outbound listeners say.
fn every_listener() -> Listener {
    Listener {
        traffic_direction: TrafficDirection::Outbound as i32,
        continue_on_listener_filters_timeout: true,
        listener_filters_timeout: Some(Duration::from_secs(0)),
        ..Default::default()
    }
}

/// What the chains of a listener need to know about a connection before one of them takes it.
#[derive(Default, PartialEq)]
struct Inspections {
    /// The name a TLS client asks for.
    server_name: bool,
    /// Whether it is HTTP.
    http: bool,
}

impl Inspections {
    fn needed(env: &Env<'_>, entry: &Entry) -> Self {
        let needs_name = |chain: &Chain| !chain.server_names.is_empty() || resolves_names(env, chain);
        Self {
            server_name: entry.chains.iter().any(needs_name),
            http: entry.chains.iter().any(|chain| chain.sniffed.is_some()),
        }
    }
}

/// Whether connections go to whatever address the name has that the client asks for.
fn resolves_names(env: &Env<'_>, chain: &Chain) -> bool {
    match &chain.content {
        Content::Service(to) => dns_cache::is_for(env.audience.role.kind, Class::Outbound, &to.service),
        Content::Http(_) | Content::Routed(_) => false,
    }
}

/// The filters of a chain for requests. `is_first` until there is one.
fn http_filters(env: &Env<'_>, http: &Http, port: &Port, listener: &str, is_first: &mut bool) -> Filters {
    let manager = Manager { port: port.number, ..manager(env, http, listener) };
    let mut filters = match std::mem::take(is_first) {
        true => Placed::network(env, Class::Outbound, port.number).all_on_connections(),
        false => Filters::default(),
    };
    manager.add_to(&mut filters, env);
    filters
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
