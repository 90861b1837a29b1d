//! Routes of waypoints, which their listeners carry inline: those of VirtualServices for the services they stand in front
//! of.

use std::sync::Arc;

use canopus_base::host;
use canopus_mesh::destination_rule::inbound_rule;
use canopus_mesh::scope::scope;
use canopus_mesh::service::{Port, Resolution, Service};
use canopus_mesh::virtual_service::{MESH, VirtualService};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::istio::networking::v1alpha3::{
    L4MatchAttributes, RouteDestination, TcpRoute, TlsMatchAttributes, TlsRoute,
};

use super::{Host, MAX_DIRECT_RESPONSE_BYTES, Table, Traits};
use crate::env::Env;
use crate::names;
use crate::route::{self, Known, RouteList, Site, default, hash};

/// The routes of requests to a port of a service.
pub(crate) fn service_table(env: &Env<'_>, service: &Service, port: &Port, cluster: &str) -> Table {
    let scope = scope(env.ctx, env.audience.scope());
    let fronted = env.services_behind();
    let audience = env.audience.routes();
    let seen = |host: &Arc<str>| scope.service(host).cloned();
    let site = Site {
        ctx: env.ctx,
        audience: &audience,
        settings: &env.settings,
        gateway: MESH,
        port: port.number,
        tls: false,
        http3: false,
        service: &|host| seen(host).map(Known::whole),
        scoped: &seen,
        fronted: Some(&fronted),
    };
    let mut routes = RouteList::default();
    for source in virtual_services(env, service) {
        routes.append(&route::http_routes(&site, &source));
    }
    if !routes.is_empty() {
        return table(cluster, port.number, domains(service), &routes, None);
    }
    let rule =
        scope.service(&service.host).and_then(|seen| inbound_rule(env.ctx, &scope.namespace, &seen.key()));
    let policy = rule.as_ref().and_then(|rule| rule.spec.traffic_policy.as_ref());
    let hashed = policy.and_then(hash::for_policy).and_then(hash::policy);
    let operation = names::operation(&service.host, port.number);
    let routes = default::Outbound::new(&env.settings).route(&[cluster], &[&operation], hashed);
    table(cluster, port.number, domains(service), &routes, Some(MAX_DIRECT_RESPONSE_BYTES))
}

/// The route of requests to workloads by their own addresses.
pub(crate) fn workload_table(env: &Env<'_>, cluster: &str) -> Table {
    let routes = default::Outbound::new(&env.settings).route(&[cluster], &[&names::operation("", 0)], None);
    table(cluster, 0, vec!["*".into()], &routes, Some(MAX_DIRECT_RESPONSE_BYTES))
}

/// Where connections to a port of a service go instead, if a VirtualService says so: TLS routes come before TCP routes.
pub(crate) fn connection_routes(env: &Env<'_>, service: &Service, port: u32) -> Vec<RouteDestination> {
    let sources = virtual_services(env, service);
    let tls =
        || sources.iter().flat_map(|source| &source.spec.tls).find(|tls| tls_applies(tls, service, port));
    let tcp = || sources.iter().flat_map(|source| &source.spec.tcp).find(|tcp| tcp_applies(tcp, port));
    tls().map(|tls| tls.route.clone()).or_else(|| tcp().map(|tcp| tcp.route.clone())).unwrap_or_default()
}

/// A waypoint does not tell server names apart: routes count that are for the name of the service itself.
fn tls_applies(tls: &TlsRoute, service: &Service, port: u32) -> bool {
    let holds = |written: &TlsMatchAttributes| {
        matches!(&written.sni_hosts[..], [only] if **only == *service.host)
            && holds(&written.gateways, written.port, port)
            && written.source_labels.is_empty()
            && written.source_namespace.is_empty()
    };
    tls.r#match.is_empty() || tls.r#match.iter().any(holds)
}

fn tcp_applies(tcp: &TcpRoute, port: u32) -> bool {
    let holds = |written: &L4MatchAttributes| {
        holds(&written.gateways, written.port, port)
            && written.source_labels.is_empty()
            && written.source_namespace.is_empty()
    };
    tcp.r#match.is_empty() || tcp.r#match.iter().any(holds)
}

fn holds(gateways: &[String], written: u32, port: u32) -> bool {
    (gateways.is_empty() || gateways.iter().any(|gateway| gateway == MESH))
        && (written == 0 || written == port)
}

/// The VirtualServices that route a service: those of its own namespace or of the waypoint's.
fn virtual_services(env: &Env<'_>, service: &Service) -> Vec<Arc<VirtualService>> {
    let scope = scope(env.ctx, env.audience.scope());
    let seen = scope.listeners.first().into_iter().flat_map(|listener| &listener.virtual_services);
    let is_meant = |source: &&Arc<VirtualService>| {
        let near = [&*env.audience.caller.namespace, &*service.namespace].contains(&source.namespace());
        near && source.spec.hosts.iter().any(|host| host::matches(host, &service.host))
    };
    seen.filter(is_meant).cloned().collect()
}

/// A host that is resolved as requests ask for it must not be any other than those the service has.
fn domains(service: &Service) -> Vec<Arc<str>> {
    match service.resolution {
        Resolution::DynamicDns => vec![service.host.clone()],
        _ => vec!["*".into()],
    }
}

fn table(
    cluster: &str,
    port: u32,
    domains: Vec<Arc<str>>,
    routes: &RouteList,
    max_direct_response: Option<u32>,
) -> Table {
    let name = format!("inbound|http|{port}");
    let settings = RouteConfiguration {
        validate_clusters: Some(false.into()),
        max_direct_response_body_size_bytes: max_direct_response.map(Into::into),
        ..Default::default()
    };
    Table::new(cluster, vec![Host::new(name.into(), domains, routes, &Traits::default())], settings)
}
