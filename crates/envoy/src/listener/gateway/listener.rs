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
    AdditionalAddress, Listener, ListenerFilter, QuicProtocolOptions, UdpListenerConfig,
};
use canopus_proto::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{
    MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP, PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT,
};

use super::chain::Chain;
use crate::address;
use crate::env::{Class, Env};
use crate::http::settings;
use crate::listener::distinct_chains::DistinctChains;
use crate::listener::draft::{self as listener, FilterChain, Match};
use crate::listener::inspect;
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
        let mut binds = address::wildcards(&env.audience.addressing).into_iter();
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
    pub(super) fn build(self, env: &Env<'_>, direction: TrafficDirection) -> Resource {
        let additional = self
            .extra_binds
            .iter()
            .map(|bind| AdditionalAddress { address: Some(self.address(bind)), ..Default::default() });
        let mut listener = Listener {
            name: self.name(),
            address: Some(self.address(&self.bind)),
            additional_addresses: additional.collect(),
            traffic_direction: direction as i32,
            listener_filters: self.listener_filters(env),
            max_connections_to_accept_per_socket_event: accepted_at_once(env),
            per_connection_buffer_limit_bytes: buffer_limit(env),
            access_log: access_log::listener(env, Class::Gateway),
            ..Default::default()
        };
        match self.transport {
            Transport::Tcp if env.audience.sockets.balances_outbound => {
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
        // A client that never finishes its handshake must not hold memory.
        let handshake = env.flag(PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT);
        let handshake_timeout = (!handshake.is_zero()).then(|| Duration::from(handshake));
        let mut written = listener::Draft::new(listener);
        let mut distinct = DistinctChains::new(&env.audience.build);
        for Chain { server_names, application_protocols, tls, filters } in self.chains {
            let matched = chain_match(&server_names, application_protocols);
            if distinct.admits(matched.as_ref()) {
                let socket = tls.map(|tls| tls.socket);
                let chain = FilterChain { matched, socket, handshake_timeout, ..Default::default() };
                written.add(&chain, &filters);
            }
        }
        written.encode()
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
        let topology = env.audience.config.gateway_topology.as_ref();
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

/// What a chain is chosen by; nothing if it takes everything.
fn chain_match<'a>(server_names: &'a [String], protocols: &'static [&'static str]) -> Option<Match<'a>> {
    let any_name = server_names.iter().any(|name| name == "*");
    let named = server_names.iter().filter(|_| !any_name);
    let mut server_names: Vec<_> = named.map(String::as_str).collect();
    server_names.sort_unstable();
    let chooses = !server_names.is_empty() || !protocols.is_empty();
    chooses.then(|| Match { server_names, protocols, ..Default::default() })
}
