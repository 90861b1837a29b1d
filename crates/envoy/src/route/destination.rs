//! Where requests go: clusters with weights, mirrors, and what is rewritten on the way.

use std::sync::Arc;

use canopus_mesh::service::Service;
use canopus_mesh::virtual_service::VirtualService;
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier, HostRewriteSpecifier, MaxStreamDuration,
    RequestMirrorPolicy,
};
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::weighted_cluster::{ClusterWeight, cluster_weight};
use canopus_proto::envoy::config::route::v3::{Route, RouteAction, RouteMatch, WeightedCluster};
use canopus_proto::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use canopus_proto::envoy::r#type::v3::FractionalPercent;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::ConsistentHashLb;
use canopus_proto::istio::networking::v1alpha3::{
    Destination, HttpRewrite, HttpRoute, HttpRouteDestination, Percent,
};
use canopus_runtime::flags::DISABLE_SHADOW_HOST_SUFFIX;

use super::headers::Operations;
use super::matching::regex_matcher;
use super::{Known, Site, fault, hash, retry};
use crate::names;
use crate::route_config::headers::forwards_host;

/// The cluster of a destination that does not say where; no proxy has it.
const UNKNOWN: &str = "UnknownService";

/// Gives a route the action of an [`HttpRoute`] that forwards; returns the services it leads to, as far as known.
pub(super) fn apply(
    site: &Site<'_>,
    source: &VirtualService,
    http: &HttpRoute,
    authority: Option<String>,
    route: &mut Route,
) -> Vec<Option<Known>> {
    let mut action = RouteAction { request_mirror_policies: mirrors(site, http), ..Default::default() };
    set_timeout(&mut action, http.timeout, site.view.is_proxyless());
    if source.is_gateway_api() {
        action.set_cluster_not_found_response_code(ClusterNotFoundResponseCode::InternalServerError);
    }
    let mut authority = authority;
    if let Some(rewrite) = &http.rewrite {
        action.append_x_forwarded_host = forwards_host(site.ctx, site.view);
        rewrite_path(&mut action, rewrite, source, None);
        authority = Some(rewrite.authority.clone()).filter(|host| !host.is_empty()).or(authority);
    }
    action.host_rewrite_specifier = authority.map(HostRewriteSpecifier::HostRewriteLiteral);

    let (destinations, hashed) = match &http.route[..] {
        [only] => single(site, only, route, &mut action),
        many => (weighted(site, many, &mut action), false),
    };
    let settings = settings(site.ctx);
    let retries = http.retries.as_ref().or(settings.mesh.default_http_retry_policy.as_ref());
    action.retry_policy = retry::policy(retries, hashed);
    route.action = Some(Action::Route(action));
    destinations
}

/// Zero means none; Envoy would otherwise assume 15 seconds.
#[expect(
    deprecated,
    reason = "the successor of max_grpc_timeout has regressions, and older proxies do not know it"
)]
pub(crate) fn set_timeout(action: &mut RouteAction, timeout: Option<Duration>, proxyless: bool) {
    let timeout = Some(timeout.unwrap_or_default());
    action.timeout = timeout;
    if proxyless {
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: timeout, ..Default::default() });
    } else {
        action.max_grpc_timeout = timeout;
    }
}

/// Gives requests another path, which may depend on what was matched of theirs.
pub(super) fn rewrite_path(
    action: &mut RouteAction,
    rewrite: &HttpRewrite,
    source: &VirtualService,
    matched: Option<&RouteMatch>,
) {
    let substitute = |pattern: &str, substitution: &str| {
        Some(RegexMatchAndSubstitute {
            pattern: Some(regex_matcher(pattern)),
            substitution: substitution.to_owned(),
        })
    };
    if let Some(regex) = &rewrite.uri_regex_rewrite {
        action.regex_rewrite = substitute(&regex.r#match, &regex.rewrite);
    } else if depends_on_match(rewrite, source) {
        // Replacing `/a` of `/a/b` by `/` would leave `//b`.
        let prefix = match matched.and_then(|matched| matched.path_specifier.as_ref()) {
            Some(PathSpecifier::PathSeparatedPrefix(prefix)) => prefix,
            _ => "",
        };
        action.regex_rewrite = substitute(&format!("^{}(/?)(.*)", quoted(prefix)), r"/\2");
    } else {
        action.prefix_rewrite.clone_from(&rewrite.uri);
    }
}

/// Whether the new path depends on what was matched of the old one.
pub(super) fn depends_on_match(rewrite: &HttpRewrite, source: &VirtualService) -> bool {
    rewrite.uri_regex_rewrite.is_none() && rewrite.uri == "/" && source.is_gateway_api()
}

/// A text as a regular expression that matches only itself.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

/// One destination: its header operations are those of the route. Says whether a hash chooses the endpoint.
fn single(
    site: &Site<'_>,
    to: &HttpRouteDestination,
    route: &mut Route,
    action: &mut RouteAction,
) -> (Vec<Option<Known>>, bool) {
    let (cluster, known) = cluster(site, to.destination.as_ref());
    action.cluster_specifier = Some(ClusterSpecifier::Cluster(cluster));
    let operations = Operations::of(to.headers.as_ref());
    if action.host_rewrite_specifier.is_none() {
        action.host_rewrite_specifier =
            operations.authority.clone().map(HostRewriteSpecifier::HostRewriteLiteral);
    }
    operations.extend_route(route);
    let hash = consistent_hash(site, to.destination.as_ref());
    action.hash_policy.extend(hash.as_ref().and_then(hash::policy));
    (vec![known], hash.is_some())
}

/// Several destinations; those of no weight get nothing.
fn weighted(site: &Site<'_>, to: &[HttpRouteDestination], action: &mut RouteAction) -> Vec<Option<Known>> {
    let mut destinations = Vec::new();
    let mut clusters = Vec::new();
    for to in to.iter().filter(|to| to.weight != 0) {
        let (name, known) = cluster(site, to.destination.as_ref());
        let operations = Operations::of(to.headers.as_ref());
        clusters.push(ClusterWeight {
            name,
            weight: Some(to.weight.cast_unsigned().into()),
            request_headers_to_add: operations.request_add,
            request_headers_to_remove: operations.request_remove,
            response_headers_to_add: operations.response_add,
            response_headers_to_remove: operations.response_remove,
            host_rewrite_specifier: operations
                .authority
                .map(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral),
            ..Default::default()
        });
        let hash = consistent_hash(site, to.destination.as_ref());
        action.hash_policy.extend(hash.as_ref().and_then(hash::policy));
        destinations.push(known);
    }
    action.cluster_specifier =
        Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() }));
    destinations
}

