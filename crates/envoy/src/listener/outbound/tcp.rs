//! Chains for connections that are not HTTP: as VirtualServices route them, else to the service itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_base::host;
use canopus_mesh::service::{NO_ADDRESS, Resolution, Service, known_address};
use canopus_mesh::virtual_service::{MESH, VirtualService};
use canopus_proto::istio::networking::v1alpha3::{L4MatchAttributes, RouteDestination, TlsMatchAttributes};

use canopus_runtime::flags::PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN;

use super::plan::Request;
use crate::address;
use crate::env::Env;
use crate::listener::chain::{Chain, Content, Routed, ToService};
use crate::route_config::domains::{self, Ports};

/// The chains of a service's port.
pub(super) fn chains(env: &Env<'_>, request: &Request<'_>) -> Vec<Chain> {
    let applies = |virtual_service: &&Arc<VirtualService>| {
        virtual_service.spec.hosts.iter().any(|own| host::matches(own, &request.service.host))
    };
    let applying: Vec<_> = request.virtual_services.iter().filter(applies).collect();
    if request.port.protocol.is_tls() {
        by_server_name(env, request, &applying)
    } else {
        by_destination(env, request, &applying)
    }
}

fn by_server_name(env: &Env<'_>, request: &Request<'_>, applying: &[&Arc<VirtualService>]) -> Vec<Chain> {
    let mut chains = Vec::new();
    let mut destinations = request.destinations.clone();
    let mut seen = BTreeSet::new();
    for virtual_service in applying {
        for tls in virtual_service.spec.tls.iter().filter(|tls| !tls.route.is_empty()) {
            for matched in tls.r#match.iter().filter(|matched| Static::from(*matched).holds(env, request)) {
                // Parity: what one match says about destinations goes for those after it that say nothing.
                if !matched.destination_subnets.is_empty() && request.port.number > 0 {
                    destinations.clone_from(&matched.destination_subnets);
                }
                // A proxy cannot tell a match from an earlier one that differs only in what is decided here.
                if seen.insert((&matched.sni_hosts, &matched.destination_subnets)) {
                    let routed = routed(virtual_service, &tls.route);
                    chains.push(Chain {
                        server_names: matched.sni_hosts.clone(),
                        destinations: destinations.clone(),
                        ..routed
                    });
                }
            }
        }
    }
    if chains.is_empty() {
        let server_names = server_names(env, request);
        chains.push(Chain { server_names, ..to_service(request) });
    }
    chains
}

/// The names by which TLS clients ask for a service, where its address does not tell it from others.
fn server_names(env: &Env<'_>, request: &Request<'_>) -> Vec<String> {
    let service = request.service;
    let wildcard = address::wildcard(&env.audience.addressing);
    let mut own = known_address(service, &env.audience.addressing);
    if !service.is_kubernetes() && own == NO_ADDRESS && !env.audience.addressing.ipv4 {
        own = "::";
    }
    let everywhere = own == wildcard && request.binding.primary() == wildcard;
    let unaddressed = own.is_empty() || own.contains('/') || everywhere;
    let needed = !request.destinations.is_empty() || unaddressed || is_resolved_by_name(service);
    if !needed || request.per_endpoint {
        return Vec::new();
    }
    let mut names = vec![service.host.to_string()];
    for alias in &service.aliases {
        names.push(alias.host.to_string());
        let absolute = env.flag(PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN);
        names.extend(domains::alternatives(&alias.host, Ports::Ignored, &env.audience.domain, absolute));
    }
    names
}

/// Whether connections go to whatever address the name has that the client asks for.
fn is_resolved_by_name(service: &Service) -> bool {
    host::is_wildcard(&service.host) && service.resolution == Resolution::DynamicDns
}

fn by_destination(env: &Env<'_>, request: &Request<'_>, applying: &[&Arc<VirtualService>]) -> Vec<Chain> {
    let mut chains = Vec::new();
    let mut complete = false;
    for virtual_service in applying {
        for tcp in virtual_service.spec.tcp.iter().filter(|tcp| !tcp.route.is_empty()) {
            let holding: Vec<_> =
                tcp.r#match.iter().filter(|matched| Static::from(*matched).holds(env, request)).collect();
            let takes_all = |matched: &&L4MatchAttributes| {
                matched.destination_subnets.is_empty() || request.port.number == 0
            };
            if tcp.r#match.is_empty() || holding.iter().any(takes_all) {
                let destinations = request.destinations.clone();
                chains.push(Chain { destinations, ..routed(virtual_service, &tcp.route) });
                return chains;
            }
            let mut subnets: Vec<String> =
                holding.iter().flat_map(|matched| matched.destination_subnets.clone()).collect();
            if !subnets.is_empty() {
                subnets.sort();
                complete |= subnets == sorted(&request.destinations);
                let routed = routed(virtual_service, &tcp.route);
                chains.push(Chain { destinations: subnets, origin: None, ..routed });
            }
        }
    }
    if !complete {
        chains.push(to_service(request));
    }
    chains
}

fn sorted(texts: &[String]) -> Vec<String> {
    let mut sorted = texts.to_vec();
    sorted.sort();
    sorted
}

fn routed(virtual_service: &VirtualService, routes: &[RouteDestination]) -> Chain {
    let origin = virtual_service.origin.clone();
    let routed = Routed { routes: routes.to_vec(), origin: origin.clone() };
    Chain { origin: Some(origin), ..Chain::new(Content::Routed(routed)) }
}

/// The service itself. A port that a Sidecar chose stands for the only port of the service, if it has but one.
fn to_service(request: &Request<'_>) -> Chain {
    let port = match request.service.ports.as_slice() {
        [only] => only.number,
        _ => request.port.number,
    };
    let content = Content::Service(ToService { service: request.service.clone(), port });
    Chain { destinations: request.destinations.clone(), ..Chain::new(content) }
}

/// The parts of a match that depend on the proxy rather than on the connection.
struct Static<'a> {
    gateways: &'a [String],
    source_labels: &'a std::collections::BTreeMap<String, String>,
    source_namespace: &'a str,
    port: u32,
}

impl<'a> From<&'a TlsMatchAttributes> for Static<'a> {
    fn from(matched: &'a TlsMatchAttributes) -> Self {
        Self {
            gateways: &matched.gateways,
            source_labels: &matched.source_labels,
            source_namespace: &matched.source_namespace,
            port: matched.port,
        }
    }
}

impl<'a> From<&'a L4MatchAttributes> for Static<'a> {
    fn from(matched: &'a L4MatchAttributes) -> Self {
        Self {
            gateways: &matched.gateways,
            source_labels: &matched.source_labels,
            source_namespace: &matched.source_namespace,
            port: matched.port,
        }
    }
}

impl Static<'_> {
    fn holds(&self, env: &Env<'_>, request: &Request<'_>) -> bool {
        let source = &env.audience.source;
        (self.gateways.is_empty() || self.gateways.iter().any(|gateway| gateway == MESH))
            && source.labels.are_selected_by(self.source_labels)
            && (self.port == 0 || self.port == request.port.number)
            && (self.source_namespace.is_empty() || *self.source_namespace == *source.namespace)
    }
}
