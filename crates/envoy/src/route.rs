//! HTTP routes of a VirtualService.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_mesh::service::ServicesByHost;
use canopus_mesh::world::{MeshSettings, Origin, qualified_host};
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::Metadata;
use canopus_proto::envoy::config::route::v3::retry_policy::{RetryHostPredicate, retry_host_predicate};
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use canopus_proto::envoy::config::route::v3::{
    Decorator, HeaderMatcher, RetryPolicy, Route, RouteAction, RouteMatch, WeightedCluster, header_matcher,
    route::Action, route_match::PathSpecifier,
};
use canopus_proto::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use canopus_proto::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern};
use canopus_proto::google::protobuf::{Duration, Struct};
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{
    Destination, HttpMatchRequest, HttpRoute, HttpRouteDestination, StringMatch, VirtualService,
};

use crate::names;

const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";
const RETRIES: u32 = 2;
const HOST_SELECTION_ATTEMPTS: i64 = 5;

/// The routes a gateway's port serves for a VirtualService, up to the first that matches everything.
pub(crate) fn http_routes(
    ctx: &Ctx<'_>,
    key: &Origin,
    spec: &VirtualService,
    gateway: &str,
    port: u32,
    settings: &MeshSettings,
) -> Vec<Route> {
    let source = Source { ctx, key, settings, port };
    let mut routes = Vec::new();
    for http in &spec.http {
        if http.r#match.is_empty() {
            routes.push(source.route(http, None));
            return routes;
        }
        for condition in http.r#match.iter().filter(|m| applies(m, gateway, port)) {
            let route = source.route(http, Some(condition));
            let catches_all = route.r#match.as_ref().is_some_and(is_catch_all);
            routes.push(route);
            if catches_all {
                return routes;
            }
        }
    }
    routes
}

/// Where a route comes from and what its names mean there.
struct Source<'a> {
    ctx: &'a Ctx<'a>,
    key: &'a Origin,
    settings: &'a MeshSettings,
    port: u32,
}

