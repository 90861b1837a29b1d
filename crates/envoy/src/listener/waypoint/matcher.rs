//! Trees of matchers, by which a listener chooses among its filter chains.

use std::collections::BTreeMap;

use canopus_proto::envoy::extensions::matching::common_inputs::network::v3::{
    ApplicationProtocolInput, DestinationIpInput, DestinationPortInput, FilterStateInput,
};
use canopus_proto::google::protobuf::StringValue;
use canopus_proto::xds::core::v3::{CidrRange, TypedExtensionConfig};
use canopus_proto::xds::r#type::matcher::v3::ip_matcher::IpRangeMatcher;
use canopus_proto::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use canopus_proto::xds::r#type::matcher::v3::matcher::{MatcherTree, MatcherType, OnMatch, on_match};
use canopus_proto::xds::r#type::matcher::v3::{IpMatcher, Matcher};
use canopus_proto::{Any, Message, Name};
use canopus_runtime::flags::PILOT_HTTP10;

use crate::address;
use crate::env::Env;
use crate::listener::connect::{AUTHORITY, REQUEST_SOURCE};

/// The filter chain of this name.
pub(super) fn to_chain(name: &str) -> OnMatch {
    let named = extension(name, &StringValue { value: name.to_owned() });
    OnMatch { on_match: Some(on_match::OnMatch::Action(named)), ..Default::default() }
}

/// Whatever another matcher chooses.
pub(super) fn then(matcher: Matcher) -> OnMatch {
    OnMatch { on_match: Some(on_match::OnMatch::Matcher(Box::new(matcher))), ..Default::default() }
}

/// By the port a connection was made to.
pub(super) fn by_port(ports: BTreeMap<String, OnMatch>) -> Matcher {
    exact(extension("port", &DestinationPortInput {}), ports, None)
}

/// By whether HTTP is spoken.
pub(super) fn by_protocol(env: &Env<'_>, tcp: OnMatch, http: OnMatch) -> OnMatch {
    let versions = ["'h2c'", "'http/1.1'"].into_iter().chain(env.flag(PILOT_HTTP10).then_some("'http/1.0'"));
    let versions = versions.map(|version| (version.to_owned(), http.clone())).collect();
    then(exact(extension("application-protocol", &ApplicationProtocolInput {}), versions, Some(tcp)))
}

/// By what sort of proxy opened a tunnel: the chains for waypoints, gateways and others.
pub(super) fn by_source(waypoint: &str, gateway: &str, other: &str) -> Matcher {
    let input = FilterStateInput { key: REQUEST_SOURCE.into(), ..Default::default() };
    let sources = [("waypoint", waypoint), ("gateway", gateway)];
    let sources = sources.map(|(source, chain)| (source.to_owned(), to_chain(chain)));
    exact(extension("request-source-filter-state", &input), sources.into(), Some(to_chain(other)))
}

/// By the `host:port` that a tunnel was opened to, or else by something else.
pub(super) fn by_authority(hosts: BTreeMap<String, OnMatch>, otherwise: Matcher) -> Matcher {
    let input = FilterStateInput { key: AUTHORITY.into(), ..Default::default() };
    exact(extension("authority-filter-state", &input), hosts, Some(then(otherwise)))
}

/// By the address a connection was made to.
pub(super) fn by_address(range_matchers: Vec<IpRangeMatcher>) -> Matcher {
    let ranges = extension("ip", &IpMatcher { range_matchers });
    tree(extension("ip", &DestinationIpInput {}), TreeType::CustomMatch(ranges), None)
}

/// Addresses and ranges of addresses, and what is chosen for them.
pub(super) fn range<'a>(addresses: impl Iterator<Item = &'a str>, chosen: OnMatch) -> IpRangeMatcher {
    let ranges = addresses.filter_map(address::range_of);
    IpRangeMatcher {
        ranges: ranges
            .map(|range| CidrRange { address_prefix: range.address_prefix, prefix_len: range.prefix_len })
            .collect(),
        on_match: Some(chosen),
        ..Default::default()
    }
}

fn exact(input: TypedExtensionConfig, map: BTreeMap<String, OnMatch>, otherwise: Option<OnMatch>) -> Matcher {
    tree(input, TreeType::ExactMatchMap(MatchMap { map }), otherwise)
}

fn tree(input: TypedExtensionConfig, tree: TreeType, otherwise: Option<OnMatch>) -> Matcher {
    let tree = MatcherTree { input: Some(input), tree_type: Some(tree) };
    Matcher { on_no_match: otherwise.map(Box::new), matcher_type: Some(MatcherType::MatcherTree(tree)) }
}

fn extension<M: Message + Name>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(Any::pack(config)) }
}
