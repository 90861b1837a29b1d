//! Listener filters: what looks at a connection before a filter chain is chosen.

use std::collections::BTreeMap;

use canopus_proto::envoy::config::listener::v3::listener_filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::listener_filter_chain_match_predicate::{MatchSet, Rule};
use canopus_proto::envoy::config::listener::v3::{
    ListenerFilter, ListenerFilterChainMatchPredicate as Predicate,
};
use canopus_proto::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use canopus_proto::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use canopus_proto::envoy::extensions::filters::listener::original_src::v3::OriginalSrc;
use canopus_proto::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use canopus_proto::envoy::r#type::v3::Int32Range;
use canopus_proto::{Any, Message, Name};

use super::chain::TLS;
use super::draft::Match;

/// Bytes that suffice for most handshakes; Envoy reads more if it must.
const FIRST_READ: u32 = 512;

/// Marks packets whose source address is the client's.
const MARK: u32 = 1337;

fn filter<M: Message + Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(Any::pack(config))),
        ..Default::default()
    }
}

/// Finds out where a redirected connection wanted to go.
pub(crate) fn original_destination() -> ListenerFilter {
    filter("envoy.filters.listener.original_dst", &OriginalDst::default())
}

/// Uses the client's address for the connection to the workload.
pub(crate) fn original_source() -> ListenerFilter {
    filter("envoy.filters.listener.original_src", &OriginalSrc { mark: MARK, ..Default::default() })
}

/// Reads the beginning of a TLS handshake.
pub(crate) fn tls_inspector() -> ListenerFilter {
    let config = TlsInspector { initial_read_buffer_size: Some(FIRST_READ.into()), ..Default::default() };
    filter("envoy.filters.listener.tls_inspector", &config)
}

/// Reads the beginning of a request.
pub(crate) fn http_inspector() -> ListenerFilter {
    filter("envoy.filters.listener.http_inspector", &HttpInspector::default())
}

/// What filter chains need to know about connections to each port.
#[derive(Default)]
pub(super) struct Inspections(BTreeMap<u32, Needs>);

/// What the chains of a port need to know.
#[derive(Clone, Copy, Default)]
struct Needs {
    tls: bool,
    http: bool,
}

impl Inspections {
    /// Notes what a chain matches.
    pub(super) fn note(&mut self, matched: &Match<'_>) {
        let needs = self.0.entry(matched.port).or_default();
        needs.tls |= matched.transport == TLS;
        needs.http |= matched.protocols.iter().any(|name| ["http/1.1", "h2c"].contains(name));
    }

    /// The inspectors, each on the ports that need it: servers that speak first must not be inspected. The HTTP inspector
    /// comes second, because it looks at nothing that is TLS.
    pub(super) fn inspectors(&self) -> Vec<ListenerFilter> {
        let Self(ports) = self;
        let mut inspectors = Vec::new();
        if ports.values().any(|needs| needs.tls) {
            inspectors.push(tls_inspector_on(ports));
        }
        if ports.values().any(|needs| needs.http) {
            let rest = ports.iter().filter(|(_, needs)| !needs.http).map(|(port, _)| *port);
            inspectors.push(ListenerFilter { filter_disabled: any_of(rest), ..http_inspector() });
        }
        inspectors
    }
}

/// Port 0 stands for all that are not listed.
fn tls_inspector_on(ports: &BTreeMap<u32, Needs>) -> ListenerFilter {
    let by_default = ports.get(&0).is_some_and(|needs| needs.tls);
    let others = ports.iter().filter(|(port, needs)| **port != 0 && needs.tls != by_default);
    let others = any_of(others.map(|(port, _)| *port));
    let filter_disabled = if by_default { others } else { others.map(not) };
    ListenerFilter { filter_disabled, ..tls_inspector() }
}

/// Matches connections to any of these ports; `None` if there are none.
pub(super) fn any_of(ports: impl Iterator<Item = u32>) -> Option<Predicate> {
    let mut rules: Vec<_> = ports.map(to_port).collect();
    match rules.len() {
        0 => None,
        1 => rules.pop(),
        _ => Some(Predicate { rule: Some(Rule::OrMatch(MatchSet { rules })) }),
    }
}

fn to_port(port: u32) -> Predicate {
    let start = i32::try_from(port).unwrap_or(i32::MAX);
    let range = Int32Range { start, end: start.saturating_add(1) };
    Predicate { rule: Some(Rule::DestinationPortRange(range)) }
}

fn not(predicate: Predicate) -> Predicate {
    Predicate { rule: Some(Rule::NotMatch(Box::new(predicate))) }
}
