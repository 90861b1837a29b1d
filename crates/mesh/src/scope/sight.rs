//! The services of a scope: those that its listeners import, and those that the imported routes lead to.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_base::{FastMap, FastSet};
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE;

use super::imported::{Common, Import, ImportedRoutes, ImportedServices, RouteTargets};
use crate::service::{self, Service, ServicesByHost, VisibleServices, is_visible};
use crate::virtual_service::{self, VirtualService, VirtualServicesIn, destination_hosts, destinations};
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

/// What is seen, by who sees the same. Namespaces that see just what everybody sees share it.
pub(super) struct Sights;

impl Query for Sights {
    const NAME: &'static str = "services_in_sight";
    type Key = Outlook;
    type Value = Arc<Sight>;

    fn run(ctx: &Ctx<'_>, outlook: &Outlook) -> Arc<Sight> {
        if let Some(common) = common(ctx, outlook) {
            return common;
        }
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
        seen.into_sight()
    }
}

/// What everybody sees, if that is all there is to see.
fn common(ctx: &Ctx<'_>, outlook: &Outlook) -> Option<Arc<Sight>> {
    match outlook {
        Outlook::Gateways(namespace) => {
            let visible = ctx.get::<VisibleServices>(namespace);
            Arc::ptr_eq(visible.as_ref(), &service::public(ctx))
                .then(|| ctx.get::<CommonSight>(&Audience::Gateways).sight.clone())
        }
        Outlook::Unlimited(import) => {
            let services = ctx.get::<ImportedServices>(import);
            let routes = ctx.get::<ImportedRoutes>(&import.entries);
            let is_all = Arc::ptr_eq(services.as_ref(), &ctx.get::<Common>(&()).services)
                && Arc::ptr_eq(routes.as_ref(), &virtual_service::public_of_mesh(ctx));
            if !is_all {
                return None;
            }
            let sight = ctx.get::<CommonSight>(&Audience::Sidecars).sight.clone();
            let adds =
                |host: &Arc<str>| match (destination(ctx, import.importer(), host), sight.service(host)) {
                    (Some(service), Some(present)) => adds_to(present, &service),
                    (Some(_), None) => true,
                    (None, _) => false,
                };
            (!ctx.get::<StrayHosts>(&()).iter().any(adds)).then_some(sight)
        }
        Outlook::Limited(_) => None,
    }
}

/// Who looks at what everybody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Audience {
    Gateways,
    Sidecars,
}

/// What everybody sees, one service for each host.
#[derive(Clone, Debug, PartialEq)]
struct CommonView {
    sight: Arc<Sight>,
    /// The hosts that have several definitions.
    repeated: FastSet<Arc<str>>,
}

/// [`CommonView`] of each audience.
struct CommonSight;

impl Query for CommonSight {
    const NAME: &'static str = "common_services_in_sight";
    type Key = Audience;
    type Value = CommonView;

    fn run(ctx: &Ctx<'_>, audience: &Audience) -> CommonView {
        let mut seen = Seen::default();
        match audience {
            Audience::Gateways => seen.add_all(&service::public(ctx)),
            Audience::Sidecars => seen.add_all(&ctx.get::<Common>(&()).services),
        }
        CommonView { repeated: std::mem::take(&mut seen.repeated), sight: seen.into_sight() }
    }
}

/// The hosts that routes of the mesh lead to and that are not among the services everybody sees, or more than once.
struct StrayHosts;

impl Query for StrayHosts {
    const NAME: &'static str = "stray_hosts";
    type Key = ();
    type Value = BTreeSet<Arc<str>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let common = ctx.get::<CommonSight>(&Audience::Sidecars);
        let is_plain = |host: &str| common.sight.service(host).is_some() && !common.repeated.contains(host);
        let mut strays = BTreeSet::new();
        for namespace in virtual_service::namespaces(ctx) {
            let targets = ctx.get::<TargetsIn>(&namespace);
            strays.extend(targets.iter().filter(|host| !is_plain(host)).cloned());
        }
        strays
    }
}

/// The hosts that the routes of a namespace lead to: they stay the same when the routes change in other ways.
struct TargetsIn;

impl Query for TargetsIn {
    const NAME: &'static str = "route_targets_in";
    type Key = Arc<str>;
    type Value = BTreeSet<Arc<str>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let routes = ctx.get::<VirtualServicesIn>(namespace);
        routes.iter().flat_map(|route| destination_hosts(&route.spec)).map(Arc::from).collect()
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
        if !self.repeated.contains(&service.host) {
            self.repeated.insert(service.host.clone());
        }
        let present = &mut self.services[index];
        if !adds_to(present, service) {
            return;
        }
        if is_replaced(present, service) {
            *present = service.clone();
        } else {
            join_ports(present, service);
        }
    }

    /// Whether every host that a VirtualService sends to is there, and is defined once: adding it again adds nothing.
    fn has_all_of(&self, virtual_service: &VirtualService) -> bool {
        destination_hosts(&virtual_service.spec)
            .all(|host| self.by_host.contains_key(host) && !self.repeated.contains(host))
    }

    fn into_sight(self) -> Arc<Sight> {
        Arc::new(Sight { services: Arc::new(self.services), by_host: self.by_host })
    }
}

/// Whether another definition of a host changes what is there.
fn adds_to(present: &Arc<Service>, other: &Arc<Service>) -> bool {
    if Arc::ptr_eq(present, other) || (present.is_kubernetes() && !other.is_kubernetes()) {
        return false;
    }
    let has_more = || other.ports.iter().any(|port| present.port(port.number).is_none());
    is_replaced(present, other) || (are_one(present, other) && has_more())
}

/// Whether one of Kubernetes takes the place of what only claims its name.
fn is_replaced(present: &Service, other: &Service) -> bool {
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
fn are_one(a: &Service, b: &Service) -> bool {
    a.namespace == b.namespace
        && a.resolution == b.resolution
        && a.registry == b.registry
        && a.labels == b.labels
        && a.selector == b.selector
        && a.export_to == b.export_to
}
