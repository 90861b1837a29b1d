//! HTTP routes of VirtualServices, and those of services that have none.

mod cors;
pub(crate) mod default;
pub(crate) mod destination;
mod fault;
pub(crate) mod hash;
mod headers;
mod matching;
mod redirect;
mod retry;
pub(crate) mod session;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::labels::Labels;
use canopus_engine::Ctx;
use canopus_mesh::proxy::View;
use canopus_mesh::service::Service;
use canopus_mesh::virtual_service::VirtualService;
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption, Metadata};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{Decorator, Route, RouteMatch};
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute};

use crate::names;

pub(crate) use matching::is_catch_all;

/// The filter that a route's faults are for.
const FAULT_FILTER: &str = "envoy.filters.http.fault";
/// The filter that a route's CORS policy is for.
const CORS_FILTER: &str = "envoy.filters.http.cors";

/// Where routes are used, and what the names in them mean there.
pub(crate) struct Site<'a> {
    /// What is known of the mesh.
    pub ctx: &'a Ctx<'a>,
    /// The proxies that use them.
    pub view: &'a View,
    /// The gateway they are for: `mesh` or `namespace/name`.
    pub gateway: &'a str,
    /// The port requests come in on, as services or the Gateway number it; 0 if any.
    pub port: u32,
    /// Whether TLS ends there.
    pub tls: bool,
    /// Whether clients are told that HTTP/3 is spoken on the same port.
    pub http3: bool,
    /// The service that a host means.
    pub service: &'a dyn Fn(&str) -> Option<Known>,
    /// The services that a waypoint stands in front of, whose clusters have names of their own; `None` for other proxies.
    pub fronted: Option<&'a [Arc<Service>]>,
}

/// A service that routes can lead to.
#[derive(Clone)]
pub(crate) struct Known {
    /// The service.
    pub service: Arc<Service>,
    /// The port that is meant when none is named, if the service says.
    pub default_port: Option<u32>,
}

impl Known {
    /// A service with all its ports: if there is only one, it is meant.
    pub(crate) fn whole(service: Arc<Service>) -> Self {
        let default_port = match &service.ports[..] {
            [only] => Some(only.number),
            _ => None,
        };
        Self { service, default_port }
    }
}

/// The routes a VirtualService has at a site, up to the first that matches everything.
pub(crate) fn http_routes(site: &Site<'_>, source: &VirtualService) -> Vec<Route> {
    // A route is a large message: a list that grows would move it again and again.
    let most = source.spec.http.iter().map(|http| http.r#match.len().max(1)).sum();
    let mut routes = Vec::with_capacity(most);
    for http in &source.spec.http {
        if http.r#match.is_empty() {
            routes.push(route(site, source, http, None));
            break;
        }
        for condition in http.r#match.iter().filter(|condition| applies(site, condition)) {
            let route = route(site, source, http, Some(condition));
            let last = is_catch_all(&route);
            routes.push(route);
            if last {
                return routes;
            }
        }
    }
    routes
}

/// Whether a match concerns this gateway, port and source at all.
fn applies(site: &Site<'_>, condition: &HttpMatchRequest) -> bool {
    if condition.port != 0 && condition.port != site.port {
        return false;
    }
    // A waypoint does not know the labels of its clients.
    if site.fronted.is_some() && !condition.source_labels.is_empty() {
        return false;
    }
    if !condition.gateways.is_empty() {
        // Parity: a match that names gateways does not look at the source.
        return condition.gateways.iter().any(|gateway| gateway == site.gateway);
    }
    let labels: Labels = condition.source_labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let namespace = &condition.source_namespace;
    labels.subset_of(&site.view.labels)
        && (namespace.is_empty() || *namespace == site.view.metadata.namespace)
}

fn route(
    site: &Site<'_>,
    source: &VirtualService,
    http: &HttpRoute,
    condition: Option<&HttpMatchRequest>,
) -> Route {
    let condition_name = condition.map_or("", |condition| &condition.name);
    let name =
        if condition_name.is_empty() { http.name.clone() } else { format!("{}.{condition_name}", http.name) };
    let mut route = Route {
        name,
        r#match: Some(matching::route_match(source.semantics, condition)),
        metadata: Some(config_metadata(source)),
        stat_prefix: condition.map(|condition| condition.stat_prefix.clone()).unwrap_or_default(),
        ..Default::default()
    };
    let operations = headers::Operations::of(http.headers.as_ref());
    let authority = operations.authority.clone();
    operations.extend_route(&mut route);

    let mut destinations = Vec::new();
    if let Some(to) = &http.redirect {
        route.action = redirect::redirect(to, site.port, site.tls);
    } else if let Some(response) = &http.direct_response {
        route.action = Some(Action::DirectResponse(redirect::direct_response(response)));
    } else {
        destinations = destination::apply(site, source, http, authority, &mut route);
    }
    route.decorator =
        Some(Decorator { operation: operation(&route, source.name(), site.port), ..Default::default() });
    route.typed_per_filter_config = filter_configs(site, http, &destinations);
    if site.http3 {
        route.response_headers_to_add.push(alternative_service(site.port));
    }
    route
}

/// What filters are told about one route.
fn filter_configs(
    site: &Site<'_>,
    http: &HttpRoute,
    destinations: &[Option<Known>],
) -> BTreeMap<String, Any> {
    let mut configs = BTreeMap::new();
    if let Some(fault) = &http.fault {
        configs.insert(FAULT_FILTER.to_owned(), Any::pack(&fault::http_fault(fault)));
    }
    if let Some(policy) = &http.cors_policy {
        configs.insert(CORS_FILTER.to_owned(), Any::pack(&cors::policy(policy)));
    }
    if let Some(config) = session::of_destinations(site.ctx, destinations) {
        configs.insert(session::FILTER.to_owned(), config);
    }
    configs
}

/// The name of the span of a request on this route: where it leads, if that is one place, or whose route it is.
fn operation(route: &Route, source: &str, port: u32) -> String {
    let path = match route.r#match.as_ref().and_then(|condition| condition.path_specifier.as_ref()) {
        Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
        Some(PathSpecifier::Path(path)) => path.clone(),
        Some(PathSpecifier::SafeRegex(regex)) => regex.regex.clone(),
        _ => "/*".to_owned(),
    };
    match only_cluster(route).map(|cluster| cluster.split('|').collect::<Vec<_>>()).as_deref() {
        Some([_, port, _, host]) => format!("{host}:{port}{path}"),
        _ => format!("{source}:{port}{path}"),
    }
}

fn only_cluster(route: &Route) -> Option<&str> {
    let Some(Action::Route(action)) = &route.action else { return None };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => Some(cluster),
        _ => None,
    }
}

/// Names the object that configuration comes from.
pub(crate) fn config_metadata(source: &VirtualService) -> Metadata {
    names::config_metadata("virtual-service", source.namespace(), source.name())
}

/// Tells clients that HTTP/3 is spoken on the same port.
fn alternative_service(port: u32) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: "alt-svc".into(),
            value: format!("h3=\":{port}\"; ma=86400"),
            ..Default::default()
        }),
        append_action: HeaderAppendAction::AppendIfExistsOrAdd as i32,
        ..Default::default()
    }
}

/// The match of every path.
pub(crate) fn any_path() -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".into())), ..Default::default() }
}
