//! Which services and hosts share which routes.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use canopus_base::host;
use canopus_mesh::list::List;
use canopus_mesh::scope::EgressListener;
use canopus_mesh::service::{Port, Resolution, Service};
use canopus_mesh::virtual_service::{HostOwners, MESH, VirtualService};

use super::{SidecarTables, lower_case};
use crate::route::{self, Known, RouteList, Site};

/// The port on which VirtualServices also route hosts that are no service's.
const HTTP_PORT: u32 = 80;

/// A service as one table has it.
pub(super) struct Candidate<'a> {
    pub(super) service: &'a Arc<Service>,
    /// Host name, in lower case where the table is for one port.
    pub(super) host: Arc<str>,
    /// The port of the table, or all ports.
    ports: &'a [Port],
}

impl Candidate<'_> {
    fn known(&self) -> Known {
        let default_port = match self.ports {
            [only] => Some(only.number),
            _ => None,
        };
        Known { service: self.service.clone(), default_port }
    }

    /// The ports on which it may take requests.
    fn http_ports(&self) -> impl Iterator<Item = u32> {
        self.ports.iter().filter(|port| port.protocol.is_http_or_sniffed()).map(|port| port.number)
    }
}

/// The services of a table, one for each host.
pub(super) struct Candidates<'a>(Vec<Candidate<'a>>);

impl<'a> Candidates<'a> {
    /// The services with a port; of several for one host the last counts.
    pub(super) fn new(services: &'a List<Service>, port: u32) -> Self {
        let mut found: Vec<_> = services.iter().filter_map(|service| candidate(service, port)).collect();
        found.sort_by(|a, b| a.host.cmp(&b.host));
        found.dedup_by(|later, earlier| {
            let same = later.host == earlier.host;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self(found)
    }

    fn position(&self, host: &str) -> Option<usize> {
        self.0.binary_search_by(|candidate| (*candidate.host).cmp(host)).ok()
    }

    fn get(&self, host: &str) -> Option<&Candidate<'a>> {
        self.position(host).map(|at| &self.0[at])
    }
}

fn candidate(service: &Arc<Service>, port: u32) -> Option<Candidate<'_>> {
    if port == 0 {
        return Some(Candidate { service, host: service.host.clone(), ports: &service.ports });
    }
    let ports = slice::from_ref(service.port(port)?);
    Some(Candidate { service, host: lower_case(&service.host), ports })
}

/// Hosts that have the same routes on a port.
pub(super) struct Group<'a> {
    pub(super) port: u32,
    pub(super) services: Vec<&'a Candidate<'a>>,
    /// Hosts that are no service's.
    pub(super) hosts: Vec<String>,
    pub(super) routes: Arc<RouteList>,
}

/// What an egress listener has routes for.
pub(super) struct Groups<'a> {
    /// What VirtualServices route, in their order.
    pub(super) routed: Vec<Group<'a>>,
    /// The services left over, each with the ports it takes requests on.
    pub(super) rest: Vec<(&'a Candidate<'a>, u32)>,
}

impl<'a> Groups<'a> {
    /// Groups for a table of one port, or of all ports if `port` is 0.
    pub(super) fn new(
        place: &SidecarTables<'_>,
        listener: &EgressListener,
        port: u32,
        candidates: &'a Candidates<'a>,
    ) -> Self {
        let owners = LazyCell::new(|| HostOwners::new(&listener.virtual_services));
        let owns = |source: &VirtualService, host: &str| {
            owners.owner(host).is_some_and(|owner| owner.origin == source.origin)
        };
        let mut routed = Vec::new();
        for source in selected(&listener.virtual_services, candidates, port) {
            routed.extend(virtual_service_groups(place, port, source, candidates, &owns));
        }
        let mut is_routed = vec![false; candidates.0.len()];
        for service in routed.iter().flat_map(|group: &Group<'_>| &group.services) {
            if let Some(at) = candidates.position(&service.host) {
                is_routed[at] = true;
            }
        }
        // An alias of a service has no routes of its own: the service's virtual host answers to it.
        let rest =
            candidates.0.iter().zip(is_routed).filter(|(candidate, is_routed)| {
                !is_routed && candidate.service.resolution != Resolution::Alias
            });
        let rest = rest.flat_map(|(candidate, _)| candidate.http_ports().map(move |port| (candidate, port)));
        Self { routed, rest: rest.collect() }
    }

