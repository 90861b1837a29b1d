//! Routes of all kinds, converted to VirtualServices, and their statuses.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::gateway_api::{
    GrpcRoute, HttpRoute, ParentReference, RouteParentStatus, RouteStatus, TcpRoute, TlsRoute,
};
use canopus_api::istio::{self, ServiceEntry};
use canopus_api::value::Condition;
use canopus_api::{Kind, Meta, Object, ObjectKey, annotations};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute as Route, VirtualService};
use canopus_runtime::flags::{PILOT_ENABLE_AMBIENT, PILOT_GATEWAY_API_CONTROLLER_NAME};

use super::GENERATED;
use super::attachment::{self, AttachingRoute, ParentLink};
use super::cluster_objects::ClusterObjects;
use super::condition::Conditions;
use super::connection;
use super::fault::{Fault, reason};
use super::grpc;
use super::http;
use super::matching;
use crate::world::{Origin, any_object};

/// The routes that the rules of one object become.
pub(super) struct Converted<R> {
    pub(super) routes: Vec<R>,
    /// The fault: it concerns some backends if there are routes, and the whole object if there are none.
    pub(super) fault: Option<Fault>,
}

impl<R> Default for Converted<R> {
    fn default() -> Self {
        Self { routes: Vec::new(), fault: None }
    }
}

impl<R> Converted<R> {
    /// A conversion that failed: no routes, and the fault.
    pub(super) fn failed(fault: Fault) -> Self {
        Self { routes: Vec::new(), fault: Some(fault) }
    }
}

/// A VirtualService derived from a route.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedRoute {
    /// The merge key: VirtualServices of several routes with the same key become one.
    pub key: Arc<str>,
    /// The sort key among those of the same age and namespace.
    pub rank: Box<str>,
    /// The VirtualService.
    pub object: Arc<istio::VirtualService>,
}

/// A converted route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertedRoute {
    /// The VirtualServices.
    pub virtual_services: Vec<DerivedRoute>,
    /// The status of the route by parent.
    pub parents: Vec<RouteParentStatus>,
    /// The listeners it is attached to: the Gateway or ListenerSet, and the name.
    pub attached: Vec<(ObjectKey, Box<str>)>,
}

/// The conversion of a route; empty for objects of other kinds.
pub struct RouteOf;

impl Query for RouteOf {
    const NAME: &'static str = "route_of";
    type Key = Origin;
    type Value = ConvertedRoute;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> ConvertedRoute {
        let cluster = ClusterObjects::new(ctx);
        match any_object(ctx, origin).as_deref() {
            Some(Object::HttpRoute(route)) => convert_http(&cluster, route),
            Some(Object::GrpcRoute(route)) => convert_grpc(&cluster, route),
            Some(Object::TcpRoute(route)) => convert_tcp(&cluster, route),
            Some(Object::TlsRoute(route)) => convert_tls(&cluster, route),
            _ => ConvertedRoute::default(),
        }
    }
}

/// The hosts of a route. Without any it matches all.
pub(super) fn hosts(hostnames: &[Box<str>]) -> Vec<String> {
    if hostnames.is_empty() {
        return vec!["*".to_owned()];
    }
    hostnames.iter().map(ToString::to_string).collect()
}

/// The fields that all kinds of routes have.
struct RouteFields<'a> {
    kind: Kind,
    meta: &'a Meta,
    parent_refs: &'a [ParentReference],
    hostnames: &'a [Box<str>],
    status: &'a RouteStatus,
}

fn convert_http(cluster: &ClusterObjects<'_>, route: &HttpRoute) -> ConvertedRoute {
    let common = RouteFields {
        kind: Kind::HttpRoute,
        meta: &route.meta,
        parent_refs: &route.spec.parent_refs,
        hostnames: &route.spec.hostnames,
        status: &route.status,
    };
    convert_requests(cluster, &common, |for_mesh| http::convert(cluster, route, for_mesh))
}

