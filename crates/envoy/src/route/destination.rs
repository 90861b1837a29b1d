//! Where requests go: clusters with weights, mirrors, and what is rewritten on the way.

use std::sync::Arc;

use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::service::Service;
use canopus_mesh::virtual_service::VirtualService;
use canopus_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use canopus_proto::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, HashPolicy, MaxStreamDuration, RequestMirrorPolicy,
};
use canopus_proto::envoy::config::route::v3::weighted_cluster::{ClusterWeight, cluster_weight};
use canopus_proto::envoy::config::route::v3::{Route, RouteAction, WeightedCluster};
use canopus_proto::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use canopus_proto::envoy::r#type::v3::FractionalPercent;
use canopus_proto::fields::{route, route_action};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::ConsistentHashLb;
use canopus_proto::istio::networking::v1alpha3::{
    Destination, HttpRewrite, HttpRoute, HttpRouteDestination, Percent,
};
use canopus_proto::wire::ProtoWriter;
use canopus_runtime::flags::DISABLE_SHADOW_HOST_SUFFIX;

use super::headers::Operations;
use super::matching::{Path, regex_matcher};
use super::upstream_headers::forwards_host;
use super::{Known, Site, USUAL_SIZE, fault, hash, retry};
use crate::names;

/// The cluster of a destination that does not say where; no proxy has it.
const UNKNOWN: &str = "UnknownService";

/// What a route that forwards does: its action, encoded but for what depends on the path that is matched.
pub(super) struct Forward {
    /// The fields before [`Self::rewrite`].
    before: ProtoWriter<RouteAction>,
    /// Gives requests another path by a regular expression.
    rewrite: Option<RegexMatchAndSubstitute>,
    /// The fields after it.
    after: ProtoWriter<RouteAction>,
    /// The cluster, if there is only one.
    pub(super) cluster: Option<String>,
    /// The services it leads to, as far as known.
    pub(super) destinations: Vec<Option<Known>>,
}

impl Forward {
    /// What an [`HttpRoute`] says. What is done to headers for its only destination is added to `operations`.
    pub(super) fn new(
        site: &Site<'_>,
        source: &VirtualService,
        http: &HttpRoute,
        operations: &mut Operations,
    ) -> Self {
        let mut action = ProtoWriter::with_capacity(USUAL_SIZE);
        let Choice { cluster, authority, hash, hashed, destinations } = match &http.route[..] {
            [only] => single(site, only, &mut action, operations),
            many => weighted(site, many, &mut action),
        };
        let rewrite = http.rewrite.as_ref();
        if let Some(rewrite) = rewrite.filter(|rewrite| rewrites_prefix(rewrite, source)) {
            action.string(route_action::PREFIX_REWRITE, &rewrite.uri);
        }
        let rewritten = rewrite.map(|rewrite| &rewrite.authority).filter(|host| !host.is_empty());
        if let Some(host) = rewritten.or(operations.authority.as_ref()).or(authority.as_ref()) {
            action.string(route_action::HOST_REWRITE_LITERAL, host);
        }
        let (timeout, proxyless) = (http.timeout.unwrap_or_default(), site.audience.proxyless);
        action.message(route_action::TIMEOUT, &timeout);
        retry::write(site.settings, http.retries.as_ref(), hashed, &mut action);
        hash.iter().for_each(|policy| action.message(route_action::HASH_POLICY, policy));
        if source.is_gateway_api() {
            let code = ClusterNotFoundResponseCode::InternalServerError;
            action.enumeration(route_action::CLUSTER_NOT_FOUND_RESPONSE_CODE, code);
        }
        if !proxyless {
            action.message(route_action::MAX_GRPC_TIMEOUT, &timeout);
        }
        write_mirrors(site, http, &mut action);

        let mut after = ProtoWriter::default();
        if proxyless {
            after.message(route_action::MAX_STREAM_DURATION, &max_stream_duration(timeout));
        }
        if rewrite.is_some() && forwards_host(&site.audience.config) {
            after.bool(route_action::APPEND_X_FORWARDED_HOST, true);
        }
        let rewrite = rewrite.and_then(|rewrite| regex_rewrite(rewrite, source, None));
        Self { before: action, rewrite, after, cluster, destinations }
    }

    /// Whether none of its destinations has any weight.
    pub(super) fn leads_nowhere(&self) -> bool {
        self.destinations.is_empty()
    }

    /// Makes the new path fit what was matched of the old one.
    pub(super) fn rewrite_path(&mut self, rewrite: &HttpRewrite, source: &VirtualService, matched: Path<'_>) {
        self.rewrite = regex_rewrite(rewrite, source, Some(matched));
    }

    /// Writes the action of a route.
    pub(super) fn write(&self, route: &mut ProtoWriter<Route>) {
        route.nested_of_about(route::ROUTE, self.before.len() + self.after.len(), |action| {
            action.append(&self.before);
            self.rewrite.iter().for_each(|rewrite| action.message(route_action::REGEX_REWRITE, rewrite));
            action.append(&self.after);
        });
    }
}

/// Lets requests take as long as they do; Envoy would otherwise assume 15 seconds.
#[expect(
    deprecated,
    reason = "the successor of max_grpc_timeout has regressions, and older proxies do not know it"
)]
pub(crate) fn disable_timeout(action: &mut RouteAction) {
    action.timeout = Some(Duration::default());
    action.max_grpc_timeout = Some(Duration::default());
}

