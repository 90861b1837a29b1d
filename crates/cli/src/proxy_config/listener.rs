//! Listeners and what their filter chains lead to.

use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::{Address, address};
use canopus_proto::envoy::config::listener::v3::listener::ListenerSpecifier;
use canopus_proto::envoy::config::listener::v3::{Filter as NetworkFilter, FilterChain, FilterChainMatch, Listener, filter};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, RouteMatch, VirtualHost};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy;

use super::dump::ConfigDump;
use super::endpoint::port_of;
use super::matcher;
use super::render::{self, Format};
use crate::table::{aligned, row};

const HTTP: &str = "envoy.filters.network.http_connection_manager";
const TCP: &str = "envoy.filters.network.tcp_proxy";
const BLACK_HOLE: &[u8] = b"BlackHoleCluster";

/// Names for lists of application protocols that Istio generates.
const KNOWN_PROTOCOLS: [(&str, &[&str]); 4] = [
    ("App: HTTP TLS", &["http/1.0", "http/1.1", "h2c", "istio-http/1.0", "istio-http/1.1", "istio-h2"]),
    ("App: Istio HTTP Plain", &["istio", "istio-http/1.0", "istio-http/1.1", "istio-h2"]),
    ("App: TCP TLS", &["istio-peer-exchange", "istio"]),
    ("App: HTTP", &["http/1.0", "http/1.1", "h2c"]),
];

/// Which listeners are printed.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Filter {
    /// Only listeners of this address.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) address: Option<String>,
    /// Only listeners of this port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u32,
    /// Only listeners of this type: HTTP, TCP or HTTP+TCP.
    #[arg(long, value_name = "TYPE")]
    pub(super) r#type: Option<String>,
}

impl Filter {
    fn takes(&self, listener: &Listener) -> bool {
        let is_at = |wanted: &String| addresses(listener).iter().any(|one| one.eq_ignore_ascii_case(wanted));
        self.address.as_ref().is_none_or(is_at)
            && (self.port == 0 || self.port == port(listener))
            && self.r#type.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind(listener)))
    }
}

pub(super) fn print(
    dump: &ConfigDump,
    filter: &Filter,
    verbose: bool,
    format: Format,
) -> anyhow::Result<String> {
    if format == Format::Short {
        return summary(dump, filter, verbose, false);
    }
    let mut listeners = dump.listeners()?;
    listeners.retain(|listener| filter.takes(listener));
    Ok(render::messages(&listeners, format))
}

pub(super) fn summary(
    dump: &ConfigDump,
    filter: &Filter,
    verbose: bool,
    with_type: bool,
) -> anyhow::Result<String> {
    let mut listeners = dump.listeners()?;
    listeners.retain(|listener| filter.takes(listener));
    listeners.sort_by_cached_key(|listener| (port(listener), address(listener), kind(listener)));
    let mut header = row(["ADDRESSES", "PORT"]);
    header.extend(if verbose { row(["MATCH", "DESTINATION"]) } else { row(["TYPE"]) });
    if with_type {
        header.insert(0, "NAME".to_owned());
    }
    let mut rows = vec![header];
    for listener in &listeners {
        let mut start = vec![addresses(listener).join(","), port(listener).to_string()];
        if with_type {
            start.insert(0, format!("listener/{}", listener.name));
        }
        if !verbose {
            start.push(kind(listener).to_owned());
            rows.push(start);
            continue;
        }
        let mut ends: Vec<(String, String)> = chains(listener)
            .map(|chain| (match_text(chain.filter_chain_match.as_ref()), destination(&chain.filters)))
            .collect();
        ends.sort_by(|(_, a), (_, b)| b.cmp(a));
        rows.extend(ends.into_iter().map(|(matching, destination)| {
            let mut line = start.clone();
            line.extend([matching, destination]);
            line
        }));
    }
    Ok(aligned(&rows, 1))
}

/// The chains of a waypoint, whose matches are a tree.
pub(super) fn waypoint(dump: &ConfigDump) -> anyhow::Result<String> {
    let mut listeners = dump.listeners()?;
    let is_internal = |listener: &Listener| {
        matches!(listener.listener_specifier, Some(ListenerSpecifier::InternalListener(_)))
    };
    listeners.sort_by_cached_key(|listener| {
        let name = if is_internal(listener) { listener.name.clone() } else { String::new() };
        (port(listener), address(listener), name, kind(listener))
    });
    let mut rows = vec![row(["LISTENER", "CHAIN", "MATCH", "DESTINATION"])];
    for listener in &listeners {
        let full = format!("envoy://{}", listener.name);
        let all: Vec<&FilterChain> = chains(listener).collect();
        let is_own = is_internal(listener) && matches!(all.as_slice(), [only] if only.name == full);
        let name = if is_own { "internal".to_owned() } else { full };
        for chain in all {
            let matches = match &listener.filter_chain_matcher {
                Some(tree) => matcher::paths(&chain.name, tree),
                None => vec![match_text(chain.filter_chain_match.as_ref())],
            };
            for matching in matches {
                rows.push(vec![name.clone(), chain.name.clone(), matching, destination(&chain.filters)]);
            }
        }
    }
    Ok(aligned(&rows, 1))
}

fn chains(listener: &Listener) -> impl Iterator<Item = &FilterChain> {
    listener.filter_chains.iter().chain(listener.default_filter_chain.as_ref())
}

fn kind(listener: &Listener) -> &'static str {
    let filters = || chains(listener).flat_map(|chain| &chain.filters);
    let has_http = filters().any(|filter| filter.name == HTTP);
    let has_tcp = filters().any(|filter| filter.name == TCP && !is_black_hole(filter));
    match (has_http, has_tcp) {
        (true, false) => "HTTP",
        (true, true) => "HTTP+TCP",
        (false, true) => "TCP",
        (false, false) => "UNKNOWN",
    }
}

