//! Merging the servers of several Gateways onto the ports of a proxy.
//!
//! Plain HTTP servers of a port share a listener and a route configuration. TLS servers share a listener and are distinguished
//! by SNI. Any other server needs its port for itself, and the oldest wins. Servers on different addresses do not conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::gateway_protocol as server_kind;
use canopus_base::protocol::Protocol;
use canopus_base::spiffe::Identity;
use canopus_proto::istio::networking::v1alpha3::Server;
use canopus_runtime::flags::{Flags, PILOT_ENABLE_QUIC_LISTENERS};

use super::select::Selected;
use super::{
    BoundServer, GatewayConfig, MergedGateway, PortServers, Rejection, RejectionReason, ServerPort, reference,
};
use crate::target::PortTarget;

/// Merges the Gateways of one proxy, given oldest first.
pub(super) fn merge(selected: &[Selected], identity: Option<&Identity>, flags: &Flags) -> MergedGateway {
    let mut merge = Merge { http3: flags.get(PILOT_ENABLE_QUIC_LISTENERS), ..Default::default() };
    for Selected { gateway, targets, by_selector } in selected {
        let name: Arc<str> = gateway.qualified_name().into();
        for (position, server) in gateway.spec.servers.iter().enumerate() {
            let Some(port) = &server.port else {
                merge.reject(&name, position, RejectionReason::NoPort);
                continue;
            };
            if let Some(tls) = &server.tls {
                reference::add(&mut merge.merged.certificates, gateway, tls, identity);
            }
            let index = merge.add(&name, server, gateway);
            let http3 =
                merge.http3 && server_kind::can_serve_http3(server) && serves_udp(port.number, targets);
            for number in resolve(port.number, targets, *by_selector) {
                let candidate = Candidate { index, number, http3, gateway };
                if let Err(reason) = merge.place(candidate) {
                    merge.reject(&name, position, reason);
                }
            }
        }
    }
    merge.finish()
}

/// The proxy ports that a server's port maps to.
fn resolve(number: u32, targets: &[PortTarget], by_selector: bool) -> Vec<u32> {
    // Services that opt out of translation are ignored only where a selector, not a service, binds the Gateway.
    let counts = |target: &&PortTarget| target.port == number && !(by_selector && target.untranslated);
    let mut found = targets.iter().filter(counts).map(|target| target.target_port);
    if by_selector {
        return vec![found.next().unwrap_or(number)];
    }
    found.collect::<BTreeSet<_>>().into_iter().collect()
}

fn serves_udp(number: u32, targets: &[PortTarget]) -> bool {
    targets.iter().any(|target| target.port == number && target.protocol == Protocol::Udp)
}

/// The state of a merge.
#[derive(Default)]
struct Merge {
    merged: MergedGateway,
    http3: bool,
    /// The ports that some server has.
    taken: BTreeSet<u32>,
    /// The port of the latest plain server, by number.
    plain: BTreeMap<u32, ServerPort>,
    /// The hosts of TLS servers with their bind address, by port.
    tls_hosts: BTreeMap<u32, BTreeMap<String, String>>,
}

/// A server to be placed on a port of the proxy.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    index: usize,
    number: u32,
    http3: bool,
    gateway: &'a GatewayConfig,
}

impl Merge {
    fn reject(&mut self, gateway: &Arc<str>, server: usize, reason: RejectionReason) {
        self.merged.rejected.push(Rejection { gateway: gateway.clone(), server, reason });
    }

    fn add(&mut self, gateway: &Arc<str>, server: &Server, config: &GatewayConfig) -> usize {
        let mut server = server.clone();
        server.hosts = unambiguous_hosts(&server.hosts, &config.namespace);
        let sni_hosts = if server.tls.is_some() { sni_hosts(&server.hosts) } else { Vec::new() };
        self.merged.servers.push(BoundServer {
            gateway: gateway.clone(),
            server,
            sni_hosts,
            route_name: String::new(),
            derived_from: config.derived_from.clone(),
        });
        self.merged.servers.len() - 1
    }

