//! Which services and hosts share which routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_base::host;
use canopus_engine::Ctx;
use canopus_mesh::list::List;
use canopus_mesh::proxy::View;
use canopus_mesh::scope::EgressListener;
use canopus_mesh::service::{Port, Resolution, Service};
use canopus_mesh::virtual_service::{HostOwners, MESH, VirtualService};
use canopus_mesh::world::settings;

use crate::names;
use crate::route::{self, Known, RouteList, Site, default, hash};

/// The port on which VirtualServices also route hosts that are no service's.
const HTTP_PORT: u32 = 80;

/// A service as one table has it.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) service: Arc<Service>,
    /// Its host, in lower case where the table is for one port.
    pub(super) host: Arc<str>,
    /// The port of the table, or all ports.
    pub(super) ports: Vec<Port>,
}

/// Services by host.
type Candidates = BTreeMap<Arc<str>, Candidate>;

/// Hosts that have the same routes on a port.
pub(super) struct Group {
    pub(super) port: u32,
    pub(super) services: Vec<Candidate>,
    /// Hosts that are no service's.
    pub(super) hosts: Vec<String>,
    pub(super) routes: Arc<RouteList>,
}

/// The groups of an egress listener: those of VirtualServices in their order, then the services left over.
pub(super) fn build(ctx: &Ctx<'_>, view: &View, listener: &EgressListener, port: u32) -> Vec<Group> {
    let candidates = candidates(&listener.services, port);
    let owners = HostOwners::new(&listener.virtual_services);
    let mut groups = Vec::new();
    for source in selected(&listener.virtual_services, &candidates, port) {
        groups.extend(of_virtual_service(ctx, view, port, source, &candidates, &owners));
    }
    let routed: BTreeSet<_> =
        groups.iter().flat_map(|group: &Group| &group.services).map(|service| service.host.clone()).collect();
    // Another name of a service has no routes of its own: the service's virtual host answers to it.
    let rest = candidates.values().filter(|candidate| {
        !routed.contains(&candidate.host) && candidate.service.resolution != Resolution::Alias
    });
    let default = default::Outbound::new(&settings(ctx));
    for candidate in rest {
        let ports = candidate.ports.iter().filter(|port| port.protocol.is_http_or_sniffed());
        groups.extend(ports.map(|port| of_service(ctx, view, candidate, port.number, &default)));
    }
    groups
}

/// The services with a port; of several for one host the last counts.
fn candidates(services: &List<Service>, port: u32) -> Candidates {
    let mut found = Candidates::new();
    for service in services {
        let (host, ports) = if port == 0 {
            (service.host.clone(), service.ports.clone())
        } else {
            let Some(port) = service.port(port) else { continue };
            (service.host.to_lowercase().into(), vec![port.clone()])
        };
        found.insert(host.clone(), Candidate { service: service.clone(), host, ports });
    }
    found
}

/// The VirtualServices that may have routes in the table: on port 80 all, else those with a host of some service.
fn selected<'a>(
    all: &'a List<VirtualService>,
    candidates: &Candidates,
    port: u32,
) -> impl Iterator<Item = &'a Arc<VirtualService>> {
    let wildcards: Vec<&Arc<str>> = candidates.keys().filter(|host| host::is_wildcard(host)).collect();
    let has_service = move |name: &String| {
        let name = name.to_lowercase();
        candidates.contains_key(name.as_str())
            || if host::is_wildcard(&name) {
                candidates.keys().any(|host| host::matches(&name, host))
            } else {
                wildcards.iter().any(|host| host::matches(&name, host))
            }
    };
    all.iter().filter(move |source| port == HTTP_PORT || source.spec.hosts.iter().any(&has_service))
}

fn of_virtual_service(
    ctx: &Ctx<'_>,
    view: &View,
    port: u32,
    source: &VirtualService,
    candidates: &Candidates,
    owners: &HostOwners<'_>,
) -> Vec<Group> {
    let known = |host: &str| candidates.get(host).map(Candidate::known);
    let site =
        Site { ctx, view, gateway: MESH, port, tls: false, http3: false, service: &known, fronted: None };
    let routes = Arc::new(route::http_routes(&site, source));
    if routes.is_empty() {
        return Vec::new();
    }
    let (hosts, services) = split_hosts(source, candidates, owners);
    if source.is_gateway_api() {
        // A route of the Gateway API is its consumer's or its producer's.
        let allowed = |service: &Candidate| {
            *service.service.namespace == *source.namespace() || *view.namespace == *source.namespace()
        };
        if !services.iter().any(allowed) {
            return Vec::new();
        }
    }
    let mut by_port: BTreeMap<u32, Vec<Candidate>> = BTreeMap::new();
    for service in services {
        for port in service.ports.iter().filter(|port| port.protocol.is_http_or_sniffed()) {
            by_port.entry(port.number).or_default().push(service.clone());
        }
    }
    if by_port.is_empty() && port == HTTP_PORT {
        by_port.insert(HTTP_PORT, Vec::new());
    }
    let group = |(port, services)| Group { port, services, hosts: hosts.clone(), routes: routes.clone() };
    by_port.into_iter().map(group).collect()
}

impl Candidate {
    fn known(&self) -> Known {
        let default_port = match &self.ports[..] {
            [only] => Some(only.number),
            _ => None,
        };
        Known { service: self.service.clone(), default_port }
    }
}

/// The hosts of a VirtualService that are no service's, and the services whose hosts it has.
fn split_hosts(
    source: &VirtualService,
    candidates: &Candidates,
    owners: &HostOwners<'_>,
) -> (Vec<String>, Vec<Candidate>) {
    let (mut hosts, mut services) = (Vec::new(), Vec::new());
    let (wildcards, exact): (Vec<_>, Vec<_>) =
        source.spec.hosts.iter().partition(|name| host::is_wildcard(name));
    for name in exact {
        match candidates.get(name.to_lowercase().as_str()) {
            Some(candidate) => services.push(candidate.clone()),
            None => hosts.push(name.clone()),
        }
    }
    for name in wildcards.into_iter().map(|name| name.to_lowercase()) {
        if source.is_gateway_api() {
            hosts.push(name);
            continue;
        }
        let mut covered =
            candidates.values().filter(|candidate| host::matches(&candidate.host, &name)).peekable();
        if covered.peek().is_none() {
            hosts.push(name.clone());
        }
        // A service is routed by the VirtualService that names it most narrowly.
        let owned = |candidate: &&Candidate| {
            owners.owner(&candidate.host).is_some_and(|owner| owner.origin == source.origin)
        };
        services.extend(covered.filter(owned).cloned());
    }
    (hosts, services)
}

/// The default route of a service.
fn of_service(
    ctx: &Ctx<'_>,
    view: &View,
    candidate: &Candidate,
    port: u32,
    default: &default::Outbound,
) -> Group {
    let cluster = names::outbound_cluster(&candidate.host, port, "");
    let rule = hash::rule(ctx, view, &candidate.host);
    let hash = rule.as_ref().and_then(|rule| hash::of_service(&rule.spec, port)).and_then(hash::policy);
    let routes = default.route(&cluster, names::operation(&candidate.host, port), hash);
    Group { port, services: vec![candidate.clone()], hosts: Vec::new(), routes: Arc::new(routes) }
}