fn is_black_hole(filter: &NetworkFilter) -> bool {
    config(filter).windows(BLACK_HOLE.len()).any(|window| window == BLACK_HOLE)
}

/// The encoded configuration of a filter.
fn config(filter: &NetworkFilter) -> &[u8] {
    match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config)) => &config.value,
        _ => &[],
    }
}

fn address_text(address: Option<&Address>) -> String {
    match address.and_then(|address| address.address.as_ref()) {
        Some(address::Address::SocketAddress(socket)) => socket.address.clone(),
        Some(address::Address::Pipe(pipe)) => pipe.path.clone(),
        _ => String::new(),
    }
}

fn address(listener: &Listener) -> String {
    address_text(listener.address.as_ref())
}

/// The listener's address and its further ones.
fn addresses(listener: &Listener) -> Vec<String> {
    let further = listener.additional_addresses.iter().map(|one| address_text(one.address.as_ref()));
    std::iter::once(address(listener)).chain(further).collect()
}

fn port(listener: &Listener) -> u32 {
    listener.address.as_ref().map(port_of).unwrap_or_default()
}

fn match_text(matching: Option<&FilterChainMatch>) -> String {
    let none = FilterChainMatch::default();
    let matching = matching.unwrap_or(&none);
    let mut parts = Vec::new();
    if !matching.server_names.is_empty() {
        parts.push(format!("SNI: {}", matching.server_names.join(",")));
    }
    if !matching.transport_protocol.is_empty() {
        parts.push(format!("Trans: {}", matching.transport_protocol));
    }
    let protocols = &matching.application_protocols;
    if !protocols.is_empty() {
        let known = KNOWN_PROTOCOLS.iter().find(|(_, known)| known == protocols);
        parts.push(
            known.map_or_else(|| format!("App: {}", protocols.join(",")), |(name, _)| (*name).to_owned()),
        );
    }
    let port = matching.destination_port.as_ref().map(|port| format!(":{}", port.value)).unwrap_or_default();
    if !matching.prefix_ranges.is_empty() {
        let ranges = matching.prefix_ranges.iter().map(|range| {
            let length = range.prefix_len.as_ref().map(|length| length.value).unwrap_or_default();
            format!("{}/{length}", range.address_prefix)
        });
        parts.push(format!("Addr: {}{port}", ranges.collect::<Vec<_>>().join(",")));
    } else if !port.is_empty() {
        parts.push(format!("Addr: *{port}"));
    }
    if parts.is_empty() { "ALL".to_owned() } else { parts.join("; ") }
}

/// Where the filters of a chain send connections.
fn destination(filters: &[NetworkFilter]) -> String {
    for filter in filters {
        if filter.name == HTTP {
            return http_destination(config(filter));
        }
        if filter.name == TCP && !is_black_hole(filter) {
            return match TcpProxy::decode(config(filter)) {
                Ok(proxy) => cluster_text(match &proxy.cluster_specifier {
                    Some(tcp_proxy::ClusterSpecifier::Cluster(cluster)) => cluster,
                    _ => "",
                }),
                Err(error) => error.to_string(),
            };
        }
    }
    "Non-HTTP/Non-TCP".to_owned()
}

fn http_destination(config: &[u8]) -> String {
    match HttpConnectionManager::decode(config).map(|manager| manager.route_specifier) {
        Ok(Some(RouteSpecifier::RouteConfig(routes))) => inline_routes(&routes),
        Ok(Some(RouteSpecifier::Rds(rds))) if !rds.route_config_name.is_empty() => {
            format!("Route: {}", rds.route_config_name)
        }
        Ok(_) => "HTTP".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn cluster_text(cluster: &str) -> String {
    if cluster.contains("Cluster") { cluster.to_owned() } else { format!("Cluster: {cluster}") }
}

fn inline_routes(routes: &RouteConfiguration) -> String {
    if let Some(cluster) = match_all_cluster(routes) {
        return cluster_text(cluster);
    }
    let hosts = routes.virtual_hosts.iter().map(|host| {
        let domains = if host.domains == ["*"] { String::new() } else { host.domains.join("/") };
        let routes: Vec<String> =
            host.routes.iter().map(|route| route_match(route.r#match.as_ref())).collect();
        let routes = routes.join(", ");
        if domains.is_empty() { routes } else { format!("{domains} {routes}") }
    });
    format!("Inline Route: {}", hosts.collect::<Vec<_>>().join("; "))
}

/// The cluster that gets every request.
fn match_all_cluster(routes: &RouteConfiguration) -> Option<&str> {
    let [VirtualHost { domains, routes, .. }] = routes.virtual_hosts.as_slice() else { return None };
    let [route] = routes.as_slice() else { return None };
    let takes_all =
        matches!(&route.r#match.as_ref()?.path_specifier, Some(PathSpecifier::Prefix(path)) if path == "/");
    match (&route.action, takes_all && *domains == ["*"]) {
        (Some(Action::Route(action)), true) => match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(cluster)) => Some(cluster),
            _ => None,
        },
        _ => None,
    }
}

/// The path that a route takes.
pub(super) fn route_match(matching: Option<&RouteMatch>) -> String {
    match matching.and_then(|matching| matching.path_specifier.as_ref()) {
        Some(PathSpecifier::Prefix(prefix)) if !prefix.is_empty() => format!("{prefix}*"),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) if !prefix.is_empty() => {
            format!("PathPrefix:{prefix}")
        }
        Some(PathSpecifier::Path(path)) => path.clone(),
        Some(PathSpecifier::SafeRegex(regex)) => format!("regex {}", regex.regex),
        _ => String::new(),
    }
}