fn convert_grpc(cluster: &ClusterObjects<'_>, route: &GrpcRoute) -> ConvertedRoute {
    let common = RouteFields {
        kind: Kind::GrpcRoute,
        meta: &route.meta,
        parent_refs: &route.spec.parent_refs,
        hostnames: &route.spec.hostnames,
        status: &route.status,
    };
    convert_requests(cluster, &common, |for_mesh| grpc::convert(cluster, route, for_mesh))
}

/// Derives one VirtualService for each listener and host, so that those of one host can be merged across routes.
fn convert_requests(
    cluster: &ClusterObjects<'_>,
    common: &RouteFields<'_>,
    convert: impl Fn(bool) -> Converted<Route>,
) -> ConvertedRoute {
    let bound = BoundRoute::new(cluster, common, convert);
    let mut made = Vec::new();
    for link in bound.admitted() {
        let mut routes = bound.routes(link).to_vec();
        matching::sort(&mut routes);
        let mut key = link.internal_name.to_string();
        let mut hosts = hosts(common.hostnames);
        if link.is_mesh() {
            key = common.meta.namespace.to_string();
            if let Some(port) = link.reference.port {
                routes = on_port(routes, port);
                key = format!("{key}/{port}");
            }
            hosts = service_hosts(cluster, link);
        }
        if routes.is_empty() {
            continue;
        }
        for host in hosts.into_iter().filter(|host| link.receives(host)) {
            let key = format!("{key}/{host}");
            let name = key.replace('/', "~");
            let spec = VirtualService {
                hosts: vec![host],
                gateways: vec![link.internal_name.to_string()],
                http: routes.clone(),
                ..Default::default()
            };
            made.push(routed(common, &name, key, made.len(), spec));
        }
    }
    bound.facts(cluster, made)
}

fn convert_tcp(cluster: &ClusterObjects<'_>, route: &TcpRoute) -> ConvertedRoute {
    let common = RouteFields {
        kind: Kind::TcpRoute,
        meta: &route.meta,
        parent_refs: &route.spec.parent_refs,
        hostnames: &[],
        status: &route.status,
    };
    let bound =
        BoundRoute::new(cluster, &common, |for_mesh| connection::convert_tcp(cluster, route, for_mesh));
    let mut made = Vec::new();
    for link in bound.admitted() {
        let mut routes = bound.routes(link).to_vec();
        let mut hosts = vec!["*".to_owned()];
        if link.is_mesh() {
            if let Some(port) = link.reference.port {
                routes = connection::tcp_on_port(&routes, port);
            }
            hosts = service_hosts(cluster, link);
        }
        for host in hosts {
            let spec = VirtualService {
                hosts: vec![host],
                gateways: vec![link.internal_name.to_string()],
                tcp: routes.clone(),
                ..Default::default()
            };
            made.push(numbered(&common, "tcp", made.len(), spec));
        }
    }
    bound.facts(cluster, made)
}

fn convert_tls(cluster: &ClusterObjects<'_>, route: &TlsRoute) -> ConvertedRoute {
    let common = RouteFields {
        kind: Kind::TlsRoute,
        meta: &route.meta,
        parent_refs: &route.spec.parent_refs,
        hostnames: &route.spec.hostnames,
        status: &route.status,
    };
    let bound =
        BoundRoute::new(cluster, &common, |for_mesh| connection::convert_tls(cluster, route, for_mesh));
    let mut made = Vec::new();
    for link in bound.admitted() {
        let mut routes = bound.routes(link).to_vec();
        let mut hosts = hosts(common.hostnames);
        if link.is_mesh() {
            hosts = service_hosts(cluster, link);
            routes = connection::tls_in_mesh(&routes, link.reference.port, &hosts);
        } else if !link.hostname.is_empty() {
            hosts = connection::common_hosts(&hosts, &link.hostname);
            routes = connection::tls_on_listener(&routes, &link.hostname);
        }
        for host in hosts {
            let tls = if link.is_mesh() { connection::tls_for_host(&routes, &host) } else { routes.clone() };
            let spec = VirtualService {
                hosts: vec![host],
                gateways: vec![link.internal_name.to_string()],
                tls,
                ..Default::default()
            };
            made.push(numbered(&common, "tls", made.len(), spec));
        }
    }
    bound.facts(cluster, made)
}

