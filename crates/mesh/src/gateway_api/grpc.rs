//! Converting the rules of GRPCRoutes.

use canopus_api::Kind;
use canopus_api::gateway_api::{GrpcBackendRef, GrpcFilterType, GrpcRoute, GrpcRouteFilter, GrpcRouteRule};
use canopus_proto::istio::networking::v1alpha3::{
    Headers, HttpDirectResponse, HttpRoute as Route, HttpRouteDestination,
};

use super::backend::{self, Referrer};
use super::cluster_objects::ClusterObjects;
use super::fault::Fault;
use super::filter;
use super::matching;
use super::route::Converted;

/// Converts all rules. Each route has at most one match, so that routes can be sorted.
pub(super) fn convert(cluster: &ClusterObjects<'_>, route: &GrpcRoute, for_mesh: bool) -> Converted<Route> {
    let referrer =
        Referrer { kind: Kind::GrpcRoute, namespace: &route.meta.namespace, needs_grant: !for_mesh };
    let mut converted = Converted::default();
    for (position, rule) in route.spec.rules.iter().enumerate() {
        let unnamed = || format!("{}.{}.{position}", route.meta.namespace, route.meta.name);
        let name = rule.name.as_ref().map_or_else(unnamed, ToString::to_string);
        let made = convert_rule(cluster, referrer, rule).and_then(|(made, fault)| {
            let matches: Result<Vec<_>, _> = rule.matches.iter().map(matching::grpc_match).collect();
            Ok((made, fault, matches?))
        });
        let (made, fault, matches) = match made {
            Ok(made) => made,
            Err(fault) => return Converted::failed(fault),
        };
        converted.fault = fault.or(converted.fault);
        if matches.is_empty() {
            converted.routes.push(Route { name, ..made });
        } else {
            converted.routes.extend(matches.into_iter().map(|r#match| Route {
                name: name.clone(),
                r#match: vec![r#match],
                ..made.clone()
            }));
        }
    }
    converted
}

/// Converts a rule without its matches. The returned fault concerns some of its backends only.
fn convert_rule(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    rule: &GrpcRouteRule,
) -> Result<(Route, Option<Fault>), Fault> {
    let mut route = Route::default();
    for filter in &rule.filters {
        if !change_headers(filter, &mut route.headers)? {
            match (&filter.r#type, &filter.request_mirror) {
                (GrpcFilterType::RequestMirror, Some(written)) => {
                    route.mirrors.push(filter::mirror(cluster, referrer, written)?);
                }
                (GrpcFilterType::RequestMirror, None) => {}
                (other, _) => return Err(filter::unsupported(other.as_str())),
            }
        }
    }
    let weight: i64 = rule.backend_refs.iter().map(|backend| i64::from(backend.weight)).sum();
    if weight == 0 {
        route.direct_response = Some(HttpDirectResponse { status: 500, body: None });
        return Ok((route, None));
    }
    let (destinations, fault) = destinations(cluster, referrer, &rule.backend_refs)?;
    route.route = destinations;
    Ok((route, fault))
}

/// Applies a filter if it is about headers.
fn change_headers(filter: &GrpcRouteFilter, headers: &mut Option<Headers>) -> Result<bool, Fault> {
    match &filter.r#type {
        GrpcFilterType::RequestHeaderModifier => {
            filter::request_headers(headers, filter.request_header_modifier.as_ref())?;
        }
        GrpcFilterType::ResponseHeaderModifier => {
            filter::response_headers(headers, filter.response_header_modifier.as_ref())?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Resolves the destinations of a rule.
fn destinations(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    backends: &[GrpcBackendRef],
) -> Result<(Vec<HttpRouteDestination>, Option<Fault>), Fault> {
    backend::destinations(
        cluster,
        referrer,
        backends,
        GrpcBackendRef::backend,
        |backend, destination, weight| {
            let mut headers = None;
            for filter in &backend.filters {
                if !change_headers(filter, &mut headers)? {
                    return Err(filter::unsupported(filter.r#type.as_str()));
                }
            }
            Ok(HttpRouteDestination { destination: Some(destination), weight, headers })
        },
    )
}
