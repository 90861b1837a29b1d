//! Which listener takes a connection, and what its filters find out before a filter chain is chosen.

use canopus_proto::envoy::config::core::v3::{Address, address, socket_address::PortSpecifier};
use canopus_proto::envoy::config::listener::v3::listener_filter_chain_match_predicate::Rule;
use canopus_proto::envoy::config::listener::v3::{Listener, ListenerFilterChainMatchPredicate};

use super::{Call, Capture, Protocol};

const VIRTUAL_INBOUND: &str = "virtualInbound";
const TLS_INSPECTOR: &str = "envoy.filters.listener.tls_inspector";
const HTTP_INSPECTOR: &str = "envoy.filters.listener.http_inspector";

/// What is known of a connection when its filter chain is chosen.
pub(super) struct Connection {
    /// Whether a TLS handshake was recognised.
    pub(super) tls: bool,
    /// The server name of the handshake.
    pub(super) sni: String,
    /// The protocol of the handshake, or found by looking at clear text.
    pub(super) application_protocol: String,
}

/// The listener of a captured connection, of an address and port, of a port, or the one that takes all others.
pub(super) fn choose<'a>(listeners: &'a [Listener], call: &Call) -> Option<&'a Listener> {
    if call.capture == Capture::Inbound {
        return listeners.iter().find(|listener| listener.name == VIRTUAL_INBOUND);
    }
    let exact = call.address.to_string();
    let any = ["0.0.0.0", "::"];
    let listens = |listener: &&Listener, at: &[&str]| {
        addresses(listener).any(|(address, port)| port == call.port && at.contains(&address))
    };
    listeners
        .iter()
        .find(|listener| listens(listener, &[&exact]))
        .or_else(|| listeners.iter().find(|listener| listens(listener, &any)))
        .or_else(|| {
            listeners.iter().find(|listener| listener.use_original_dst.is_some_and(|used| used.value))
        })
}

fn addresses(listener: &Listener) -> impl Iterator<Item = (&str, u32)> {
    let additional =
        listener.additional_addresses.iter().filter_map(|additional| additional.address.as_ref());
    listener.address.iter().chain(additional).filter_map(socket)
}

fn socket(address: &Address) -> Option<(&str, u32)> {
    match address.address.as_ref()? {
        address::Address::SocketAddress(socket) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => Some((&socket.address, port)),
            _ => None,
        },
        _ => None,
    }
}

/// Looks at a connection as the listener's filters do.
pub(super) fn inspect(listener: &Listener, call: &Call) -> Connection {
    let inspects = |name: &str| {
        let mut filters = listener.listener_filters.iter().filter(|filter| filter.name == name);
        filters.any(|filter| !filter.filter_disabled.as_ref().is_some_and(|rule| holds(rule, call.port)))
    };
    let mut connection = Connection { tls: false, sni: String::new(), application_protocol: String::new() };
    match &call.tls {
        Some(tls) if inspects(TLS_INSPECTOR) => {
            connection.tls = true;
            connection.sni.clone_from(&tls.sni);
            connection.application_protocol.clone_from(&tls.alpn);
        }
        None if inspects(HTTP_INSPECTOR) => {
            connection.application_protocol = match call.protocol {
                Protocol::Http1 => "http/1.1".to_owned(),
                Protocol::Http2 => "h2c".to_owned(),
                Protocol::Tcp => String::new(),
            };
        }
        _ => {}
    }
    connection
}

fn holds(predicate: &ListenerFilterChainMatchPredicate, port: u32) -> bool {
    match &predicate.rule {
        Some(Rule::OrMatch(set)) => set.rules.iter().any(|rule| holds(rule, port)),
        Some(Rule::AndMatch(set)) => set.rules.iter().all(|rule| holds(rule, port)),
        Some(Rule::NotMatch(rule)) => !holds(rule, port),
        Some(Rule::AnyMatch(any)) => *any,
        Some(Rule::DestinationPortRange(range)) => {
            i64::from(range.start) <= i64::from(port) && i64::from(port) < i64::from(range.end)
        }
        None => false,
    }
}