/// A VirtualService that is not merged with others.
fn numbered(common: &RouteFields<'_>, kind: &str, number: usize, spec: VirtualService) -> DerivedRoute {
    let name = format!("{}~{kind}~{number}~{GENERATED}", common.meta.name);
    let key = format!("{}/{name}", common.meta.namespace);
    routed(common, &name, key, number, spec)
}

fn routed(
    common: &RouteFields<'_>,
    name: &str,
    key: String,
    number: usize,
    spec: VirtualService,
) -> DerivedRoute {
    let parents = format!("{}/{}.{}", common.kind.info().kind, common.meta.name, common.meta.namespace);
    let annotations = [
        (annotations::INTERNAL_PARENTS.name, parents.as_str()),
        (annotations::INTERNAL_ROUTE_SEMANTICS.name, "gateway"),
    ];
    let meta = Meta {
        creation_timestamp: common.meta.creation_timestamp,
        annotations: annotations.into_iter().collect(),
        ..Meta::new(&common.meta.namespace, name)
    };
    let object = istio::VirtualService { meta, spec, status: Default::default() };
    let rank = format!("{}~{number}~{GENERATED}", common.meta.name);
    DerivedRoute { key: key.into(), rank: rank.into(), object: Arc::new(object) }
}

/// The hosts of the service that a mesh route is attached to.
fn service_hosts(cluster: &ClusterObjects<'_>, link: &ParentLink) -> Vec<String> {
    let ObjectKey { kind, namespace, name } = &link.key;
    match kind {
        Kind::ServiceEntry => {
            let entry = cluster.object::<ServiceEntry>(namespace, name);
            entry.map(|entry| entry.spec.hosts.clone()).unwrap_or_default()
        }
        _ => vec![cluster.service_host(name, namespace)],
    }
}

/// Restricts routes to one port of a service.
fn on_port(mut routes: Vec<Route>, port: u16) -> Vec<Route> {
    for route in &mut routes {
        if route.r#match.is_empty() {
            route.r#match.push(HttpMatchRequest::default());
        }
        route.r#match.iter_mut().for_each(|found| found.port = port.into());
    }
    routes
}

/// A route with its parents, and its rules converted for the mesh and for gateways.
struct BoundRoute<'a, R> {
    common: &'a RouteFields<'a>,
    links: Vec<ParentLink>,
    for_mesh: Converted<R>,
    for_gateways: Converted<R>,
}

impl<'a, R> BoundRoute<'a, R> {
    fn new(
        cluster: &ClusterObjects<'_>,
        common: &'a RouteFields<'a>,
        convert: impl Fn(bool) -> Converted<R>,
    ) -> Self {
        let applicant = AttachingRoute {
            kind: common.kind,
            namespace: &common.meta.namespace,
            parent_refs: common.parent_refs,
            hostnames: common.hostnames,
        };
        let links = attachment::links(cluster, &applicant);
        let some = |mesh: bool| links.iter().any(|link| link.is_mesh() == mesh);
        let for_mesh = if some(true) { convert(true) } else { Converted::default() };
        let for_gateways = if some(false) { convert(false) } else { Converted::default() };
        Self { common, links, for_mesh, for_gateways }
    }

    fn converted(&self, link: &ParentLink) -> &Converted<R> {
        if link.is_mesh() { &self.for_mesh } else { &self.for_gateways }
    }

    fn routes(&self, link: &ParentLink) -> &[R] {
        &self.converted(link).routes
    }

