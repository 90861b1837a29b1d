//! Converting the rules of TCPRoutes and TLSRoutes.

use canopus_api::Kind;
use canopus_api::gateway_api::{BackendRef, ConnectionRule, TcpRoute, TlsRoute};
use canopus_base::host::{self, Name};
use canopus_proto::istio::networking::v1alpha3::{
    Destination, L4MatchAttributes, PortSelector, RouteDestination, TcpRoute as Tcp, TlsMatchAttributes,
    TlsRoute as Tls,
};

use super::backend::{self, Referrer};
use super::cluster_objects::ClusterObjects;
use super::fault::Fault;
use super::route::Converted;

/// Converts the rules of a TCPRoute.
pub(super) fn convert_tcp(cluster: &ClusterObjects<'_>, route: &TcpRoute, for_mesh: bool) -> Converted<Tcp> {
    let referrer =
        Referrer { kind: Kind::TcpRoute, namespace: &route.meta.namespace, needs_grant: !for_mesh };
    convert(cluster, referrer, &route.spec.rules, |route, _| Tcp { route, ..Default::default() })
}

/// Converts the rules of a TLSRoute.
pub(super) fn convert_tls(cluster: &ClusterObjects<'_>, route: &TlsRoute, for_mesh: bool) -> Converted<Tls> {
    let referrer =
        Referrer { kind: Kind::TlsRoute, namespace: &route.meta.namespace, needs_grant: !for_mesh };
    let sni_hosts = super::route::hosts(&route.spec.hostnames);
    convert(cluster, referrer, &route.spec.rules, |route, leads_somewhere| {
        let found = TlsMatchAttributes { sni_hosts: sni_hosts.clone(), ..Default::default() };
        Tls { route, r#match: if leads_somewhere { vec![found] } else { Vec::new() } }
    })
}

fn convert<R>(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    rules: &[ConnectionRule],
    make: impl Fn(Vec<RouteDestination>, bool) -> R,
) -> Converted<R> {
    let mut converted = Converted::default();
    for rule in rules {
        let weight: i64 = rule.backend_refs.iter().map(|backend| i64::from(backend.weight)).sum();
        if weight == 0 {
            converted.routes.push(make(vec![nowhere()], false));
            continue;
        }
        match destinations(cluster, referrer, &rule.backend_refs) {
            Ok((destinations, fault)) => {
                converted.fault = fault.or(converted.fault);
                converted.routes.push(make(destinations, true));
            }
            Err(fault) => return Converted::failed(fault),
        }
    }
    converted
}

/// A destination that does not exist, so that connections are refused.
fn nowhere() -> RouteDestination {
    RouteDestination {
        destination: Some(Destination {
            host: "internal.cluster.local".to_owned(),
            subset: "zero-weight".to_owned(),
            port: Some(PortSelector { number: 65535 }),
        }),
        weight: 0,
    }
}

/// Resolves the destinations of a rule.
fn destinations(
    cluster: &ClusterObjects<'_>,
    referrer: Referrer<'_>,
    backends: &[BackendRef],
) -> Result<(Vec<RouteDestination>, Option<Fault>), Fault> {
    backend::destinations(cluster, referrer, backends, BackendRef::backend, |_, destination, weight| {
        Ok(RouteDestination { destination: Some(destination), weight })
    })
}

/// Restricts TCP routes to one port of a service.
pub(super) fn tcp_on_port(routes: &[Tcp], port: u16) -> Vec<Tcp> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        if route.r#match.is_empty() {
            route.r#match.push(L4MatchAttributes::default());
        }
        route.r#match.iter_mut().for_each(|found| found.port = port.into());
    }
    routes
}

/// Restricts TLS routes of services to the services' hosts, if the route names none, and to the port of the reference.
pub(super) fn tls_in_mesh(routes: &[Tls], port: Option<u16>, parent_hosts: &[String]) -> Vec<Tls> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        if let [only] = route.r#match.as_mut_slice()
            && only.sni_hosts == ["*"]
        {
            only.sni_hosts = parent_hosts.to_vec();
        }
        if let Some(port) = port {
            route.r#match.iter_mut().for_each(|found| found.port = port.into());
        }
    }
    routes
}

/// Restricts TLS routes to the hosts that match `parent_host`.
pub(super) fn tls_for_host(routes: &[Tls], parent_host: &str) -> Vec<Tls> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        if let [only] = route.r#match.as_mut_slice()
            && only.sni_hosts.len() > 1
        {
            only.sni_hosts.retain(|sni| host::matches(parent_host, sni));
        }
    }
    routes
}

/// Restricts TLS routes to the hosts of a listener. Routes without a common host are dropped.
pub(super) fn tls_on_listener(routes: &[Tls], listener_host: &str) -> Vec<Tls> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        for found in &mut route.r#match {
            found.sni_hosts = common_hosts(&found.sni_hosts, listener_host);
        }
    }
    routes.retain(|route| {
        route.r#match.is_empty() || route.r#match.iter().any(|found| !found.sni_hosts.is_empty())
    });
    routes
}

/// Intersects hosts with another host.
pub(super) fn common_hosts(hosts: &[String], other: &str) -> Vec<String> {
    let hosts: Vec<_> = hosts.iter().map(|host| Name::new(host.as_str())).collect();
    host::intersection(&hosts, &[Name::new(other)]).iter().map(ToString::to_string).collect()
}
