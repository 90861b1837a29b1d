//! Converting the rules of HTTPRoutes.

use canopus_api::Kind;
use canopus_api::gateway_api::{
    HttpBackendRef, HttpFilterType, HttpRoute, HttpRouteFilter, HttpRouteMatch, HttpRouteRetry,
    HttpRouteRule, HttpRouteTimeouts,
};
use canopus_base::duration::Duration as GoDuration;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::{
    Headers, HttpDirectResponse, HttpMatchRequest, HttpRetry, HttpRoute as Route, HttpRouteDestination,
};

use super::backend::{self, Referrer};
use super::cluster_objects::ClusterObjects;
use super::fault::{Fault, reason};
use super::filter;
use super::matching;
use super::route::Converted;

/// The retry conditions in addition to the status codes of a rule.
const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled";
/// The default number of retries.
const RETRIES: i32 = 2;

/// Converts all rules. Each route has at most one match, so that routes can be sorted.
pub(super) fn convert(cluster: &ClusterObjects<'_>, route: &HttpRoute, for_mesh: bool) -> Converted<Route> {
    let referrer =
        Referrer { kind: Kind::HttpRoute, namespace: &route.meta.namespace, needs_grant: !for_mesh };
    let mut converted = Converted::default();
    for (position, rule) in route.spec.rules.iter().enumerate() {
        let unnamed = || format!("{}.{}.{position}", route.meta.namespace, route.meta.name);
        let name = rule.name.as_ref().map_or_else(unnamed, ToString::to_string);
        match convert_rule(cluster, referrer, rule) {
            Ok((made, fault)) => {
                converted.fault = fault.or(converted.fault);
                let matches = match split(rule) {
                    Ok(matches) => matches,
                    Err(fault) => return Converted::failed(fault),
                };
                converted.routes.extend(matches.into_iter().map(|r#match| Route {
                    name: name.clone(),
                    r#match: r#match.into_iter().collect(),
                    ..made.clone()
                }));
            }
            Err(fault) => return Converted::failed(fault),
        }
    }
    converted
}

/// The matches of a rule. A rule without matches matches every request.
fn split(rule: &HttpRouteRule) -> Result<Vec<Option<HttpMatchRequest>>, Fault> {
    if rule.matches.is_empty() {
        return Ok(vec![None]);
    }
    rule.matches.iter().map(|written: &HttpRouteMatch| matching::http_match(written).map(Some)).collect()
}

/// Converts a rule without its matches. The returned fault concerns some of its backends only.
fn convert_rule(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    rule: &HttpRouteRule,
) -> Result<(Route, Option<Fault>), Fault> {
    let mut route = Route::default();
    let mut mirror_fault = None;
    for filter in &rule.filters {
        if let Err(fault) = apply(cluster, referrer, filter, &mut route)? {
            mirror_fault = Some(fault);
        }
    }
    route.retries = rule.retry.as_ref().map(retries);
    if let Some(timeouts) = &rule.timeouts {
        limit(&mut route, timeouts);
    }
    let weight: i64 = rule.backend_refs.iter().map(|backend| i64::from(backend.weight)).sum();
    if weight == 0 && route.redirect.is_none() {
        route.direct_response = Some(HttpDirectResponse { status: 500, body: None });
        return Ok((route, mirror_fault));
    }
    let (destinations, fault) = destinations(cluster, referrer, &rule.backend_refs)?;
    route.route = destinations;
    Ok((route, Fault::join(fault, mirror_fault)))
}

/// Applies a filter. The outer error makes the whole route invalid, the inner one only its mirror.
fn apply(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    filter: &HttpRouteFilter,
    route: &mut Route,
) -> Result<Result<(), Fault>, Fault> {
    match &filter.r#type {
        HttpFilterType::RequestHeaderModifier => {
            filter::request_headers(&mut route.headers, filter.request_header_modifier.as_ref())?;
        }
        HttpFilterType::ResponseHeaderModifier => {
            filter::response_headers(&mut route.headers, filter.response_header_modifier.as_ref())?;
        }
        HttpFilterType::RequestRedirect => {
            route.redirect = filter.request_redirect.as_ref().map(filter::redirect);
        }
        HttpFilterType::RequestMirror => {
            if let Some(written) = &filter.request_mirror {
                match filter::mirror(cluster, referrer, written) {
                    Ok(mirror) => route.mirrors.push(mirror),
                    Err(fault) => return Ok(Err(fault)),
                }
            }
        }
        HttpFilterType::UrlRewrite => {
            route.rewrite = filter.url_rewrite.as_ref().and_then(filter::rewrite);
        }
        HttpFilterType::Cors => route.cors_policy = filter.cors.as_ref().map(filter::cors),
        other => return Err(filter::unsupported(other.as_str())),
    }
    Ok(Ok(()))
}

fn retries(written: &HttpRouteRetry) -> HttpRetry {
    let attempts = written.attempts.unwrap_or(RETRIES);
    let codes = written.codes.iter().map(ToString::to_string);
    let retry_on: Vec<_> = std::iter::once(RETRY_ON.to_owned()).chain(codes).collect();
    HttpRetry {
        attempts,
        retry_on: if attempts == 0 { String::new() } else { retry_on.join(",") },
        backoff: written.backoff.as_deref().map(|text| duration(text).unwrap_or_default()),
        ..Default::default()
    }
}

fn limit(route: &mut Route, timeouts: &HttpRouteTimeouts) {
    let time = |text: &Option<Box<str>>| {
        text.as_deref().and_then(duration).filter(|duration| *duration != Duration::default())
    };
    if let Some(timeout) = time(&timeouts.request) {
        route.timeout = Some(timeout);
    }
    if let Some(timeout) = time(&timeouts.backend_request) {
        match &mut route.retries {
            Some(retries) => retries.per_try_timeout = Some(timeout),
            None => route.timeout = Some(timeout),
        }
    }
}

/// Parses a Gateway API duration.
pub(super) fn duration(text: &str) -> Option<Duration> {
    text.parse::<GoDuration>().ok()?.to_std().map(Duration::from)
}

/// Resolves the destinations of a rule.
fn destinations(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    backends: &[HttpBackendRef],
) -> Result<(Vec<HttpRouteDestination>, Option<Fault>), Fault> {
    backend::destinations(
        cluster,
        referrer,
        backends,
        HttpBackendRef::backend,
        |backend, destination, weight| {
            let headers = backend_headers(&backend.filters)?;
            Ok(HttpRouteDestination { destination: Some(destination), weight, headers })
        },
    )
}

fn backend_headers(filters: &[HttpRouteFilter]) -> Result<Option<Headers>, Fault> {
    let mut headers = None;
    for filter in filters {
        match &filter.r#type {
            HttpFilterType::RequestHeaderModifier => {
                filter::request_headers(&mut headers, filter.request_header_modifier.as_ref())?;
            }
            HttpFilterType::ResponseHeaderModifier => {
                filter::response_headers(&mut headers, filter.response_header_modifier.as_ref())?;
            }
            other => {
                return Err(Fault::new(
                    reason::INVALID_FILTER,
                    format!("unsupported filter type {:?}", other.as_str()),
                ));
            }
        }
    }
    Ok(headers)
}
