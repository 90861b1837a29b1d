//! Virtual hosts of groups: every name and every domain once.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_base::FastSet;
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::service::{NO_ADDRESS, Resolution, Service, known_address, known_addresses};
use canopus_runtime::flags::PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN;

use super::super::domains::{Forms, Ports};
use super::super::{Host, Traits};
use super::groups::{Candidate, Group, Groups};
use super::{SidecarTables, lower_case};
use crate::names;
use crate::route::upstream_headers;
use crate::route::{RouteList, default, hash, session};

const HTTP_PORT: u32 = 80;

/// The virtual hosts of a table for one port, or for all ports if that is 0, and the names of those that lack a domain or
/// are not there at all because another has it.
pub(super) fn assemble(
    place: &SidecarTables<'_>,
    port: u32,
    groups: &Groups<'_>,
) -> (Vec<Host>, BTreeSet<String>) {
    let mut assembly = Assembly::new(place, port, groups);
    let mut by_port: BTreeMap<u32, Vec<Host>> = BTreeMap::new();
    for group in &groups.routed {
        let hosts = by_port.entry(group.port).or_default();
        hosts.extend(group.hosts.iter().filter_map(|host| assembly.host(&host.to_lowercase(), group)));
        let of_service = |service: &&Candidate<'_>| assembly.service_host(service, group.port, Some(group));
        hosts.extend(group.services.iter().filter_map(of_service));
    }
    for (service, port) in &groups.rest {
        let host = assembly.service_host(service, *port, None);
        by_port.entry(*port).or_default().extend(host);
    }
    let hosts = if port == 0 { all_ports(by_port) } else { by_port.remove(&port).unwrap_or_default() };
    (hosts, assembly.duplicates)
}

/// Without a port, a request means port 80.
fn all_ports(by_port: BTreeMap<u32, Vec<Host>>) -> Vec<Host> {
    let mut all = Vec::new();
    for (port, mut hosts) in by_port {
        if port != HTTP_PORT {
            hosts.iter_mut().for_each(|host| host.domains.retain(|domain| domain.contains(':')));
            hosts.retain(|host| !host.domains.is_empty());
        }
        all.extend(hosts);
    }
    all
}

/// What the virtual hosts of a table so far have taken.
struct Assembly<'a> {
    place: &'a SidecarTables<'a>,
    /// The port of the table; 0 for all.
    port: u32,
    counts_attempts: bool,
    default: default::Outbound,
    forms: Forms<'a>,
    /// Domains that the virtual host in the making would like to have, and which of them are alternatives to a full name.
    wanted: Vec<(Arc<str>, bool)>,
    names: FastSet<Arc<str>>,
    /// In lower case.
    domains: FastSet<Arc<str>>,
    /// The full names of all services, which no short name of another may take.
    full_names: FastSet<Arc<str>>,
    /// Names of virtual hosts that wanted what another has.
    duplicates: BTreeSet<String>,
}

impl<'a> Assembly<'a> {
    fn new(place: &'a SidecarTables<'a>, port: u32, groups: &Groups<'_>) -> Self {
        let absolute_names = place.settings.flags.get(PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN);
        let mut assembly = Self {
            place,
            port,
            counts_attempts: upstream_headers::counts_attempts(&place.audience.config),
            default: default::Outbound::new(place.settings),
            forms: Forms::new(&place.audience.domain, absolute_names),
            wanted: Vec::new(),
            names: FastSet::default(),
            domains: FastSet::default(),
            full_names: groups.services().map(|(service, _)| service.host.clone()).collect(),
            duplicates: BTreeSet::new(),
        };
        if assembly.names_ports() {
            let named = groups.services().map(|(service, port)| names::domain(&service.host, port).into());
            assembly.full_names.extend(named);
        }
        assembly
    }

    /// Whether domains are told apart by their ports.
    fn names_ports(&self) -> bool {
        self.port == 0 || self.place.audience.proxyless
    }

    /// The virtual host of a host that is no service's.
    fn host(&mut self, host: &str, group: &Group<'_>) -> Option<Host> {
        let name = self.take_name(host, group.port)?;
        let ports = if self.place.audience.proxyless { Ports::Named(group.port) } else { Ports::Ignored };
        let wanted = &mut self.wanted;
        self.forms.with_port(&[host], ports, &mut |form| wanted.push((form.into(), false)));
        let domains = self.take_domains(&name);
        let traits = Traits { counts_attempts: self.counts_attempts, ..Traits::default() };
        (!domains.is_empty()).then(|| Host::new(name, domains, &group.routes, &traits))
    }

