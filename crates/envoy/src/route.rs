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
pub(crate) mod upstream_headers;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::Ctx;
use canopus_mesh::gateway_api::EndpointPicker;
use canopus_mesh::service::Service;
use canopus_mesh::virtual_service::VirtualService;
use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{DirectResponseAction, RedirectAction, Route, RouteMatch};
use canopus_proto::fields::{decorator, route};
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute};
use canopus_proto::wire::ProtoWriter;

use crate::{acceptable, inference, metadata};

use crate::audience::RouteAudience;
pub(crate) use list::RouteList;
use matching::{Match, Path};

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
    pub audience: &'a RouteAudience,
    /// The settings of mesh and process.
    pub settings: &'a MeshSettings,
    /// The gateway they are for: `mesh` or `namespace/name`.
    pub gateway: &'a str,
    /// The port requests come in on, as services or the Gateway number it; 0 if any.
    pub port: u32,
    /// Whether TLS ends there.
    pub tls: bool,
    /// Whether responses advertise HTTP/3 on the same port (`alt-svc`).
    pub http3: bool,
    /// The service that a host means.
    pub service: &'a dyn Fn(&Arc<str>) -> Option<Known>,
    /// The service that a host means to the proxy, whose DestinationRule counts.
    pub scoped: &'a dyn Fn(&Arc<str>) -> Option<Arc<Service>>,
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
    let expected = source.spec.http.iter().map(|http| http.r#match.len().max(1)).sum::<usize>();
    let mut routes = RouteList::with_capacity(expected * USUAL_SIZE);
    let mut metadata = ProtoWriter::with_capacity(USUAL_SIZE);
    metadata.nested(route::METADATA, |fields| {
        metadata::write_config(fields, "virtual-service", source.namespace(), source.name());
    });
    for http in &source.spec.http {
        if http.r#match.is_empty() {
            Draft::new(site, source, &metadata, http).add_to(&mut routes, None);
            break;
        }
        let mut applying = http.r#match.iter().filter(|condition| applies(site, condition)).peekable();
        if applying.peek().is_none() {
            continue;
        }
        let mut draft = Draft::new(site, source, &metadata, http);
        for condition in applying {
            if draft.add_to(&mut routes, Some(condition)) {
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
    let source = &site.audience.source;
    let namespace = &condition.source_namespace;
    source.labels.are_selected_by(&condition.source_labels)
        && (namespace.is_empty() || **namespace == *source.namespace)
}

/// What is done with requests.
enum Action {
    Forward(destination::Forward),
    Redirect(RedirectAction),
    Answer(DirectResponseAction),
    /// A redirect that cannot be.
    Nothing,
}

/// The routes of one [`HttpRoute`], which differ only in what they match: the rest is encoded once.
struct Draft<'a> {
    site: &'a Site<'a>,
    source: &'a VirtualService,
    /// Names the object behind it; encoded once for all its routes.
    metadata: &'a ProtoWriter<Route>,
    http: &'a HttpRoute,
    action: Action,
    /// How the names of spans begin: with where requests go, if that is one place, or whose route it is.
    operation: String,
    /// The fields between match and decorator.
    head: ProtoWriter<Route>,
    /// The fields between decorator and name.
    tail: ProtoWriter<Route>,
}

impl<'a> Draft<'a> {
    fn new(
        site: &'a Site<'a>,
        source: &'a VirtualService,
        metadata: &'a ProtoWriter<Route>,
        http: &'a HttpRoute,
    ) -> Self {
        let mut operations = headers::Operations::new(http.headers.as_ref());
        let action = action(site, source, http, &mut operations);
        if site.http3 {
            operations.response_add.push(alternative_service(site.port));
        }
        let (cluster, destinations) = match &action {
            Action::Forward(forward) => (forward.cluster.as_deref(), &forward.destinations[..]),
            _ => (None, &[][..]),
        };
        let mut tail = ProtoWriter::default();
        operations.write(&mut tail);
        write_filter_configs(site, http, destinations, &mut tail);
        let operation = operation(cluster, source.name(), site.port);
        Self { site, source, metadata, http, head: head(metadata, &action), action, operation, tail }
    }

    /// Adds the route of requests that meet a condition; says whether that is every request.
    fn add_to(&mut self, routes: &mut RouteList, condition: Option<&HttpMatchRequest>) -> bool {
        let matched = Match::new(&self.site.audience.build, self.source.semantics, condition);
        if let (Action::Forward(forward), Some(rewrite)) = (&mut self.action, &self.http.rewrite)
            && destination::depends_on_match(rewrite, self.source)
        {
            forward.rewrite_path(rewrite, self.source, matched.path);
            self.head = head(self.metadata, &self.action);
        }
        let takes_all = matched.is_catch_all();
        let size = self.head.len() + self.tail.len() + self.operation.len();
        routes.push(takes_all, size, |route| self.write(route, condition, &matched));
        takes_all
    }

    /// Writes the fields of a route.
    fn write(
        &self,
        fields: &mut ProtoWriter<Route>,
        condition: Option<&HttpMatchRequest>,
        matched: &Match<'_>,
    ) {
        fields.nested(route::MATCH, |fields| matched.write(fields));
        fields.append(&self.head);
        let (path, rest) = match matched.path {
            Path::Prefix(prefix) => (prefix, "*"),
            Path::Exact(path) | Path::Regex(path) => (path, ""),
            Path::Elements(_) => ("/*", ""),
        };
        fields.nested(route::DECORATOR, |fields| {
            fields.string_of_parts(decorator::OPERATION, &[&self.operation, path, rest]);
        });
        fields.append(&self.tail);
        match condition.map_or("", |condition| &condition.name) {
            "" => fields.string(route::NAME, &self.http.name),
            own => fields.string_of_parts(route::NAME, &[&self.http.name, ".", own]),
        }
        fields.string(route::STAT_PREFIX, condition.map_or("", |condition| &condition.stat_prefix));
    }
}

/// What an [`HttpRoute`] does; what it does to headers for its only destination is added to `operations`.
fn action(
    site: &Site<'_>,
    source: &VirtualService,
    http: &HttpRoute,
    operations: &mut headers::Operations,
) -> Action {
    if let Some(to) = &http.redirect {
        return redirect::redirect(to, site.port, site.tls).map_or(Action::Nothing, Action::Redirect);
    }
    if let Some(response) = &http.direct_response {
        return Action::Answer(redirect::direct_response(response));
    }
    let forward = destination::Forward::new(site, source, http, operations);
    match acceptable::instead_of_nowhere(&site.audience.build).filter(|_| forward.leads_nowhere()) {
        Some(answer) => Action::Answer(answer),
        None => Action::Forward(forward),
    }
}

/// What a route does, and the object that says so.
fn head(metadata: &ProtoWriter<Route>, action: &Action) -> ProtoWriter<Route> {
    let mut head = ProtoWriter::with_capacity(USUAL_SIZE);
    match action {
        Action::Forward(forward) => forward.write(&mut head),
        Action::Redirect(action) => head.message(route::REDIRECT, action),
        Action::Answer(action) => head.message(route::DIRECT_RESPONSE, action),
        Action::Nothing => {}
    }
    head.append(metadata);
    head
}

/// Writes the per-filter configuration of a route.
fn write_filter_configs(
    site: &Site<'_>,
    http: &HttpRoute,
    destinations: &[Option<Known>],
    fields: &mut ProtoWriter<Route>,
) {
    let mut configure = |filter: &str, config: &Any| {
        fields.entry(route::TYPED_PER_FILTER_CONFIG, filter, config);
    };
    if let Some(policy) = &http.cors_policy {
        configure(CORS_FILTER, &Any::pack(&cors::policy(policy)));
    }
    if let Some(picker) = endpoint_picker(site, destinations) {
        configure(inference::FILTER, &inference::per_route(&picker));
    }
    if let Some(fault) = &http.fault {
        configure(FAULT_FILTER, &Any::pack(&fault::http_fault(fault)));
    }
    if let Some(config) = session::destinations_config(site.settings, destinations) {
        configure(session::FILTER, &config);
    }
}

/// Whom a gateway asks about requests on a route to an InferencePool.
fn endpoint_picker(site: &Site<'_>, destinations: &[Option<Known>]) -> Option<EndpointPicker> {
    if site.audience.role.kind != NodeKind::Router {
        return None;
    }
    destinations.iter().flatten().find_map(|known| EndpointPicker::of(&known.service))
}

/// Where a route leads, if that is one cluster of a service, else whose route it is.
fn operation(cluster: Option<&str>, source: &str, port: u32) -> String {
    let cluster = cluster.unwrap_or_default();
    let mut bars = cluster.bytes().enumerate().filter(|(_, byte)| *byte == b'|').map(|(at, _)| at);
    match [bars.next(), bars.next(), bars.next(), bars.next()] {
        [Some(first), Some(second), Some(third), None] => {
            [&cluster[third + 1..], ":", &cluster[first + 1..second]].concat()
        }
        _ => [source, ":", itoa::Buffer::new().format(port)].concat(),
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
