//! The services of a scope: those that its egress listeners import, and those that imported routes send to.
//!
//! Of each host there is one service. The first definition wins, a Kubernetes Service replaces a ServiceEntry of the same host,
//! and several definitions of one service are merged by adding their ports. See [`scope`](super) for the fast path.

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

/// Identifies a set of visible services. Sidecars of one namespace with equal egress imports share a key, so the set is
/// computed once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum VisibilityKey {
    /// Gateways and waypoints of a namespace.
    Gateways(Arc<str>),
    /// Sidecar proxies that import everything that their namespace may see.
    Unlimited(Import),
    /// Sidecar proxies with these egress listeners.
    Limited(Arc<[Import]>),
}

/// The services of a scope, one for each host.
#[derive(Debug, Default)]
pub(crate) struct VisibleServices {
    pub(super) services: List<Service>,
    /// Built on the first lookup.
    by_host: OnceLock<FastMap<Arc<str>, Arc<Service>>>,
}

impl PartialEq for VisibleServices {
    fn eq(&self, other: &Self) -> bool {
        // The index is derived from the services.
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

/// The visible services of a key. Namespaces that see exactly the public services share the value.
pub(super) struct VisibleServicesFor;

impl Query for VisibleServicesFor {
    const NAME: &'static str = "visible_services_for";
    type Key = VisibilityKey;
    type Value = Arc<VisibleServices>;

    fn run(ctx: &Ctx<'_>, key: &VisibilityKey) -> Arc<VisibleServices> {
        public_services_with_exported(ctx, key)
            .unwrap_or_else(|| Arc::new(List::from(collect_services(ctx, key)).into()))
    }
}

/// Collects the visible services from all imports.
pub(super) fn collect_services(ctx: &Ctx<'_>, key: &VisibilityKey) -> Vec<Arc<Service>> {
    let mut set = ServiceSet::default();
    match key {
        VisibilityKey::Gateways(namespace) => set.add_all(&*ctx.get::<ServicesVisibleTo>(namespace)),
        VisibilityKey::Unlimited(import) => add_everything(ctx, import, &mut set),
        VisibilityKey::Limited(imports) => {
            for import in imports.iter() {
                add_imported(ctx, import, &mut set);
            }
        }
    }
    set.into_services()
}

/// The fast path: the public services with those exported by name in front. Returns `None` if collecting might give another
/// result.
fn public_services_with_exported(ctx: &Ctx<'_>, key: &VisibilityKey) -> Option<Arc<VisibleServices>> {
    match key {
        VisibilityKey::Gateways(namespace) => {
            let exported = also_exported(ctx, namespace)?;
            Some(prepend(one_per_host(&exported), &ctx.get::<PublicServices>(&()).gateways))
        }
        VisibilityKey::Unlimited(import) => {
            let importer = import.importer();
            let (exported, public) = (also_exported(ctx, importer)?, ctx.get::<PublicServices>(&()));
            if public.shadowing_namespaces.contains(importer) {
                return None;
            }
            let exported = one_per_host(&one_namespace_per_host(exported.to_vec(), importer));
            let unlisted = ctx.get::<UnlistedHosts>(&());
            (!unlisted.iter().any(|host| route_adds_service(ctx, importer, host, &exported)))
                .then(|| prepend(exported, &public.sidecars))
        }
        VisibilityKey::Limited(_) => None,
    }
}

/// Whether a route to a host would add a service, or change one, in the list of the fast path.
fn route_adds_service(ctx: &Ctx<'_>, importer: &str, host: &Arc<str>, exported: &[Arc<Service>]) -> bool {
    let Some(service) = destination(ctx, importer, host) else { return false };
    let own = exported.iter().find(|service| service.host == *host).cloned();
    own.or_else(|| public_service(ctx, host)).is_none_or(|present| changes_definition(&present, &service))
}

/// Puts services in front of the visible ones.
fn prepend(first: Vec<Arc<Service>>, visible: &Arc<VisibleServices>) -> Arc<VisibleServices> {
    if first.is_empty() {
        return visible.clone();
    }
    Arc::new(List::prepend(Arc::new(first), &visible.services).into())
}

/// Merges services into one for each host.
fn one_per_host(services: &[Arc<Service>]) -> Vec<Arc<Service>> {
    let mut set = ServiceSet::default();
    set.add_all(services);
    set.into_services()
}

fn add_imported(ctx: &Ctx<'_>, import: &Import, set: &mut ServiceSet) {
    set.add_all(&*ctx.get::<ImportedServices>(import));
    for (host, ports) in ctx.get::<ImportedRouteTargets>(&import.hosts).iter() {
        let service = destination(ctx, import.importer(), host);
        set.add_route_target(service.and_then(|service| import.target(service, ports)));
    }
}

/// Adds what an unlimited import has. All public services are in already, so few routes add to them.
fn add_everything(ctx: &Ctx<'_>, import: &Import, set: &mut ServiceSet) {
    set.add_all(&*ctx.get::<ImportedServices>(import));
    for route in ctx.get::<ImportedRoutes>(&import.hosts).iter() {
        if set.has_all_destinations_of(route) {
            continue;
        }
        for (host, ports) in targets(&route.spec, import.importer()) {
            let service = destination(ctx, import.importer(), &host);
            set.add_route_target(service.and_then(|service| import.target(service, &ports)));
        }
    }
}

/// Resolves the destination host of a VirtualService for an importing namespace: its own service, else a visible one.
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

/// Collects services, one for each host.
#[derive(Default)]
pub(super) struct ServiceSet {
    services: Vec<Arc<Service>>,
    by_host: FastMap<Arc<str>, usize>,
    /// The hosts that were added more than once or as the target of a route. Another route may still add ports to them.
    repeated: FastSet<Arc<str>>,
}

impl ServiceSet {
    pub(super) fn add_all<'a>(&mut self, services: impl IntoIterator<Item = &'a Arc<Service>>) {
        services.into_iter().for_each(|service| self.add(service));
    }

    /// Adds the service that a route sends to.
    fn add_route_target(&mut self, service: Option<Arc<Service>>) {
        let Some(service) = service else { return };
        self.add(&service);
        self.repeated.insert(service.host.clone());
    }

    /// Adds a definition. The first of a host stays, unless a Kubernetes Service replaces it; definitions of one service are
    /// merged.
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

    /// Whether every destination host is in the set, complete and defined once, so that the route adds nothing.
    fn has_all_destinations_of(&self, virtual_service: &VirtualService) -> bool {
        destination_hosts(&virtual_service.spec)
            .all(|host| self.by_host.contains_key(host) && !self.repeated.contains(host))
    }

    pub(super) fn into_services(self) -> Vec<Arc<Service>> {
        self.services
    }
}

/// Whether another definition of a host changes the present one.
fn changes_definition(present: &Arc<Service>, other: &Arc<Service>) -> bool {
    if Arc::ptr_eq(present, other) || (present.is_kubernetes() && !other.is_kubernetes()) {
        return false;
    }
    let has_more = || other.ports.iter().any(|port| present.port(port.number).is_none());
    is_superseded(present, other) || (are_same_service(present, other) && has_more())
}

/// Whether a Kubernetes Service replaces a ServiceEntry of the same host.
fn is_superseded(present: &Service, other: &Service) -> bool {
    !present.is_kubernetes() && other.is_kubernetes()
}

/// Adds the ports that only the other definition has.
fn join_ports(service: &mut Arc<Service>, other: &Service) {
    for port in &other.ports {
        if service.port(port.number).is_none() {
            Arc::make_mut(service).ports.push(port.clone());
        }
    }
}

/// Whether two definitions of a host describe the same service and may be merged.
fn are_same_service(a: &Service, b: &Service) -> bool {
    a.namespace == b.namespace
        && a.resolution == b.resolution
        && a.registry == b.registry
        && a.labels == b.labels
        && a.selector == b.selector
        && a.export_to == b.export_to
}
