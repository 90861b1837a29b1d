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
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{Decorator, Route, RouteMatch};
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute};

use crate::pieces::Pieces;
use crate::{acceptable, metadata};

pub(crate) use list::RouteList;
use matching::is_catch_all;

/// The fields of a route.
mod field {
    pub(super) const MATCH: u32 = 1;
    pub(super) const ROUTE: u32 = 2;
    pub(super) const REDIRECT: u32 = 3;
    pub(super) const METADATA: u32 = 4;
    pub(super) const DECORATOR: u32 = 5;
    pub(super) const DIRECT_RESPONSE: u32 = 7;
    pub(super) const NAME: u32 = 14;
    pub(super) const STAT_PREFIX: u32 = 19;
}

/// The filter that a route's faults are for.
const FAULT_FILTER: &str = "envoy.filters.http.fault";
/// The filter that a route's CORS policy is for.
const CORS_FILTER: &str = "envoy.filters.http.cors";

/// Room for an encoded route that is not out of the ordinary.
const USUAL_SIZE: usize = 512;

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
    let mut metadata = Pieces::with_capacity(USUAL_SIZE);
    metadata.nested(field::METADATA, |fields| {
        metadata::names_config(fields, "virtual-service", source.namespace(), source.name());
    });
    for http in &source.spec.http {
        if http.r#match.is_empty() {
            let (route, takes_all) = Draft::new(site, source, &metadata, http).matching(None);
            routes.push(&route, takes_all);
            break;
        }
        let mut applying = http.r#match.iter().filter(|condition| applies(site, condition)).peekable();
        if applying.peek().is_none() {
            continue;
        }
        let mut draft = Draft::new(site, source, &metadata, http);
        for condition in applying {
            let (route, takes_all) = draft.matching(Some(condition));
            routes.push(&route, takes_all);
            if takes_all {
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

/// The routes of one [`HttpRoute`], which differ only in what they match: the rest is encoded once.
struct Draft<'a> {
    site: &'a Site<'a>,
    source: &'a VirtualService,
    /// Names the object behind it; encoded once for all its routes.
    metadata: &'a Pieces,
    http: &'a HttpRoute,
    /// What is done with requests.
    action: Option<Action>,
    /// The fields between match and decorator.
    head: Pieces,
    /// The fields between decorator and name.
    tail: Pieces,
}

impl<'a> Draft<'a> {
    fn new(
        site: &'a Site<'a>,
        source: &'a VirtualService,
        metadata: &'a Pieces,
        http: &'a HttpRoute,
    ) -> Self {
        let mut route = Route::default();
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
        acceptable::complete_action(site.view, &mut route.action);
        route.typed_per_filter_config = filter_configs(site, http, &destinations);
        if site.http3 {
            route.response_headers_to_add.push(alternative_service(site.port));
        }
        let action = route.action.take();
        let head = head(metadata, action.as_ref());
        Self { site, source, metadata, http, action, head, tail: Pieces::of(&route) }
    }

    /// The route of requests that meet a condition, and whether that is every request.
    fn matching(&mut self, condition: Option<&HttpMatchRequest>) -> (Pieces, bool) {
        let mut matched = matching::route_match(self.source.semantics, condition);
        acceptable::complete_match(self.site.view, &mut matched);
        if let (Some(Action::Route(action)), Some(rewrite)) = (&mut self.action, &self.http.rewrite)
            && destination::depends_on_match(rewrite, self.source)
        {
            destination::rewrite_path(action, rewrite, self.source, Some(&matched));
            self.head = head(self.metadata, self.action.as_ref());
        }
        let cluster = self.action.as_ref().and_then(only_cluster);
        let operation = operation(&matched, cluster, self.source.name(), self.site.port);

        let mut route = Pieces::with_capacity(USUAL_SIZE);
        route.message(field::MATCH, &matched);
        route.append(self.head.as_slice());
        route.message(field::DECORATOR, &Decorator { operation, ..Default::default() });
        route.append(self.tail.as_slice());
        match condition.map_or("", |condition| &condition.name) {
            "" => route.text(field::NAME, &self.http.name),
            own => route.text(field::NAME, &format!("{}.{own}", self.http.name)),
        }
        route.text(field::STAT_PREFIX, condition.map_or("", |condition| &condition.stat_prefix));
        (route, is_catch_all(&matched))
    }
}

/// What a route does, and the object that says so.
fn head(metadata: &Pieces, action: Option<&Action>) -> Pieces {
    let mut head = Pieces::with_capacity(USUAL_SIZE);
    match action {
        Some(Action::Route(action)) => head.message(field::ROUTE, action),
        Some(Action::Redirect(action)) => head.message(field::REDIRECT, action),
        Some(Action::DirectResponse(action)) => head.message(field::DIRECT_RESPONSE, action),
        _ => {}
    }
    head.append(metadata.as_slice());
    head
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

fn only_cluster(action: &Action) -> Option<&str> {
    let Action::Route(action) = action else { return None };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => Some(cluster),
        _ => None,
    }
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
