//! Filter chains of waypoints: what is done with connections to a service, or to a workload by its own address.

use std::sync::Arc;

use canopus_base::protocol::Protocol;
use canopus_mesh::scope::scope;
use canopus_mesh::service::{Port, Service};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::ForwardClientCertDetails;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::weighted_cluster::ClusterWeight;
use canopus_proto::istio::networking::v1alpha3::{Destination, RouteDestination};

use super::resolves_names;
use crate::env::{Class, Env};
use crate::filter::Filters;
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes, filters, http10};
use crate::listener::connect;
use crate::names;
use crate::network::{protocols, tcp};
use crate::route::Known;
use crate::route::destination::fronted_cluster_name;
use crate::route_config::{Table, waypoint as routes};
use crate::stat_name::Placeholders;
use crate::tunnel::ENCAPSULATE;

/// The chain for connections to workloads by their own addresses.
pub(super) const DIRECT_TCP: &str = "direct-tcp";
/// The same where HTTP is spoken.
pub(super) const DIRECT_HTTP: &str = "direct-http";

/// Adds the filters of a chain for a port of a service, and gives its name, which is that of its cluster.
pub(super) type Write = fn(&mut Filters, &Env<'_>, &Service, &Port) -> String;

/// The chain for requests to a port of a service.
pub(super) fn http(filters: &mut Filters, env: &Env<'_>, service: &Service, port: &Port) -> String {
    let env = &env.for_service(service);
    let cluster = names::vip_cluster(&service.host, port.number, "http");
    let table = routes::service_table(env, service, port, &cluster);
    manager(env, port, Some(service), table).add_to(filters, env);
    cluster
}

/// The chain for connections to a port of a service.
pub(super) fn tcp(filters: &mut Filters, env: &Env<'_>, service: &Service, port: &Port) -> String {
    let cluster = names::vip_cluster(&service.host, port.number, "tcp");
    let stat_prefix = match env.mesh().inbound_cluster_stat_name.as_str() {
        "" => cluster.clone(),
        pattern => Placeholders {
            host: &service.host,
            kubernetes: Some((&service.name, &service.namespace)),
            subset: "",
            port: port.number,
            port_name: &port.name,
            target_port: None,
        }
        .fill(pattern),
    };
    let written = routes::connection_routes(env, service, port.number);
    let scope = scope(env.ctx, env.audience.scope());
    let fronted = env.services_behind();
    let weighted = |route: &RouteDestination| {
        let nowhere = Destination::default();
        let to = route.destination.as_ref().unwrap_or(&nowhere);
        let known = scope.service(&to.host).cloned().map(Known::whole);
        let name = fronted_cluster_name(to, known.as_ref(), port.number, &fronted);
        ClusterWeight { name, weight: u32::try_from(route.weight).unwrap_or(0), ..Default::default() }
    };
    let first = written.first().and_then(|route| route.destination.as_ref());
    let settled: Option<(Arc<Service>, String)> = match first {
        // The settings of several destinations can only be those of one of them.
        Some(to) => {
            let subset = if written.len() == 1 { to.subset.clone() } else { String::new() };
            scope.service(&to.host).map(|service| (service.clone(), subset))
        }
        None => scope.service(&service.host).map(|service| (service.clone(), String::new())),
    };
    let host = first.map_or(&*service.host, |to| &to.host);
    let resolves = resolves_names(service) && host.starts_with('*');
    let resolver = resolves.then(|| protocols::server_name_resolver(env, &service.host, port.number));
    let settled = settled.as_ref().map(|(service, subset)| (&**service, subset.as_str()));
    let of_service = env.for_service(service);
    let env = if env.audience.role.is_east_west_gateway { env } else { &of_service };
    let routes: Vec<_> = written.iter().map(weighted).collect();
    filters.append(&tcp::fronting(env, (&cluster, &stat_prefix), port, settled, &routes, resolver));
    cluster
}

/// The filters of the chains for connections to workloads by their own addresses.
pub(super) fn direct(env: &Env<'_>) -> [(&'static str, Filters); 2] {
    let port = Port { number: 0, name: "unknown".into(), protocol: Protocol::Tcp };
    let stat_prefix = match env.mesh().inbound_cluster_stat_name.as_str() {
        "" => ENCAPSULATE.to_owned(),
        pattern => Placeholders {
            host: "",
            kubernetes: None,
            subset: "",
            port: port.number,
            port_name: &port.name,
            target_port: None,
        }
        .fill(pattern),
    };
    let mut tcp = Filters::default();
    connect::connection_authority(&mut tcp);
    let mut http = tcp.clone();
    tcp.append(&tcp::fronting(env, (ENCAPSULATE, &stat_prefix), &port, None, &[], None));
    let table = routes::workload_table(env, ENCAPSULATE);
    manager(env, &port, None, table).add_to(&mut http, env);
    [(DIRECT_TCP, tcp), (DIRECT_HTTP, http)]
}

fn manager<'a>(env: &Env<'_>, port: &Port, service: Option<&'a Service>, table: Table) -> Manager<'a> {
    let stat_prefix = format!("inbound_{}", names::listener("0.0.0.0", port.number));
    let manager = Manager::new(Class::Inbound, &stat_prefix, Routes::Inline(Box::new(table)));
    let mut manager = ProxyHeaders::new(env, Class::Inbound).on(manager);
    manager.protocol = port.protocol;
    manager.service = service;
    manager.particulars.http2 = port.protocol.is_http2();
    manager.particulars.http1 = http10(env);
    if filters::tells_client_identity(env) {
        // Else the header would be taken off again: there is no certificate on this side of the tunnel.
        manager.particulars.forwarded_client_cert = ForwardClientCertDetails::AlwaysForwardOnly as i32;
    }
    manager
}