/// What gRPC libraries know of timeouts.
fn max_stream_duration(timeout: Duration) -> MaxStreamDuration {
    MaxStreamDuration { max_stream_duration: Some(timeout), ..Default::default() }
}

/// Whether a new path takes the place of what was matched, and no more is to be said.
fn rewrites_prefix(rewrite: &HttpRewrite, source: &VirtualService) -> bool {
    rewrite.uri_regex_rewrite.is_none() && !depends_on_match(rewrite, source)
}

/// Gives requests another path by a regular expression, which may depend on what was matched of theirs.
fn regex_rewrite(
    rewrite: &HttpRewrite,
    source: &VirtualService,
    matched: Option<Path<'_>>,
) -> Option<RegexMatchAndSubstitute> {
    let substitute = |pattern: &str, substitution: &str| RegexMatchAndSubstitute {
        pattern: Some(regex_matcher(pattern)),
        substitution: substitution.to_owned(),
    };
    if let Some(regex) = &rewrite.uri_regex_rewrite {
        return Some(substitute(&regex.r#match, &regex.rewrite));
    }
    depends_on_match(rewrite, source).then(|| {
        // Replacing `/a` of `/a/b` by `/` would leave `//b`.
        let prefix = match matched {
            Some(Path::Elements(prefix)) => prefix,
            _ => "",
        };
        substitute(&format!("^{}(/?)(.*)", quoted(prefix)), r"/\2")
    })
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

/// Where a route leads.
struct Choice {
    /// The cluster, if there is only one.
    cluster: Option<String>,
    /// The host to ask for instead, if the only destination says.
    authority: Option<String>,
    /// What of requests is hashed.
    hash: Vec<HashPolicy>,
    /// Whether a hash chooses the endpoint of the only destination.
    hashed: bool,
    /// The services, as far as known.
    destinations: Vec<Option<Known>>,
}

/// One destination: its header operations are those of the route.
fn single(
    site: &Site<'_>,
    to: &HttpRouteDestination,
    action: &mut ProtoWriter<RouteAction>,
    operations: &mut Operations,
) -> Choice {
    let Target { cluster, known, hash } = Target::resolve(site, to.destination.as_ref());
    action.string(route_action::CLUSTER, &cluster);
    let mut own = Operations::new(to.headers.as_ref());
    let authority = own.authority.take();
    operations.extend(own);
    let policy = hash.as_ref().and_then(hash::policy);
    Choice {
        cluster: Some(cluster),
        authority,
        hash: policy.into_iter().collect(),
        hashed: hash.is_some(),
        destinations: vec![known],
    }
}

/// Several destinations; those of no weight get nothing.
fn weighted(site: &Site<'_>, to: &[HttpRouteDestination], action: &mut ProtoWriter<RouteAction>) -> Choice {
    let mut choice =
        Choice { cluster: None, authority: None, hash: Vec::new(), hashed: false, destinations: Vec::new() };
    let mut clusters = Vec::new();
    for to in to.iter().filter(|to| to.weight != 0) {
        let target = Target::resolve(site, to.destination.as_ref());
        let operations = Operations::new(to.headers.as_ref());
        clusters.push(ClusterWeight {
            name: target.cluster,
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
        choice.hash.extend(target.hash.as_ref().and_then(hash::policy));
        choice.destinations.push(target.known);
    }
    action.message(route_action::WEIGHTED_CLUSTERS, &WeightedCluster { clusters, ..Default::default() });
    choice
}

/// What a destination means. Nothing of it has to exist: requests to it fail.
struct Target {
    cluster: String,
    known: Option<Known>,
    /// What of requests to it is hashed.
    hash: Option<ConsistentHashLb>,
}

impl Target {
    fn resolve(site: &Site<'_>, to: Option<&Destination>) -> Self {
        let Some(to) = to.filter(|to| !to.host.is_empty()) else {
            return Self { cluster: UNKNOWN.to_owned(), known: None, hash: None };
        };
        let host = Arc::from(to.host.as_str());
        let (cluster, known) = cluster(site, to, &host);
        let rule =
            (site.scoped)(&host).and_then(|seen| outbound_rule(site.ctx, &site.audience.caller, &seen.key()));
        let hash = rule.as_ref().and_then(|rule| hash::for_destination(&rule.spec, to)).cloned();
        Self { cluster, known, hash }
    }
}

/// The cluster of a destination, and its service.
fn cluster(site: &Site<'_>, to: &Destination, host: &Arc<str>) -> (String, Option<Known>) {
    let known = (site.service)(host);
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

fn write_mirrors(site: &Site<'_>, http: &HttpRoute, action: &mut ProtoWriter<RouteAction>) {
    let first = http.mirror.as_ref().zip(mirror_fraction(http));
    let others = http.mirrors.iter().filter_map(|mirror| {
        let fraction = mirror.percentage.as_ref().map_or_else(|| Some(everything()), positive)?;
        Some((mirror.destination.as_ref()?, fraction))
    });
    let disable_suffix = site.settings.flags.get(DISABLE_SHADOW_HOST_SUFFIX);
    for (to, fraction) in first.into_iter().chain(others) {
        let cluster = match to.host.as_str() {
            "" => UNKNOWN.to_owned(),
            host => cluster(site, to, &host.into()).0,
        };
        let policy = RequestMirrorPolicy {
            cluster,
            runtime_fraction: Some(fraction),
            trace_sampled: Some(false.into()),
            disable_shadow_host_suffix_append: disable_suffix,
            ..Default::default()
        };
        action.message(route_action::REQUEST_MIRROR_POLICIES, &policy);
    }
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
