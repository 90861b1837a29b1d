//! Filter chains of outbound listeners: what each matches, and when two cannot stand side by side.

use std::collections::BTreeSet;

use canopus_base::net::parse_prefix_or_ip;
use canopus_base::protocol::Protocol;
use canopus_mesh::world::Origin;
use canopus_proto::envoy::config::listener::v3::FilterChainMatch;
use canopus_proto::istio::networking::v1alpha3::RouteDestination;
use std::sync::Arc;

use super::address;

/// Set by the TLS inspector.
pub(crate) const TLS: &str = "tls";
/// Set where there is no TLS.
pub(crate) const RAW_BUFFER: &str = "raw_buffer";

/// A filter chain to be built.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chain {
    /// Server names of TLS clients; `*` stands for all.
    pub(super) server_names: Vec<String>,
    /// Addresses and CIDRs that clients connect to.
    pub(super) destinations: Vec<String>,
    /// Whether it takes plain HTTP only, as the HTTP inspector finds it.
    pub(super) sniffed: Option<Sniffed>,
    /// The object that asks for it.
    pub(super) origin: Option<Origin>,
    /// What becomes of the connection.
    pub(super) content: Content,
}

/// Plain HTTP of these versions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sniffed {
    /// The names the HTTP inspector gives them.
    pub(super) protocols: Vec<String>,
}

/// What becomes of the connections of a chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// Their requests are routed.
    Http(Http),
    /// They go to one port of a service.
    Service(ToService),
    /// They go where a VirtualService says.
    Routed(Routed),
}

/// Requests to be routed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Http {
    /// The route table.
    pub(super) table: String,
    /// What is spoken on the port.
    pub(super) protocol: Protocol,
    /// The service the chain was first needed for.
    pub(super) service: Option<Arc<canopus_mesh::service::Service>>,
    /// Whether absolute URLs are asked for, as of a forward proxy.
    pub(super) forward_proxy: bool,
}

/// Connections to one port of a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToService {
    /// The service.
    pub(super) service: Arc<canopus_mesh::service::Service>,
    /// The port of the service, which is not that of the listener if a Sidecar chose the latter.
    pub(super) port: u32,
}

/// Connections that a VirtualService routes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Routed {
    /// Where to, by weight. Never empty.
    pub(super) routes: Vec<RouteDestination>,
    /// The VirtualService.
    pub(super) origin: Origin,
}

impl Chain {
    /// A chain that takes everything.
    pub(super) fn new(content: Content) -> Self {
        Self { server_names: Vec::new(), destinations: Vec::new(), sniffed: None, origin: None, content }
    }

    /// Whether it takes every connection.
    pub(super) fn takes_all(&self) -> bool {
        self.matches_all_names() && self.sniffed.is_none() && self.destinations.is_empty()
    }

    fn matches_all_names(&self) -> bool {
        self.server_names.is_empty() || self.server_names.iter().any(|name| name == "*")
    }

    /// What it matches; `None` if it takes everything.
    pub(super) fn to_match(&self) -> Option<FilterChainMatch> {
        if self.takes_all() {
            return None;
        }
        let mut matched = FilterChainMatch::default();
        if let Some(sniffed) = &self.sniffed {
            matched.application_protocols.clone_from(&sniffed.protocols);
            matched.transport_protocol = RAW_BUFFER.into();
        }
        if !self.matches_all_names() {
            matched.server_names.clone_from(&self.server_names);
            matched.server_names.sort();
        }
        let mut destinations: Vec<_> = self.destinations.iter().collect();
        destinations.sort();
        let ranges = destinations.into_iter().filter_map(|text| address::range_of(text));
        matched.prefix_ranges = ranges.filter(|range| !is_unspecified(&range.address_prefix)).collect();
        Some(matched)
    }

    /// Whether it matches the same connections as another, which Envoy refuses.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        self.sniffed == other.sniffed
            && self.names_that_count() == other.names_that_count()
            && self.ranges_that_count() == other.ranges_that_count()
    }

    fn names_that_count(&self) -> BTreeSet<&str> {
        self.server_names.iter().map(String::as_str).filter(|name| *name != "*").collect()
    }

    /// Ranges without the bits that do not matter.
    fn ranges_that_count(&self) -> BTreeSet<String> {
        let prefixes = self.destinations.iter().filter_map(|text| parse_prefix_or_ip(text).ok());
        let counting = prefixes.filter(|prefix| !is_unspecified(&prefix.addr().to_string()));
        counting.map(|prefix| prefix.trunc().to_string()).collect()
    }
}

/// Parity: only IPv4's "no address" is left out.
fn is_unspecified(address: &str) -> bool {
    address == "0.0.0.0"
}

/// Adds those of `incoming` that match something none of `chains` does.
pub(super) fn merge(chains: &mut Vec<Chain>, incoming: Vec<Chain>) {
    for chain in incoming {
        if !chains.iter().any(|present| present.conflicts_with(&chain)) {
            chains.push(chain);
        }
    }
}
