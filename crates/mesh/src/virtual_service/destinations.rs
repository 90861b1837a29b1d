//! The destinations of a VirtualService.

use std::collections::{BTreeMap, BTreeSet};

use canopus_proto::istio::networking::v1alpha3::{Destination, HttpRoute, VirtualService};

/// Destination hosts with their ports; 0 means all ports.
pub type Destinations = BTreeMap<String, BTreeSet<u32>>;

/// All destinations of a VirtualService. With a source namespace, only those of routes that apply to it.
pub fn destinations(spec: &VirtualService, source: Option<&str>) -> Destinations {
    let mut found = Destinations::new();
    for Destination { host, port, .. } in all(spec, source) {
        found.entry(host.clone()).or_default().insert(port.as_ref().map_or(0, |port| port.number));
    }
    found
}

/// The destination hosts with their ports; no ports means all.
pub(crate) fn targets(spec: &VirtualService, source: &str) -> Vec<(Box<str>, Vec<u32>)> {
    let number = |destination: &Destination| destination.port.as_ref().map_or(0, |port| port.number);
    let mut pairs: Vec<_> =
        all(spec, Some(source)).map(|destination| (destination.host.as_str(), number(destination))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let of_host = |pairs: &[(&str, u32)]| {
        // 0 means all ports and sorts first.
        let ports = if pairs[0].1 == 0 { Vec::new() } else { pairs.iter().map(|(_, port)| *port).collect() };
        (pairs[0].0.into(), ports)
    };
    pairs.chunk_by(|a, b| a.0 == b.0).map(of_host).collect()
}

/// The destination hosts for any source, with duplicates.
pub(crate) fn destination_hosts(spec: &VirtualService) -> impl Iterator<Item = &str> {
    all(spec, None).map(|destination| destination.host.as_str())
}

fn all<'a>(spec: &'a VirtualService, source: Option<&'a str>) -> impl Iterator<Item = &'a Destination> {
    let http = spec.http.iter().filter(move |http| source.is_none_or(|source| may_come_from(http, source)));
    let http = http.flat_map(|http| {
        let routes = http.route.iter().filter_map(|route| route.destination.as_ref());
        let mirrors = http.mirrors.iter().filter_map(|mirror| mirror.destination.as_ref());
        routes.chain(&http.mirror).chain(mirrors)
    });
    let tcp = spec.tcp.iter().flat_map(|tcp| &tcp.route).filter_map(|route| route.destination.as_ref());
    let tls = spec.tls.iter().flat_map(|tls| &tls.route).filter_map(|route| route.destination.as_ref());
    http.chain(tcp).chain(tls)
}

/// Whether a route applies to a source namespace. Matches without a source namespace apply to all.
fn may_come_from(http: &HttpRoute, source: &str) -> bool {
    let mut named =
        http.r#match.iter().map(|m| m.source_namespace.as_str()).filter(|name| !name.is_empty()).peekable();
    named.peek().is_none() || named.any(|name| name == source)
}