    /// Places a server on a port, sharing it where possible.
    fn place(&mut self, candidate: Candidate<'_>) -> Result<(), RejectionReason> {
        let Candidate { index, number, gateway, .. } = candidate;
        let Some(BoundServer { server, .. }) = self.merged.servers.get(index) else { return Ok(()) };
        let server = server.clone();
        let protocol = server.port.as_ref().map(|port| port.protocol.clone()).unwrap_or_default();
        let port = ServerPort { number, protocol, bind: server.bind.clone() };
        let route = route_name(&server, number, gateway);
        if server.tls.is_some() {
            self.claim_hosts(number, &server)?;
            if let Some(bound) = self.merged.servers.get_mut(index) {
                bound.route_name.clone_from(&route);
                self.merged.auto_passthrough |= bound.is_auto_passthrough();
            }
        }
        if self.taken.insert(number) {
            self.open(candidate, &server, port.clone(), &route);
            self.add_http3(candidate, &port, &route);
            return Ok(());
        }
        match self.plain.get(&number).cloned() {
            Some(older) if older.bind == port.bind => self.join_plain(candidate, &server, &older, &route),
            Some(_) => {
                self.join_elsewhere(candidate, &server, port, &route);
                Ok(())
            }
            None if !server_kind::is_tls(&server) => {
                self.open(candidate, &server, port, &route);
                Ok(())
            }
            None => self.join_tls(candidate, &server, port, &route),
        }
    }

    /// Envoy refuses a listener in which two chains match the same server names.
    fn claim_hosts(&mut self, number: u32, server: &Server) -> Result<(), RejectionReason> {
        let known = self.tls_hosts.entry(number).or_default();
        let duplicates = claim(known, &server.hosts, &server.bind);
        if duplicates.is_empty() { Ok(()) } else { Err(RejectionReason::DuplicateHosts(duplicates)) }
    }

    /// The first server of a port and address.
    fn open(&mut self, candidate: Candidate<'_>, server: &Server, port: ServerPort, route: &str) {
        if !server_kind::is_tls(server) {
            self.plain.insert(port.number, port.clone());
        }
        if server_kind::is_http(server) {
            self.merged.routes.insert(route.to_owned(), vec![candidate.index]);
        }
        let servers = PortServers {
            port,
            route_name: route.to_owned(),
            servers: vec![candidate.index],
            http3: Vec::new(),
        };
        match self.servers_on(&servers.port) {
            // A plain server replaces TLS servers: a port is listed once.
            Some(present) => *present = servers,
            None => self.merged.ports.push(servers),
        }
    }

    /// A server of a port and address that a plain server has.
    fn join_plain(
        &mut self,
        candidate: Candidate<'_>,
        server: &Server,
        older: &ServerPort,
        route: &str,
    ) -> Result<(), RejectionReason> {
        let present = Protocol::parse(&older.protocol);
        let mine = server_kind::protocol(server);
        if !(present.is_http() && (mine.is_http() || mine == present)) {
            return Err(RejectionReason::ProtocolConflict { older: older.protocol.clone() });
        }
        if route.is_empty() {
            return Err(RejectionReason::PortTaken);
        }
        if let Some(present) = self.servers_on(older) {
            present.servers.push(candidate.index);
        }
        self.merged.routes.entry(route.to_owned()).or_default().push(candidate.index);
        Ok(())
    }

    /// A server of a port that a plain server has on another address.
    fn join_elsewhere(&mut self, candidate: Candidate<'_>, server: &Server, port: ServerPort, route: &str) {
        match self.servers_on(&port) {
            Some(present) => {
                route.clone_into(&mut present.route_name);
                present.servers.push(candidate.index);
                self.merged.routes.entry(route.to_owned()).or_default().push(candidate.index);
            }
            None => self.open(candidate, server, port.clone(), route),
        }
        self.add_http3(candidate, &port, route);
    }