    /// The virtual host of a service, with the routes of its group or that to the service itself.
    fn service_host(
        &mut self,
        service: &Candidate<'_>,
        port: u32,
        group: Option<&Group<'_>>,
    ) -> Option<Host> {
        let name = self.take_name(&service.host, port)?;
        self.want_domains(service, port);
        let domains = self.take_domains(&name);
        if domains.is_empty() {
            return None;
        }
        let traits = Traits {
            counts_attempts: self.counts_attempts,
            session: session::per_route(self.place.settings, service.service),
            ..Traits::default()
        };
        Some(match group {
            Some(group) => Host::new(name, domains, &group.routes, &traits),
            None => Host::with_own_routes(name, domains, self.default_route(service, port), &traits),
        })
    }

    /// The route to a service that nobody wrote routes for.
    fn default_route(&self, service: &Candidate<'_>, port: u32) -> RouteList {
        let SidecarTables { ctx, audience, scope, .. } = *self.place;
        let rule =
            scope.service(&service.host).and_then(|seen| outbound_rule(ctx, &audience.caller, &seen.key()));
        let hash = rule.as_ref().and_then(|rule| hash::for_service(&rule.spec, port)).and_then(hash::policy);
        let mut digits = itoa::Buffer::new();
        let port = digits.format(port);
        let cluster = ["outbound|", port, "||", &service.host];
        let operation = [&*names::bracketed(&service.host), ":", port, "/*"];
        self.default.route(&cluster, &operation, hash)
    }

    /// The name of a virtual host, unless another one has it.
    fn take_name(&mut self, host: &str, port: u32) -> Option<Arc<str>> {
        let name = names::domain(host, port);
        if self.names.contains(name.as_str()) {
            self.duplicates.insert(name);
            return None;
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        Some(name)
    }

    /// Takes the wanted domains that no virtual host has yet; Envoy rejects a table with a domain twice.
    fn take_domains(&mut self, name: &str) -> Vec<Arc<str>> {
        let mut taken = Vec::with_capacity(self.wanted.len());
        for (domain, _) in &self.wanted {
            let is_alternative = || self.wanted.iter().any(|(other, short)| *short && other == domain);
            let is_anothers = self.full_names.contains(domain) && is_alternative();
            if !is_anothers && self.domains.insert(lower_case(domain)) {
                taken.push(domain.clone());
            }
        }
        if taken.len() < self.wanted.len() {
            self.duplicates.insert(name.to_owned());
        }
        self.wanted.clear();
        taken
    }

    /// Asks for every name a service may be called by.
    fn want_domains(&mut self, candidate: &Candidate<'_>, port: u32) {
        let service = candidate.service;
        let ports = if self.names_ports() { Ports::Named(port) } else { Ports::Ignored };
        let wanted = &mut self.wanted;
        for host in std::iter::once(&candidate.host).chain(service.aliases.iter().map(|alias| &alias.host)) {
            self.forms.with_port(&[host], ports, &mut |form| {
                let domain = if *form == **host { host.clone() } else { form.into() };
                wanted.push((domain, false));
            });
            self.forms.alternatives(host, ports, &mut |form| wanted.push((form.into(), true)));
        }
        if service.resolution == Resolution::Passthrough && service.is_kubernetes() {
            // Pods of a headless service have names of their own below the service's.
            for at in 0..wanted.len() {
                wanted.push((["*.", &*wanted[at].0].concat().into(), false));
            }
        }
        let addresses = addresses(self.place, self.port, service);
        for address in addresses.iter().filter(|address| !address.is_empty() && *address != NO_ADDRESS) {
            self.forms.with_port(&[address], ports, &mut |form| wanted.push((form.into(), false)));
        }
    }
}

fn addresses<'a>(place: &SidecarTables<'_>, port: u32, service: &'a Service) -> Cow<'a, [String]> {
    let allocated = service.allocated_v4.is_some() || service.allocated_v6.is_some();
    if port != 0 && allocated {
        // Parity: in the table of one port, only the first of two allocated addresses is a name.
        return Cow::Owned(vec![known_address(service, &place.audience.addressing).to_owned()]);
    }
    known_addresses(place.settings, service, &place.audience.addressing)
}