    /// The parents that admit the route, sorted by name.
    fn admitted(&self) -> Vec<&ParentLink> {
        let mut admitted: Vec<_> = self.links.iter().filter(|link| link.denied.is_none()).collect();
        admitted.sort_by(|a, b| a.internal_name.cmp(&b.internal_name));
        admitted
    }

    fn facts(&self, cluster: &ClusterObjects<'_>, virtual_services: Vec<DerivedRoute>) -> ConvertedRoute {
        let admitted = self.admitted().into_iter();
        let gateways = [Kind::KubernetesGateway, Kind::ListenerSet];
        let attached = admitted
            .filter(|link| gateways.contains(&link.key.kind))
            .map(|link| (link.key.clone(), link.section.clone()));
        ConvertedRoute { virtual_services, parents: self.status(cluster), attached: attached.collect() }
    }

    /// The status of the route, with one entry for each parent reference.
    fn status(&self, cluster: &ClusterObjects<'_>) -> Vec<RouteParentStatus> {
        let mut by_reference: BTreeMap<String, Vec<&ParentLink>> = BTreeMap::new();
        let text = |reference| attachment::reference_text(reference, &self.common.meta.namespace);
        for link in &self.links {
            by_reference.entry(text(&link.reference)).or_default().push(link);
        }
        let controller = cluster.settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME);
        let mut parents = Vec::new();
        for present in &self.common.status.parents {
            if &*present.controller_name != controller {
                parents.push(present.clone());
            } else if let Some(links) = by_reference.remove(&text(&present.parent_ref)) {
                parents.push(self.parent_status(cluster, &links, &present.conditions));
            }
        }
        // Parity: new entries are appended in descending order.
        for links in by_reference.values().rev() {
            parents.push(self.parent_status(cluster, links, &[]));
        }
        parents
    }

    fn parent_status(
        &self,
        cluster: &ClusterObjects<'_>,
        links: &[&ParentLink],
        present: &[Condition],
    ) -> RouteParentStatus {
        let bound = links.iter().filter(|link| link.denied.is_none()).count();
        let (link, denied) = most_telling(links);
        let mut conditions = Conditions::default();
        let message = match bound {
            0 | 1 => "Route was valid".to_owned(),
            several => format!("Route was valid, bound to {several} parents"),
        };
        conditions.expect("Accepted", "Accepted", message);
        conditions.expect("ResolvedRefs", "ResolvedRefs", "All references resolved");
        if let Some(fault) = &self.converted(link).fault {
            conditions.fail("ResolvedRefs", fault);
        }
        if let Some(fault) = &denied {
            conditions.fail("Accepted", fault);
        }
        let flags = &cluster.settings.flags;
        if flags.get(PILOT_ENABLE_AMBIENT) {
            let message = link.no_waypoint.unwrap_or("All waypoints resolved");
            conditions.expect("ResolvedWaypoints", "ResolvedWaypoints", message);
        }
        RouteParentStatus {
            parent_ref: link.reference.clone(),
            controller_name: flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME).into(),
            conditions: conditions.write(self.common.meta.generation, present),
        }
    }
}

/// Of the listeners of one reference, the one to report: one that admits the route, else the one whose fault is the least
/// general. Faults of the same rank are joined.
fn most_telling<'a>(links: &[&'a ParentLink]) -> (&'a ParentLink, Option<Fault>) {
    let rank = |link: &ParentLink| match link.denied.as_ref().map(|fault| fault.reason) {
        None => 0,
        Some(reason::NOT_ALLOWED_BY_LISTENERS) => 1,
        Some(reason::NO_MATCHING_LISTENER_HOSTNAME) => 2,
        Some(_) => 3,
    };
    let mut best = links[0];
    let mut fault = best.denied.clone();
    for link in &links[1..] {
        match rank(link).cmp(&rank(best)) {
            Ordering::Less => {
                best = link;
                fault.clone_from(&link.denied);
            }
            Ordering::Equal => fault = Fault::join(fault, link.denied.clone()),
            Ordering::Greater => {}
        }
    }
    (best, fault)
}