impl Source<'_> {
    fn route(&self, http: &HttpRoute, condition: Option<&HttpMatchRequest>) -> Route {
        let r#match = condition.map_or_else(|| path_prefix("/"), route_match);
        let name = match condition.map(|m| m.name.as_str()).filter(|name| !name.is_empty()) {
            Some(condition) if !http.name.is_empty() => format!("{}.{condition}", http.name),
            Some(condition) => condition.to_owned(),
            None => http.name.clone(),
        };
        Route {
            name,
            decorator: Some(Decorator { operation: self.operation(http, &r#match), ..Default::default() }),
            metadata: Some(self.metadata()),
            action: Some(Action::Route(self.action(http))),
            r#match: Some(r#match),
            ..Default::default()
        }
    }

    #[allow(deprecated, reason = "Istio sends max_grpc_timeout, and older proxies know nothing newer")]
    fn action(&self, http: &HttpRoute) -> RouteAction {
        RouteAction {
            cluster_specifier: Some(self.clusters(http)),
            timeout: Some(http.timeout.unwrap_or_else(|| Duration::from_secs(0))),
            // Envoy would otherwise let a gRPC client's own deadline override the route's.
            max_grpc_timeout: Some(http.timeout.unwrap_or_else(|| Duration::from_secs(0))),
            retry_policy: Some(default_retries()),
            ..Default::default()
        }
    }

    fn clusters(&self, http: &HttpRoute) -> ClusterSpecifier {
        let weighted: Vec<&HttpRouteDestination> = if http.route.len() > 1 {
            http.route.iter().filter(|d| d.weight > 0).collect()
        } else {
            http.route.iter().collect()
        };
        match weighted[..] {
            [only] => ClusterSpecifier::Cluster(self.cluster(only.destination.as_ref())),
            _ => ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: weighted
                    .iter()
                    .map(|d| ClusterWeight {
                        name: self.cluster(d.destination.as_ref()),
                        weight: Some(d.weight.unsigned_abs().into()),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }),
        }
    }

    fn cluster(&self, destination: Option<&Destination>) -> String {
        let Some(destination) = destination else { return names::BLACK_HOLE.into() };
        let host = self.host(destination);
        let port = match &destination.port {
            Some(port) => port.number,
            None => self.only_port(&host).unwrap_or(self.port),
        };
        names::outbound_cluster(&host, port, &destination.subset)
    }

    fn host(&self, destination: &Destination) -> String {
        qualified_host(&destination.host, self.key.namespace(), &self.settings.domain)
    }

    /// The port of a service that has just one.
    fn only_port(&self, host: &str) -> Option<u32> {
        let service = self.ctx.get::<ServicesByHost>(&Arc::from(host));
        match service.values().next()?.ports[..] {
            [ref only] => Some(only.number),
            _ => None,
        }
    }

    /// The span name of a request on this route.
    fn operation(&self, http: &HttpRoute, r#match: &RouteMatch) -> String {
        let path = match &r#match.path_specifier {
            Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => {
                format!("{prefix}*")
            }
            Some(PathSpecifier::Path(path)) => path.clone(),
            Some(PathSpecifier::SafeRegex(regex)) => regex.regex.clone(),
            _ => "/*".to_owned(),
        };
        let Some(destination) = http.route.first().and_then(|d| d.destination.as_ref()) else { return path };
        let host = self.host(destination);
        let port = destination
            .port
            .as_ref()
            .map(|p| p.number)
            .or_else(|| self.only_port(&host))
            .unwrap_or(self.port);
        format!("{host}:{port}{path}")
    }

    /// Names the object a route comes from.
    fn metadata(&self) -> Metadata {
        let config = format!(
            "/apis/networking.istio.io/v1/namespaces/{}/virtual-service/{}",
            self.key.namespace(),
            self.key.name()
        );
        let istio = Struct::from(BTreeMap::from([("config".to_owned(), config.into())]));
        Metadata { filter_metadata: BTreeMap::from([("istio".to_owned(), istio)]), ..Default::default() }
    }
}

/// Whether a match concerns this gateway and port at all.
fn applies(condition: &HttpMatchRequest, gateway: &str, port: u32) -> bool {
    (condition.gateways.is_empty() || condition.gateways.iter().any(|g| g == gateway))
        && (condition.port == 0 || condition.port == port)
}

fn route_match(condition: &HttpMatchRequest) -> RouteMatch {
    let path = match condition.uri.as_ref().and_then(|uri| uri.match_type.as_ref()) {
        Some(MatchType::Exact(path)) => PathSpecifier::Path(path.clone()),
        Some(MatchType::Prefix(prefix)) => PathSpecifier::Prefix(prefix.clone()),
        Some(MatchType::Regex(regex)) => {
            PathSpecifier::SafeRegex(RegexMatcher { regex: regex.clone(), ..Default::default() })
        }
        None => PathSpecifier::Prefix("/".into()),
    };
    let pseudo = [
        (":method", &condition.method),
        (":authority", &condition.authority),
        (":scheme", &condition.scheme),
    ];
    let pseudo = pseudo.into_iter().filter_map(|(name, value)| Some(header(name, value.as_ref()?, false)));
    RouteMatch {
        path_specifier: Some(path),
        case_sensitive: condition.ignore_uri_case.then(|| false.into()),
        headers: condition
            .headers
            .iter()
            .map(|(name, value)| header(name, value, false))
            .chain(condition.without_headers.iter().map(|(name, value)| header(name, value, true)))
            .chain(pseudo)
            .collect(),
        ..Default::default()
    }
}

fn header(name: &str, value: &StringMatch, invert: bool) -> HeaderMatcher {
    let pattern = match &value.match_type {
        Some(MatchType::Exact(text)) => Some(MatchPattern::Exact(text.clone())),
        Some(MatchType::Prefix(text)) => Some(MatchPattern::Prefix(text.clone())),
        Some(MatchType::Regex(text)) => {
            Some(MatchPattern::SafeRegex(RegexMatcher { regex: text.clone(), ..Default::default() }))
        }
        None => None,
    };
    HeaderMatcher {
        name: name.into(),
        invert_match: invert,
        header_match_specifier: Some(match pattern {
            Some(pattern) => header_matcher::HeaderMatchSpecifier::StringMatch(StringMatcher {
                match_pattern: Some(pattern),
                ..Default::default()
            }),
            None => header_matcher::HeaderMatchSpecifier::PresentMatch(true),
        }),
        ..Default::default()
    }
}

fn path_prefix(prefix: &str) -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix(prefix.into())), ..Default::default() }
}

/// A match without any condition: later routes can never be reached.
fn is_catch_all(r#match: &RouteMatch) -> bool {
    matches!(&r#match.path_specifier, Some(PathSpecifier::Prefix(prefix)) if prefix == "/")
        && r#match.headers.is_empty()
        && r#match.query_parameters.is_empty()
}

/// Two more tries, each on a host not tried before.
fn default_retries() -> RetryPolicy {
    RetryPolicy {
        retry_on: RETRY_ON.into(),
        num_retries: Some(RETRIES.into()),
        host_selection_retry_max_attempts: HOST_SELECTION_ATTEMPTS,
        retry_host_predicate: vec![RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".into(),
            config_type: Some(retry_host_predicate::ConfigType::TypedConfig(Any::pack(
                &PreviousHostsPredicate {},
            ))),
        }],
        ..Default::default()
    }
}