fn consistent_hash(site: &Site<'_>, to: Option<&Destination>) -> Option<ConsistentHashLb> {
    let to = to?;
    let rule = hash::rule(site.ctx, site.view, &to.host)?;
    hash::of_destination(&rule.spec, to).cloned()
}

/// The cluster a destination means, and its service. Neither has to exist: requests to it fail.
fn cluster(site: &Site<'_>, to: Option<&Destination>) -> (String, Option<Known>) {
    let Some(to) = to.filter(|to| !to.host.is_empty()) else { return (UNKNOWN.to_owned(), None) };
    let known = (site.service)(&to.host);
    let name = match site.fronted {
        Some(fronted) => fronted_cluster_name(to, known.as_ref(), site.port, fronted),
        None => cluster_name(to, known.as_ref(), site.port),
    };
    (name, known)
}

/// The name of a destination's cluster at a waypoint: services it does not stand in front of are called like any other.
pub(crate) fn fronted_cluster_name(
    to: &Destination,
    known: Option<&Known>,
    listener_port: u32,
    fronted: &[Arc<Service>],
) -> String {
    if to.host.is_empty() {
        return UNKNOWN.to_owned();
    }
    let number = to.port.as_ref().map(|port| port.number);
    let number = number.or_else(|| known?.default_port).unwrap_or(listener_port);
    if known.is_some_and(|known| fronted.iter().all(|service| service.host != known.service.host)) {
        return names::outbound_cluster(&to.host, number, &to.subset);
    }
    let port = known.and_then(|known| known.service.port(number));
    let protocol = match port {
        Some(port) if !port.protocol.is_http_or_sniffed() => "tcp",
        _ => "http",
    };
    let subset = match to.subset.as_str() {
        "" => protocol.to_owned(),
        subset => format!("{protocol}/{subset}"),
    };
    names::vip_cluster(&to.host, number, &subset)
}

/// The name of a destination's cluster: the port is the one named, else the service's only one, else the listener's.
pub(crate) fn cluster_name(to: &Destination, known: Option<&Known>, listener_port: u32) -> String {
    let alias = known.and_then(|known| known.service.kube.as_ref()?.external_name.as_deref());
    let port = to.port.as_ref().map(|port| port.number);
    let port = port.or_else(|| known?.default_port).unwrap_or(listener_port);
    names::outbound_cluster(alias.unwrap_or(&to.host), port, &to.subset)
}

fn mirrors(site: &Site<'_>, http: &HttpRoute) -> Vec<RequestMirrorPolicy> {
    let first = http.mirror.as_ref().zip(mirror_fraction(http));
    let others = http.mirrors.iter().filter_map(|mirror| {
        let fraction = mirror.percentage.as_ref().map_or_else(|| Some(everything()), positive)?;
        Some((mirror.destination.as_ref()?, fraction))
    });
    let disable_suffix = settings(site.ctx).flags.get(DISABLE_SHADOW_HOST_SUFFIX);
    first
        .into_iter()
        .chain(others)
        .map(|(to, fraction)| RequestMirrorPolicy {
            cluster: cluster(site, Some(to)).0,
            runtime_fraction: Some(fraction),
            trace_sampled: Some(false.into()),
            disable_shadow_host_suffix_append: disable_suffix,
            ..Default::default()
        })
        .collect()
}

/// The share of requests that is mirrored; `None` if zero was asked for.
#[expect(deprecated, reason = "whole percents are the old way to say it")]
fn mirror_fraction(http: &HttpRoute) -> Option<RuntimeFractionalPercent> {
    match (&http.mirror_percentage, &http.mirror_percent) {
        (Some(percentage), _) => positive(percentage),
        (None, Some(percent)) if percent.value == 0 => None,
        (None, Some(percent)) => Some(fraction(fault::whole_percent(percent.value))),
        (None, None) => Some(everything()),
    }
}

fn positive(percent: &Percent) -> Option<RuntimeFractionalPercent> {
    (percent.value > 0.0).then(|| fraction(fault::percent(percent)))
}

fn everything() -> RuntimeFractionalPercent {
    fraction(fault::whole_percent(100))
}

fn fraction(share: FractionalPercent) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent { default_value: Some(share), ..Default::default() }
}
