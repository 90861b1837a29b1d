//! The services of a scope: those that its listeners import, and those that the imported routes lead to.

use std::sync::Arc;

use canopus_base::{FastMap, FastSet};
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE;

use super::imported::{Import, ImportedRoutes, ImportedServices, RouteTargets};
use crate::service::{Service, ServicesByHost, VisibleServices, is_visible};
use crate::virtual_service::{VirtualService, destination_hosts, destinations};
use crate::world::settings;

/// Who sees the same services. Sidecars of a namespace that import the same do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Outlook {
    /// Gateways and waypoints of a namespace.
    Gateways(Arc<str>),
    /// Sidecar proxies that import everything that their namespace may see.
    Unlimited(Import),
    /// Sidecar proxies with these egress listeners.
    Limited(Arc<[Import]>),
}

/// The services that are seen, one for each host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    pub(super) services: Arc<Vec<Arc<Service>>>,
    by_host: FastMap<Arc<str>, usize>,
}

impl PartialEq for Sight {
    fn eq(&self, other: &Self) -> bool {
        // The index follows from the services.
        self.services == other.services
    }
}

impl Eq for Sight {}

impl Sight {
    pub(super) fn service(&self, host: &str) -> Option<&Arc<Service>> {
        self.by_host.get(host).map(|index| &self.services[*index])
    }
}

/// What is seen, by who sees the same.
pub(super) struct Sights;

impl Query for Sights {
    const NAME: &'static str = "services_in_sight";
    type Key = Outlook;
    type Value = Sight;

    fn run(ctx: &Ctx<'_>, outlook: &Outlook) -> Sight {
        let mut seen = Seen::default();
        match outlook {
            Outlook::Gateways(namespace) => seen.add_all(&ctx.get::<VisibleServices>(namespace)),
            Outlook::Unlimited(import) => add_everything(ctx, import, &mut seen),
            Outlook::Limited(imports) => {
                for import in imports.iter() {
                    add_imported(ctx, import, &mut seen);
                }
            }
        }
        Sight { services: Arc::new(seen.services), by_host: seen.by_host }
    }
}

fn add_imported(ctx: &Ctx<'_>, import: &Import, seen: &mut Seen) {
    seen.add_all(&ctx.get::<ImportedServices>(import));
    for (host, ports) in ctx.get::<RouteTargets>(&import.entries).iter() {
        let service = destination(ctx, import.importer(), host);
        seen.extend(service.and_then(|service| import.target(service, ports)));
    }
}

/// Where all services are there anyway, few routes lead to others.
fn add_everything(ctx: &Ctx<'_>, import: &Import, seen: &mut Seen) {
    seen.add_all(&ctx.get::<ImportedServices>(import));
    for route in ctx.get::<ImportedRoutes>(&import.entries).iter() {
        if seen.has_all_of(route) {
            continue;
        }
        for (host, ports) in destinations(&route.spec, Some(import.importer())) {
            let service = destination(ctx, import.importer(), &host);
            seen.extend(service.and_then(|service| import.target(service, &ports)));
        }
    }
}

/// The service that a VirtualService seen in `namespace` means by a host: one of that namespace, else a visible one.
fn destination(ctx: &Ctx<'_>, namespace: &str, host: &str) -> Option<Arc<Service>> {
    let by_namespace = ctx.get::<ServicesByHost>(&Arc::from(host));
    if let Some(own) = by_namespace.get(namespace) {
        return Some(own.clone());
    }
    let mut visible = by_namespace.values().filter(|service| is_visible(ctx, service, namespace));
    if !settings(ctx).flags.get(PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE) {
        return visible.next().cloned();
    }
    visible.min_by_key(|service| (!service.is_kubernetes(), service.created)).cloned()
}

/// Services as they are added: one for each host.
#[derive(Default)]
struct Seen {
    services: Vec<Arc<Service>>,
    by_host: FastMap<Arc<str>, usize>,
    /// The hosts that were added more than once.
    repeated: FastSet<Arc<str>>,
}

impl Seen {
    fn add_all(&mut self, services: &[Arc<Service>]) {
        self.services.reserve(services.len());
        self.by_host.reserve(services.len());
        services.iter().for_each(|service| self.add(service));
    }

    fn extend(&mut self, service: Option<Arc<Service>>) {
        service.iter().for_each(|service| self.add(service));
    }

    /// The first definition of a host stays, but one of Kubernetes takes its place; parts of one service are joined.
    fn add(&mut self, service: &Arc<Service>) {
        let Some(&index) = self.by_host.get(&service.host) else {
            self.by_host.insert(service.host.clone(), self.services.len());
            self.services.push(service.clone());
            return;
        };
        let present = &mut self.services[index];
        if !self.repeated.contains(&service.host) {
            self.repeated.insert(service.host.clone());
        }
        if Arc::ptr_eq(present, service) || (present.is_kubernetes() && !service.is_kubernetes()) {
            return;
        }
        if !present.is_kubernetes() && service.is_kubernetes() {
            *present = service.clone();
        } else if are_one(present, service) {
            join_ports(present, service);
        }
    }

    /// Whether every host that a VirtualService sends to is there, and is defined once: adding it again adds nothing.
    fn has_all_of(&self, virtual_service: &VirtualService) -> bool {
        destination_hosts(&virtual_service.spec)
            .all(|host| self.by_host.contains_key(host) && !self.repeated.contains(host))
    }
}

/// Adds the ports that only another part of a service has.
fn join_ports(service: &mut Arc<Service>, other: &Service) {
    for port in &other.ports {
        if service.port(port.number).is_none() {
            Arc::make_mut(service).ports.push(port.clone());
        }
    }
}

/// Whether two definitions of a host are parts of the same service.
fn are_one(a: &Service, b: &Service) -> bool {
    a.namespace == b.namespace
        && a.resolution == b.resolution
        && a.registry == b.registry
        && a.labels == b.labels
        && a.selector == b.selector
        && a.export_to == b.export_to
}
