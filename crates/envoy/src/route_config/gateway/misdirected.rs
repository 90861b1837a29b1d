//! Requests that arrive at the wrong listener.
//!
//! Clients reuse a connection for every host that its certificate covers, but the listener was chosen when the connection was
//! opened, by its SNI. A request for a host that another HTTPS listener of the port serves is therefore answered with 421, upon which
//! clients open a connection of their own for it. Only listeners of Gateway API do this: Istio's own Gateways never did.

use std::collections::BTreeSet;

use canopus_base::protocol::Protocol;
use canopus_mesh::gateway::{BoundServer, MergedGateway};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::{DirectResponseAction, Route, VirtualHost};

use super::Host;
use crate::names;
use crate::route::any_path;

/// The HTTP status that says that the request belongs on another connection.
const MISDIRECTED_REQUEST: u32 = 421;

/// Adds a virtual host for the hosts of other listeners to the table of one, and one for its own host, which is better answered
/// with 404 than with 421 where no route wants it.
pub(super) fn add(hosts: &mut Vec<Host>, merged: &MergedGateway, servers: &[&BoundServer]) {
    let [own] = servers else { return };
    if !is_https_listener(own) {
        return;
    }
    let is_other = |server: &&BoundServer| {
        is_https_listener(server)
            && server.port_number() == own.port_number()
            && server.route_name != own.route_name
            && !server.route_name.is_empty()
    };
    let others = merged.servers.iter().filter(is_other).flat_map(|server| &server.sni_hosts);
    let mut foreign: BTreeSet<String> = others.map(|host| host.to_lowercase()).collect();
    if foreign.is_empty() {
        return;
    }
    // An empty table has one host that takes every name.
    let port = own.port_number();
    let nowhere = names::domain(super::NOWHERE, port);
    hosts.retain(|host| *host.name != *nowhere);
    let mut own_hosts: BTreeSet<String> = own.sni_hosts.iter().map(|host| host.to_lowercase()).collect();
    for domain in hosts.iter().flat_map(|host| &host.domains) {
        foreign.remove(&**domain);
        own_hosts.remove(&**domain);
    }
    own_hosts.iter().for_each(|host| _ = foreign.remove(host));
    hosts.extend(virtual_host("unrouted", port, own_hosts, Vec::new()));
    hosts.extend(virtual_host("misdirected", port, foreign, vec![refusal()]));
}

fn is_https_listener(server: &BoundServer) -> bool {
    server.derived_from.is_some() && server.tls().is_some() && server.protocol() == Protocol::Https
}

fn virtual_host(name: &str, port: u32, domains: BTreeSet<String>, routes: Vec<Route>) -> Option<Host> {
    let name = names::domain(name, port);
    let domains: Vec<String> = domains.into_iter().collect();
    (!domains.is_empty()).then(|| VirtualHost { name, domains, routes, ..Default::default() }.into())
}

fn refusal() -> Route {
    let answer = DirectResponseAction { status: MISDIRECTED_REQUEST, ..Default::default() };
    Route { r#match: Some(any_path()), action: Some(Action::DirectResponse(answer)), ..Default::default() }
}