    /// Every service that has routes, and the port that they are for.
    pub(super) fn services(&self) -> impl Iterator<Item = (&'a Candidate<'a>, u32)> {
        let routed = self.routed.iter();
        let routed = routed.flat_map(|group| group.services.iter().map(|service| (*service, group.port)));
        routed.chain(self.rest.iter().copied())
    }
}

/// The VirtualServices that may have routes in the table: on port 80 all, else those with a host of some service.
fn selected<'a>(
    all: &'a List<VirtualService>,
    candidates: &Candidates<'_>,
    port: u32,
) -> impl Iterator<Item = &'a Arc<VirtualService>> {
    let hosts = || candidates.0.iter().map(|candidate| &candidate.host);
    let wildcards: Vec<&Arc<str>> = hosts().filter(|host| host::is_wildcard(host)).collect();
    let has_service = move |name: &String| {
        let name = name.to_lowercase();
        candidates.position(&name).is_some()
            || if host::is_wildcard(&name) {
                hosts().any(|host| host::matches(&name, host))
            } else {
                wildcards.iter().any(|host| host::matches(&name, host))
            }
    };
    all.iter().filter(move |source| port == HTTP_PORT || source.spec.hosts.iter().any(&has_service))
}

fn virtual_service_groups<'a>(
    place: &SidecarTables<'_>,
    port: u32,
    source: &VirtualService,
    candidates: &'a Candidates<'a>,
    owns: &impl Fn(&VirtualService, &str) -> bool,
) -> Vec<Group<'a>> {
    let SidecarTables { ctx, audience, scope, settings } = *place;
    let known = |host: &Arc<str>| candidates.get(host).map(Candidate::known);
    let site = Site {
        ctx,
        audience,
        settings,
        gateway: MESH,
        port,
        tls: false,
        http3: false,
        service: &known,
        scoped: &|host| scope.service(host).cloned(),
        fronted: None,
    };
    let routes = Arc::new(route::http_routes(&site, source));
    if routes.is_empty() {
        return Vec::new();
    }
    let (hosts, services) = split_hosts(source, candidates, owns);
    if source.is_gateway_api() {
        // A route of the Gateway API is its consumer's or its producer's.
        let allowed = |service: &&Candidate<'_>| {
            *service.service.namespace == *source.namespace()
                || *audience.caller.namespace == *source.namespace()
        };
        if !services.iter().any(allowed) {
            return Vec::new();
        }
    }
    let mut by_port: BTreeMap<u32, Vec<&Candidate<'_>>> = BTreeMap::new();
    for service in services {
        service.http_ports().for_each(|port| by_port.entry(port).or_default().push(service));
    }
    if by_port.is_empty() && port == HTTP_PORT {
        by_port.insert(HTTP_PORT, Vec::new());
    }
    let group = |(port, services)| Group { port, services, hosts: hosts.clone(), routes: routes.clone() };
    by_port.into_iter().map(group).collect()
}

/// The hosts of a VirtualService that are no service's, and the services whose hosts it has.
fn split_hosts<'a>(
    source: &VirtualService,
    candidates: &'a Candidates<'a>,
    owns: &impl Fn(&VirtualService, &str) -> bool,
) -> (Vec<String>, Vec<&'a Candidate<'a>>) {
    let (mut hosts, mut services) = (Vec::new(), Vec::new());
    let all = || source.spec.hosts.iter();
    for name in all().filter(|name| !host::is_wildcard(name)) {
        match candidates.get(&name.to_lowercase()) {
            Some(candidate) => services.push(candidate),
            None => hosts.push(name.clone()),
        }
    }
    for name in all().filter(|name| host::is_wildcard(name)).map(|name| name.to_lowercase()) {
        if source.is_gateway_api() {
            hosts.push(name);
            continue;
        }
        let mut covered =
            candidates.0.iter().filter(|candidate| host::matches(&candidate.host, &name)).peekable();
        if covered.peek().is_none() {
            hosts.push(name.clone());
        }
        // A service is routed by the VirtualService that names it most narrowly.
        services.extend(covered.filter(|candidate| owns(source, &candidate.host)));
    }
    (hosts, services)
}
