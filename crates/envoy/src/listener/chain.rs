//! Filter chains of outbound listeners: what each matches, and when two cannot stand side by side.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use canopus_base::FastSet;
use canopus_base::net::{IpNet, parse_prefix_or_ip};
use canopus_base::protocol::Protocol;
use canopus_mesh::world::Origin;
use canopus_proto::istio::networking::v1alpha3::RouteDestination;
use std::sync::Arc;

use super::draft::Match;
use crate::address;

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
    /// The versions of plain HTTP it takes, as the HTTP inspector finds them, if it takes nothing else.
    pub(super) sniffed: Option<&'static [&'static str]>,
    /// The object that asks for it.
    pub(super) origin: Option<Origin>,
    /// What becomes of the connection.
    pub(super) content: Content,
}

/// What becomes of the connections of a chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// HTTP connection manager: requests are routed.
    Http(Http),
    /// Connections go to one port of a service.
    Service(ToService),
    /// Connections go where a VirtualService says.
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
    pub(super) fn to_match(&self) -> Option<Match<'_>> {
        if self.takes_all() {
            return None;
        }
        let named = self.server_names.iter().filter(|_| !self.matches_all_names());
        let mut server_names: Vec<_> = named.map(String::as_str).collect();
        server_names.sort_unstable();
        let mut destinations: Vec<_> = self.destinations.iter().collect();
        destinations.sort_unstable();
        let ranges = destinations.into_iter().filter_map(|text| address::range_of(text));
        Some(Match {
            ranges: ranges.filter(|range| !is_unspecified(&range.address_prefix)).collect(),
            port: 0,
            transport: if self.sniffed.is_some() { RAW_BUFFER } else { "" },
            protocols: self.sniffed.unwrap_or_default(),
            server_names,
        })
    }

    /// The connections it matches.
    fn matched(&self) -> Matched {
        let names = self.server_names.iter().filter(|name| *name != "*");
        let prefixes = self.destinations.iter().filter_map(|text| parse_prefix_or_ip(text).ok());
        // Parity: only IPv4's "no address" is left out.
        let counting = prefixes.filter(|prefix| prefix.addr() != Ipv4Addr::UNSPECIFIED);
        Matched {
            sniffed: self.sniffed,
            names: names.cloned().collect(),
            ranges: counting.map(|prefix| prefix.trunc()).collect(),
        }
    }
}

/// The connections that a chain matches, without what does not matter about them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Matched {
    sniffed: Option<&'static [&'static str]>,
    names: BTreeSet<String>,
    ranges: BTreeSet<IpNet>,
}

/// Parity: only IPv4's "no address" is left out.
fn is_unspecified(address: &str) -> bool {
    address == "0.0.0.0"
}

/// What the chains of a listener match; Envoy refuses a listener of which two match the same.
#[derive(Default)]
pub(super) struct Taken(FastSet<Matched>);

impl Taken {
    /// Adds those of `incoming` that match something none of `chains` does; whether that was all of them.
    pub(super) fn merge(&mut self, chains: &mut Vec<Chain>, incoming: Vec<Chain>) -> bool {
        if self.0.is_empty() {
            self.0.extend(chains.iter().map(Chain::matched));
        }
        let wanted = chains.len() + incoming.len();
        chains.extend(incoming.into_iter().filter(|chain| self.0.insert(chain.matched())));
        chains.len() == wanted
    }
}
