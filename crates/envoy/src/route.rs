//! HTTP routes of VirtualServices, and those of services that have none.

mod cors;
pub(crate) mod default;
pub(crate) mod destination;
mod fault;
pub(crate) mod hash;
mod headers;
mod list;
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

use crate::{acceptable, names};

pub(crate) use list::RouteList;

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
pub(crate) fn http_routes(site: &Site<'_>, source: &VirtualService) -> RouteList {
    let mut routes = RouteList::default();
    for http in &source.spec.http {
        if http.r#match.is_empty() {
            routes.push(Draft::new(site, source, http).matching(None));
            break;
        }
        let mut applying = http.r#match.iter().filter(|condition| applies(site, condition)).peekable();
        if applying.peek().is_none() {
            continue;
        }
        let mut draft = Draft::new(site, source, http);
        for condition in applying {
            routes.push(draft.matching(Some(condition)));
            if routes.is_complete() {
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

/// The routes of one [`HttpRoute`], which differ only in what they match.
struct Draft<'a> {
    site: &'a Site<'a>,
    source: &'a VirtualService,
    http: &'a HttpRoute,
    route: Route,
}

impl<'a> Draft<'a> {
    fn new(site: &'a Site<'a>, source: &'a VirtualService, http: &'a HttpRoute) -> Self {
        let mut route = Route { metadata: Some(config_metadata(source)), ..Default::default() };
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
        route.typed_per_filter_config = filter_configs(site, http, &destinations);
        if site.http3 {
            route.response_headers_to_add.push(alternative_service(site.port));
        }
        Self { site, source, http, route }
    }

    /// The route of requests that meet a condition.
    fn matching(&mut self, condition: Option<&HttpMatchRequest>) -> &Route {
        let (http, source, route) = (self.http, self.source, &mut self.route);
        let condition_name = condition.map_or("", |condition| &condition.name);
        route.name = match condition_name {
            "" => http.name.clone(),
            own => format!("{}.{own}", http.name),
        };
        route.stat_prefix = condition.map(|condition| condition.stat_prefix.clone()).unwrap_or_default();
        let matched = matching::route_match(source.semantics, condition);
        if let (Some(Action::Route(action)), Some(rewrite)) = (&mut route.action, &http.rewrite) {
            destination::rewrite_path(action, rewrite, source, &matched);
        }
        let operation = operation(&matched, only_cluster(route), source.name(), self.site.port);
        route.decorator = Some(Decorator { operation, ..Default::default() });
        route.r#match = Some(matched);
        acceptable::complete_route(self.site.view, route);
        route
    }
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

/// The name of the span of a request on a route: where it leads, if that is one place, or whose route it is.
fn operation(matched: &RouteMatch, cluster: Option<&str>, source: &str, port: u32) -> String {
    let (path, rest) = match &matched.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => (prefix.as_str(), "*"),
        Some(PathSpecifier::Path(path)) => (path.as_str(), ""),
        Some(PathSpecifier::SafeRegex(regex)) => (regex.regex.as_str(), ""),
        _ => ("/*", ""),
    };
    let mut parts = cluster.unwrap_or_default().split('|');
    match [(); 5].map(|()| parts.next()) {
        [Some(_), Some(port), Some(_), Some(host), None] => format!("{host}:{port}{path}{rest}"),
        _ => format!("{source}:{port}{path}{rest}"),
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
