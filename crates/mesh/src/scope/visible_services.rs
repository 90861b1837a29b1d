//! The services of a scope: those that its listeners import, and those that the imported routes lead to.

use std::sync::{Arc, OnceLock};

use canopus_base::{FastMap, FastSet};
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE;

use super::host_filter::one_namespace_per_host;
use super::import::{Import, ImportedRouteTargets, ImportedRoutes, ImportedServices};
use super::public_services::{PublicServices, also_exported, public_service};
use super::unlisted_hosts::UnlistedHosts;
use crate::list::List;
use crate::service::{Service, ServicesByHost, ServicesVisibleTo, is_visible};
use crate::virtual_service::{VirtualService, destination_hosts, targets};
use crate::world::settings;

/// Who sees the same services. Sidecars of a namespace that import the same do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum VisibilityKey {
    /// Gateways and waypoints of a namespace.
    Gateways(Arc<str>),
    /// Sidecar proxies that import everything that their namespace may see.
    Unlimited(Import),
    /// Sidecar proxies with these egress listeners.
    Limited(Arc<[Import]>),
}

/// The services that are seen, one for each host.
#[derive(Debug, Default)]
pub(crate) struct VisibleServices {
    pub(super) services: List<Service>,
    /// Made when it is first asked for.
    by_host: OnceLock<FastMap<Arc<str>, Arc<Service>>>,
}

impl PartialEq for VisibleServices {
    fn eq(&self, other: &Self) -> bool {
        // The index follows from the services.
        self.services == other.services
    }
}

impl Eq for VisibleServices {}

impl From<List<Service>> for VisibleServices {
    fn from(services: List<Service>) -> Self {
        Self { services, by_host: OnceLock::new() }
    }
}

impl VisibleServices {
    pub(super) fn service(&self, host: &str) -> Option<&Arc<Service>> {
        let index = || self.services.iter().map(|service| (service.host.clone(), service.clone())).collect();
        self.by_host.get_or_init(index).get(host)
    }
}

/// What is seen, by who sees the same. Namespaces that see just what everybody sees share it.
pub(super) struct VisibleServicesFor;

impl Query for VisibleServicesFor {
    const NAME: &'static str = "visible_services_for";
    type Key = VisibilityKey;
    type Value = Arc<VisibleServices>;

    fn run(ctx: &Ctx<'_>, outlook: &VisibilityKey) -> Arc<VisibleServices> {
        public_services_with_exported(ctx, outlook)
            .unwrap_or_else(|| Arc::new(List::from(collect_services(ctx, outlook)).into()))
    }
}

/// What is seen, gathered from all that is imported.
pub(super) fn collect_services(ctx: &Ctx<'_>, outlook: &VisibilityKey) -> Vec<Arc<Service>> {
    let mut seen = ServiceSet::default();
    match outlook {
        VisibilityKey::Gateways(namespace) => seen.add_all(&*ctx.get::<ServicesVisibleTo>(namespace)),
        VisibilityKey::Unlimited(import) => add_everything(ctx, import, &mut seen),
        VisibilityKey::Limited(imports) => {
            for import in imports.iter() {
                add_imported(ctx, import, &mut seen);
            }
        }
    }
    seen.into_services()
}

/// What everybody sees and what is exported to the namespace besides, if that is all there is to see.
fn public_services_with_exported(ctx: &Ctx<'_>, outlook: &VisibilityKey) -> Option<Arc<VisibleServices>> {
    match outlook {
        VisibilityKey::Gateways(namespace) => {
            let besides = also_exported(ctx, namespace)?;
            Some(prepend(one_per_host(&besides), &ctx.get::<PublicServices>(&()).gateways))
        }
        VisibilityKey::Unlimited(import) => {
            let importer = import.importer();
            let (besides, common) = (also_exported(ctx, importer)?, ctx.get::<PublicServices>(&()));
            if common.shadowing_namespaces.contains(importer) {
                return None;
            }
            let besides = one_per_host(&one_namespace_per_host(besides.to_vec(), importer));
            let strays = ctx.get::<UnlistedHosts>(&());
            (!strays.iter().any(|host| route_adds_service(ctx, importer, host, &besides)))
                .then(|| prepend(besides, &common.sidecars))
        }
        VisibilityKey::Limited(_) => None,
    }
}

