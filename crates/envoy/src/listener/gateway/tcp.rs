//! Connections that a gateway passes on without looking at requests, as TCP and TLS routes of VirtualServices say.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::host;
use canopus_mesh::gateway::{BoundServer, claim_hosts};
use canopus_mesh::service::Port;
use canopus_mesh::virtual_service::{self, VirtualService};
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as TlsMode;
use canopus_proto::istio::networking::v1alpha3::{L4MatchAttributes, RouteDestination, TlsMatchAttributes};

use super::chain::Chain;
use crate::env::Env;
use crate::filter::Filters;
use crate::network::pipeline::Before;
use crate::network::tcp;

/// The filters of a server with its port alone, as the first route for it says; none if there is no route.
pub(super) fn filters(env: &Env<'_>, server: &BoundServer) -> Filters {
    let bound = bound(env, server);
    let Some((source, routes)) = bound.iter().find_map(|bound| Some((bound, first_route(bound, server)?)))
    else {
        return Filters::default();
    };
    // Only clients of the mesh know how to exchange metadata.
    let exchanges_metadata = server.tls().is_some_and(|tls| tls.mode() == TlsMode::IstioMutual);
    let before = Before { exchanges_metadata, ..Default::default() };
    tcp::routed_after(env, routes, &source.origin, &port(server), before)
}

/// The first TCP route of a VirtualService that is for a server. A TLSRoute may also be for a server at which TLS ends.
fn first_route<'a>(bound: &'a VirtualService, server: &BoundServer) -> Option<&'a [RouteDestination]> {
    let tcp = bound.spec.tcp.iter().filter(|route| !route.route.is_empty());
    let matching = tcp.filter(|route| {
        route.r#match.is_empty()
            || route.r#match.iter().any(|condition| Condition::from(condition).holds(server))
    });
    let tls = bound.spec.tls.iter().filter(|_| bound.is_gateway_api());
    let terminated =
        tls.filter(|route| route.r#match.iter().any(|condition| Condition::from(condition).holds(server)));
    let tcp = matching.map(|route| route.route.as_slice());
    tcp.chain(terminated.map(|route| route.route.as_slice())).next()
}

/// One chain for each TLS route of a server that passes TLS through, chosen by the server name clients ask for.
///
/// `known` are the names that chains of the listener have already: Envoy refuses a listener with two chains for one name.
pub(super) fn by_server_name(
    env: &Env<'_>,
    server: &BoundServer,
    known: &mut BTreeMap<String, String>,
) -> Vec<Chain> {
    let mut chains = Vec::new();
    for bound in bound(env, server) {
        for route in bound.spec.tls.iter().filter(|route| !route.route.is_empty()) {
            let matching = route.r#match.iter().filter(|condition| Condition::from(*condition).holds(server));
            for condition in matching {
                if claim_hosts(known, &condition.sni_hosts, &server.server.bind).is_empty() {
                    chains.push(Chain {
                        server_names: condition.sni_hosts.clone(),
                        filters: tcp::routed(env, &route.route, &bound.origin, &port(server)),
                        ..Default::default()
                    });
                }
            }
        }
    }
    chains
}

/// The VirtualServices of a server's Gateway that have one of its hosts.
fn bound(env: &Env<'_>, server: &BoundServer) -> Vec<Arc<VirtualService>> {
    let all = virtual_service::for_gateway(env.ctx, &env.audience.caller.namespace, &server.gateway);
    let has_host = |bound: &&Arc<VirtualService>| {
        let offered = host::for_namespace(&server.server.hosts, bound.namespace());
        offered.iter().any(|offered| bound.spec.hosts.iter().any(|wanted| offered.matches(wanted)))
    };
    all.iter().filter(has_host).cloned().collect()
}

fn port(server: &BoundServer) -> Port {
    Port { number: server.port_number(), name: server.port_name().into(), protocol: server.protocol() }
}

/// What a route is for, as far as it matters at a gateway.
struct Condition<'a> {
    port: u32,
    gateways: &'a [String],
}

impl Condition<'_> {
    fn holds(&self, server: &BoundServer) -> bool {
        (self.port == 0 || self.port == server.port_number())
            && (self.gateways.is_empty() || self.gateways.iter().any(|gateway| **gateway == *server.gateway))
    }
}

impl<'a> From<&'a L4MatchAttributes> for Condition<'a> {
    fn from(written: &'a L4MatchAttributes) -> Self {
        Self { port: written.port, gateways: &written.gateways }
    }
}

impl<'a> From<&'a TlsMatchAttributes> for Condition<'a> {
    fn from(written: &'a TlsMatchAttributes) -> Self {
        Self { port: written.port, gateways: &written.gateways }
    }
}