    /// A TLS server of a port that only TLS servers have.
    fn join_tls(
        &mut self,
        candidate: Candidate<'_>,
        server: &Server,
        port: ServerPort,
        route: &str,
    ) -> Result<(), RejectionReason> {
        if server_kind::is_http(server) {
            if self.merged.routes.contains_key(route) {
                return Err(RejectionReason::DuplicatePortName);
            }
            self.merged.routes.insert(route.to_owned(), vec![candidate.index]);
        }
        match self.servers_on(&port) {
            Some(present) => present.servers.push(candidate.index),
            None => self.merged.ports.push(PortServers {
                port: port.clone(),
                route_name: String::new(),
                servers: vec![candidate.index],
                http3: Vec::new(),
            }),
        }
        self.add_http3(candidate, &port, route);
        Ok(())
    }

    fn add_http3(&mut self, candidate: Candidate<'_>, port: &ServerPort, route: &str) {
        if !candidate.http3 {
            return;
        }
        if let Some(present) = self.servers_on(port) {
            present.http3.push(candidate.index);
        }
        self.merged.http3_routes.insert(route.to_owned());
    }

    fn servers_on(&mut self, port: &ServerPort) -> Option<&mut PortServers> {
        self.merged.ports.iter_mut().find(|servers| servers.port == *port)
    }

    fn finish(mut self) -> MergedGateway {
        let placed = self.merged.ports.iter().flat_map(|port| &port.servers);
        let hosts = placed
            .filter_map(|index| self.merged.servers.get(*index))
            .filter(|server| server.is_auto_passthrough())
            .flat_map(|server| server.server.hosts.iter().cloned())
            .collect();
        self.merged.auto_passthrough_hosts = hosts;
        self.merged
    }
}

/// Claims hosts on a bind address. Returns the hosts that are taken; if there are any, none is claimed.
pub fn claim(known: &mut BTreeMap<String, String>, hosts: &[String], bind: &str) -> Vec<String> {
    let is_known = |host: &&String| known.get(*host).is_some_and(|on| on == bind);
    let duplicates: Vec<_> = hosts.iter().filter(is_known).cloned().collect();
    if duplicates.is_empty() {
        known.extend(hosts.iter().map(|host| (host.clone(), bind.to_owned())));
    }
    duplicates
}

/// The name of a server's route configuration; empty if the server does not route requests.
///
/// Plain HTTP servers share that of their port. An HTTPS server has its own, because its hosts are its own.
fn route_name(server: &Server, number: u32, gateway: &GatewayConfig) -> String {
    let Some(port) = &server.port else { return String::new() };
    let bind = if server.bind.is_empty() { String::new() } else { format!(".{}", server.bind) };
    let protocol = server_kind::protocol(server);
    if protocol.is_http() {
        return format!("http.{number}{bind}");
    }
    if protocol == Protocol::Https && !server_kind::is_passthrough(server) {
        return format!("https.{}.{}.{}.{}{bind}", port.number, port.name, gateway.name, gateway.namespace);
    }
    String::new()
}

/// Resolves the namespace of hosts: `./host` becomes that of the Gateway, `*/host` is any.
fn unambiguous_hosts(hosts: &[String], namespace: &str) -> Vec<String> {
    if hosts.iter().any(|host| host == "*/*") {
        return vec!["*".to_owned()];
    }
    let unambiguous = |host: &String| match host.split_once('/') {
        Some((".", name)) => format!("{namespace}/{name}"),
        Some(("*", name)) => name.to_owned(),
        _ => host.clone(),
    };
    hosts.iter().map(unambiguous).collect()
}

/// The hosts without namespaces, sorted.
fn sni_hosts(hosts: &[String]) -> Vec<String> {
    let names = hosts.iter().map(|host| host.split_once('/').map_or(host.as_str(), |(_, name)| name));
    names.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
}
