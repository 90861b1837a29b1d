//! Virtual hosts of groups: every name and every domain once.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::FastSet;
use canopus_engine::Ctx;
use canopus_mesh::proxy::View;
use canopus_mesh::service::{NO_ADDRESS, Resolution, Service, address_for, addresses_for};
use canopus_mesh::world::settings;
use canopus_proto::Any;
use canopus_proto::envoy::config::route::v3::VirtualHost;
use canopus_runtime::flags::PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN;

use super::super::domains::{self, Ports};
use super::super::{Host, headers};
use super::groups::{Candidate, Group};
use crate::names;
use crate::route::session;

const HTTP_PORT: u32 = 80;

/// The virtual hosts of a table for one port, or for all ports if that is 0, and the names of those that lack a domain or
/// are not there at all because another has it.
pub(super) fn assemble(
    ctx: &Ctx<'_>,
    view: &View,
    port: u32,
    groups: Vec<Group>,
) -> (Vec<Host>, BTreeSet<String>) {
    let mut assembly = Assembly::new(ctx, view, port, &groups);
    let mut by_port: BTreeMap<u32, Vec<Host>> = BTreeMap::new();
    for group in groups.iter().filter(|group| !group.routes.is_empty()) {
        let hosts = by_port.entry(group.port).or_default();
        hosts.extend(group.hosts.iter().filter_map(|host| assembly.of_host(&host.to_lowercase(), group)));
        hosts.extend(group.services.iter().filter_map(|service| assembly.of_service(service, group)));
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
    ctx: &'a Ctx<'a>,
    view: &'a View,
    /// The port of the table; 0 for all.
    port: u32,
    counts_attempts: bool,
    absolute_names: bool,
    names: FastSet<String>,
    domains: FastSet<String>,
    /// The full names of all services, which no short name of another may take.
    full_names: FastSet<String>,
    /// Names of virtual hosts that wanted what another has.
    duplicates: BTreeSet<String>,
}

impl<'a> Assembly<'a> {
    fn new(ctx: &'a Ctx<'a>, view: &'a View, port: u32, groups: &[Group]) -> Self {
        let services =
            groups.iter().flat_map(|group| group.services.iter().map(|service| (service, group.port)));
        let full_names = services
            .flat_map(|(service, port)| [names::domain(&service.host, port), service.host.to_string()]);
        Self {
            ctx,
            view,
            port,
            counts_attempts: headers::counts_attempts(ctx, view),
            absolute_names: settings(ctx).flags.get(PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN),
            names: FastSet::default(),
            domains: FastSet::default(),
            full_names: full_names.collect(),
            duplicates: BTreeSet::new(),
        }
    }

    /// The virtual host of a host that is no service's.
    fn of_host(&mut self, host: &str, group: &Group) -> Option<Host> {
        let name = self.take_name(host, group.port)?;
        let ports = if self.view.is_proxyless() { Ports::Named(group.port) } else { Ports::Ignored };
        let domains = self.take_domains(&name, domains::with_port(host, ports), &[]);
        self.virtual_host(name, domains, group, None)
    }

    /// The virtual host of a service.
    fn of_service(&mut self, service: &Candidate, group: &Group) -> Option<Host> {
        let name = self.take_name(&service.host, group.port)?;
        let (domains, alternatives) = self.service_domains(service, group.port);
        let domains = self.take_domains(&name, domains, &alternatives);
        let session = session::per_route(self.ctx, &service.service);
        self.virtual_host(name, domains, group, session)
    }

    fn virtual_host(
        &self,
        name: String,
        domains: Vec<String>,
        group: &Group,
        session: Option<Any>,
    ) -> Option<Host> {
        let session = session.map(|config| (session::FILTER.to_owned(), config));
        let other = || VirtualHost {
            include_request_attempt_count: self.counts_attempts,
            typed_per_filter_config: session.into_iter().collect(),
            ..Default::default()
        };
        (!domains.is_empty()).then(|| Host::new(name, domains, &group.routes, &other()))
    }

    /// The name of a virtual host, unless another one has it.
    fn take_name(&mut self, host: &str, port: u32) -> Option<String> {
        let name = names::domain(host, port);
        if self.names.insert(name.clone()) {
            return Some(name);
        }
        self.duplicates.insert(name);
        None
    }

    /// Those domains that no virtual host has yet; Envoy refuses a table with a domain twice.
    fn take_domains(&mut self, name: &str, mut wanted: Vec<String>, alternatives: &[String]) -> Vec<String> {
        let all = wanted.len();
        wanted.retain(|domain| {
            let lower = domain.to_lowercase();
            let is_anothers = alternatives.contains(domain) && self.full_names.contains(domain);
            !self.domains.contains(&lower) && !is_anothers && self.domains.insert(lower)
        });
        if wanted.len() < all {
            self.duplicates.insert(name.to_owned());
        }
        wanted
    }

    /// Every name a service may be called by, and which of them are alternatives to its full name.
    fn service_domains(&self, candidate: &Candidate, port: u32) -> (Vec<String>, Vec<String>) {
        let service = &candidate.service;
        let by_port = self.port != 0 && !self.view.is_proxyless();
        let ports = if by_port { Ports::Ignored } else { Ports::Named(port) };
        let (mut domains, mut all_alternatives) = (Vec::new(), Vec::new());
        for host in std::iter::once(&candidate.host).chain(service.aliases.iter().map(|alias| &alias.host)) {
            let alternatives = domains::alternatives(host, ports, &self.view.domain, self.absolute_names);
            domains.extend(domains::with_port(host, ports));
            domains.extend(alternatives.iter().cloned());
            all_alternatives.extend(alternatives);
        }
        if service.resolution == Resolution::Passthrough && service.is_kubernetes() {
            // Pods of a headless service have names of their own below the service's.
            domains.extend(domains.clone().iter().map(|domain| format!("*.{domain}")));
        }
        let addresses = self.addresses(service);
        let addresses = addresses.iter().filter(|address| !address.is_empty() && *address != NO_ADDRESS);
        domains.extend(addresses.flat_map(|address| domains::with_port(address, ports)));
        (domains, all_alternatives)
    }

    fn addresses(&self, service: &Service) -> Vec<String> {
        let allocated = service.allocated_v4.is_some() || service.allocated_v6.is_some();
        if self.port != 0 && allocated {
            // Parity: in the table of one port, only the first of two allocated addresses is a name.
            return vec![address_for(self.ctx, service, self.view)];
        }
        addresses_for(self.ctx, service, self.view)
    }
}
