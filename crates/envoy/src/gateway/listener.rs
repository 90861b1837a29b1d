//! The listener of one port, around the filter chains of its servers.

use canopus_mesh::gateway::ServerPort;
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::socket_address::Protocol as SocketProtocol;
use canopus_proto::envoy::config::core::v3::{
    Address, TrafficDirection, UdpSocketConfig, address::Address as Kind,
};
use canopus_proto::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use canopus_proto::envoy::config::listener::v3::listener::connection_balance_config::{
    BalanceType, ExactBalance,
};
use canopus_proto::envoy::config::listener::v3::listener_filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::{
    AdditionalAddress, FilterChain, FilterChainMatch, Listener, ListenerFilter, QuicProtocolOptions,
    UdpListenerConfig,
};
use canopus_proto::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_runtime::flags::{
    MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP, PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT,
};

use super::chain::Chain;
use crate::acceptable::distinct_chains;
use crate::env::{Class, Env};
use crate::http::settings;
use crate::listener::{address, inspect};
use crate::telemetry::access_log;

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transport {
    /// TCP.
    Tcp,
    /// QUIC, for HTTP/3 beside HTTPS of the same port.
    Quic,
}

/// A listener in the making.
pub(super) struct Draft {
    bind: String,
    /// Further addresses of a proxy that has both IP families.
    extra_binds: Vec<String>,
    port: u32,
    transport: Transport,
    pub(super) chains: Vec<Chain>,
}

impl Draft {
    /// A listener without chains.
    pub(super) fn new(env: &Env<'_>, port: &ServerPort, transport: Transport) -> Self {
        let mut binds = address::wildcards(env.view).into_iter();
        let everywhere = binds.next().unwrap_or_default();
        let (bind, extra_binds) = match port.bind.as_str() {
            "" if env.dual_stack() => (everywhere, binds.collect()),
            "" => (everywhere, Vec::new()),
            bind => (bind.to_owned(), Vec::new()),
        };
        Self { bind, extra_binds, port: port.number, transport, chains: Vec::new() }
    }

    /// The name of the listener.
    pub(super) fn name(&self) -> String {
        match self.transport {
            Transport::Tcp => format!("{}_{}", self.bind, self.port),
            Transport::Quic => format!("udp_{}_{}", self.bind, self.port),
        }
    }

    /// The listener.
    pub(super) fn build(self, env: &Env<'_>) -> Listener {
        let additional = self
            .extra_binds
            .iter()
            .map(|bind| AdditionalAddress { address: Some(self.address(bind)), ..Default::default() });
        let mut listener = Listener {
            name: self.name(),
            address: Some(self.address(&self.bind)),
            additional_addresses: additional.collect(),
            traffic_direction: TrafficDirection::Outbound as i32,
            listener_filters: self.listener_filters(env),
            max_connections_to_accept_per_socket_event: accepted_at_once(env),
            per_connection_buffer_limit_bytes: buffer_limit(env),
            access_log: access_log::listener(env, Class::Gateway),
            ..Default::default()
        };
        match self.transport {
            Transport::Tcp if env.view.metadata.outbound_listener_exact_balance.0 => {
                let exact = BalanceType::ExactBalance(ExactBalance {});
                listener.connection_balance_config =
                    Some(ConnectionBalanceConfig { balance_type: Some(exact) });
            }
            Transport::Tcp => {}
            Transport::Quic => {
                listener.udp_listener_config = Some(UdpListenerConfig {
                    quic_options: Some(QuicProtocolOptions::default()),
                    downstream_socket_config: Some(UdpSocketConfig::default()),
                    ..Default::default()
                });
            }
        }
        let chains = self.chains.into_iter().map(|chain| filter_chain(env, chain)).collect();
        listener.filter_chains = distinct_chains(env.view, chains);
        listener
    }

    fn address(&self, bind: &str) -> Address {
        let mut address = address::bind(bind, self.port);
        if let (Transport::Quic, Some(Kind::SocketAddress(socket))) = (self.transport, &mut address.address) {
            socket.protocol = SocketProtocol::Udp as i32;
        }
        address
    }

    fn listener_filters(&self, env: &Env<'_>) -> Vec<ListenerFilter> {
        if self.transport == Transport::Quic {
            return Vec::new();
        }
        let topology = env.proxy_config.gateway_topology.as_ref();
        let proxied = topology.is_some_and(|topology| topology.proxy_protocol.is_some());
        let inspects = self
            .chains
            .iter()
            .any(|chain| !chain.server_names.is_empty() || chain.tls.as_ref().is_some_and(|tls| tls.offers));
        let proxied = proxied.then(proxy_protocol);
        proxied.into_iter().chain(inspects.then(inspect::tls_inspector)).collect()
    }
}

/// Takes the header off connections that say at their beginning who opened them.
fn proxy_protocol() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.proxy_protocol".into(),
        config_type: Some(ConfigType::TypedConfig(Any::pack(&ProxyProtocol::default()))),
        ..Default::default()
    }
}

fn accepted_at_once(env: &Env<'_>) -> Option<UInt32Value> {
    let count = env.flag(MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP);
    u32::try_from(count).ok().filter(|count| *count > 0).map(Into::into)
}

fn buffer_limit(env: &Env<'_>) -> Option<UInt32Value> {
    let settings = settings::resolve(env)?;
    let bytes = settings.listener_per_connection_buffer_limit_bytes?;
    u32::try_from(bytes.value).ok().map(Into::into)
}

fn filter_chain(env: &Env<'_>, chain: Chain) -> FilterChain {
    // A client that never finishes its handshake must not hold memory.
    let handshake = env.flag(PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT);
    FilterChain {
        filter_chain_match: chain_match(&chain),
        transport_socket: chain.tls.map(|tls| tls.socket),
        transport_socket_connect_timeout: (!handshake.is_zero()).then(|| Duration::from(handshake)),
        filters: chain.filters,
        ..Default::default()
    }
}

/// What a chain is chosen by; nothing if it takes everything.
fn chain_match(chain: &Chain) -> Option<FilterChainMatch> {
    let any_name = chain.server_names.iter().any(|name| name == "*");
    let mut server_names = if any_name { Vec::new() } else { chain.server_names.clone() };
    server_names.sort();
    if server_names.is_empty() && chain.application_protocols.is_empty() {
        return None;
    }
    let application_protocols = chain.application_protocols.iter().map(|&name| name.to_owned()).collect();
    Some(FilterChainMatch { server_names, application_protocols, ..Default::default() })
}