/// Whether a route to a host adds to what everybody sees and what is exported to the namespace besides.
fn route_adds_service(ctx: &Ctx<'_>, importer: &str, host: &Arc<str>, besides: &[Arc<Service>]) -> bool {
    let Some(service) = destination(ctx, importer, host) else { return false };
    let own = besides.iter().find(|service| service.host == *host).cloned();
    own.or_else(|| public_service(ctx, host)).is_none_or(|present| changes_definition(&present, &service))
}

/// What is seen with these services before the others.
fn prepend(first: Vec<Arc<Service>>, sight: &Arc<VisibleServices>) -> Arc<VisibleServices> {
    if first.is_empty() {
        return sight.clone();
    }
    Arc::new(List::prepend(Arc::new(first), &sight.services).into())
}

/// One service for each host.
fn one_per_host(services: &[Arc<Service>]) -> Vec<Arc<Service>> {
    let mut seen = ServiceSet::default();
    seen.add_all(services);
    seen.into_services()
}

fn add_imported(ctx: &Ctx<'_>, import: &Import, seen: &mut ServiceSet) {
    seen.add_all(&*ctx.get::<ImportedServices>(import));
    for (host, ports) in ctx.get::<ImportedRouteTargets>(&import.hosts).iter() {
        let service = destination(ctx, import.importer(), host);
        seen.add_route_target(service.and_then(|service| import.target(service, ports)));
    }
}

/// Where all services are there anyway, few routes lead to others.
fn add_everything(ctx: &Ctx<'_>, import: &Import, seen: &mut ServiceSet) {
    seen.add_all(&*ctx.get::<ImportedServices>(import));
    for route in ctx.get::<ImportedRoutes>(&import.hosts).iter() {
        if seen.has_all_destinations_of(route) {
            continue;
        }
        for (host, ports) in targets(&route.spec, import.importer()) {
            let service = destination(ctx, import.importer(), &host);
            seen.add_route_target(service.and_then(|service| import.target(service, &ports)));
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
pub(super) struct ServiceSet {
    services: Vec<Arc<Service>>,
    by_host: FastMap<Arc<str>, usize>,
    /// The hosts that were added more than once, or with the ports of a route: another route may add to them.
    repeated: FastSet<Arc<str>>,
}

impl ServiceSet {
    pub(super) fn add_all<'a>(&mut self, services: impl IntoIterator<Item = &'a Arc<Service>>) {
        services.into_iter().for_each(|service| self.add(service));
    }

    /// Adds what a route leads to.
    fn add_route_target(&mut self, service: Option<Arc<Service>>) {
        let Some(service) = service else { return };
        self.add(&service);
        self.repeated.insert(service.host.clone());
    }

    /// The first definition of a host stays, but one of Kubernetes takes its place; parts of one service are joined.
    fn add(&mut self, service: &Arc<Service>) {
        let Some(&index) = self.by_host.get(&service.host) else {
            self.by_host.insert(service.host.clone(), self.services.len());
            self.services.push(service.clone());
            return;
        };
        if !self.repeated.contains(&service.host) {
            self.repeated.insert(service.host.clone());
        }
        let present = &mut self.services[index];
        if !changes_definition(present, service) {
            return;
        }
        if is_superseded(present, service) {
            *present = service.clone();
        } else {
            join_ports(present, service);
        }
    }

    /// Whether every host that a VirtualService sends to is there, whole and defined once: adding it again adds nothing.
    fn has_all_destinations_of(&self, virtual_service: &VirtualService) -> bool {
        destination_hosts(&virtual_service.spec)
            .all(|host| self.by_host.contains_key(host) && !self.repeated.contains(host))
    }

    pub(super) fn into_services(self) -> Vec<Arc<Service>> {
        self.services
    }
}

/// Whether another definition of a host changes what is there.
fn changes_definition(present: &Arc<Service>, other: &Arc<Service>) -> bool {
    if Arc::ptr_eq(present, other) || (present.is_kubernetes() && !other.is_kubernetes()) {
        return false;
    }
    let has_more = || other.ports.iter().any(|port| present.port(port.number).is_none());
    is_superseded(present, other) || (are_same_service(present, other) && has_more())
}

/// Whether one of Kubernetes takes the place of what only claims its name.
fn is_superseded(present: &Service, other: &Service) -> bool {
    !present.is_kubernetes() && other.is_kubernetes()
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
fn are_same_service(a: &Service, b: &Service) -> bool {
    a.namespace == b.namespace
        && a.resolution == b.resolution
        && a.registry == b.registry
        && a.labels == b.labels
        && a.selector == b.selector
        && a.export_to == b.export_to
}
