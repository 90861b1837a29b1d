//! What egress listeners import. Listeners of one namespace that ask for the same share it, whatever Sidecar they are of.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use super::host_filter::{HostFilter, one_namespace_per_host};
use super::public_services::{PublicServices, also_exported};
use crate::list::List;
use crate::service::{self, Service, ServicesByHost, ServicesVisibleTo, is_visible, visible_in};
use crate::virtual_service::{self, VirtualService, targets};

/// What an egress listener asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Import {
    /// Where routes and services may come from.
    pub(super) hosts: EgressHosts,
    /// The port that services count with, if not with all.
    pub(super) port: Option<u32>,
}

/// The `namespace/name` entries of an egress listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EgressHosts {
    /// The namespace that imports.
    pub(super) importer: Arc<str>,
    pub(super) patterns: Arc<[String]>,
}

impl EgressHosts {
    fn parse(&self) -> HostFilter {
        HostFilter::new(&self.patterns, &self.importer)
    }
}

impl Import {
    pub(super) fn importer(&self) -> &Arc<str> {
        &self.hosts.importer
    }

    /// A service as the listener has it; `None` if it has nothing of it.
    fn trim(&self, service: Arc<Service>) -> Option<Arc<Service>> {
        match self.port {
            Some(wanted) => with_ports(&service, |port| port == wanted),
            None => Some(service),
        }
    }

    /// The service that a route leads to, with the ports that it leads to.
    pub(super) fn target(&self, service: Arc<Service>, ports: &[u32]) -> Option<Arc<Service>> {
        if self.port.is_some() {
            self.trim(service)
        } else if ports.is_empty() {
            Some(service)
        } else {
            with_ports(&service, |port| ports.contains(&port))
        }
    }
}

/// The VirtualServices that entries let in, in the order in which they count. Namespaces that import everything and see
/// just what everybody sees share the list.
pub(super) struct ImportedRoutes;

impl Query for ImportedRoutes {
    const NAME: &'static str = "imported_routes";
    type Key = EgressHosts;
    type Value = List<VirtualService>;

    fn run(ctx: &Ctx<'_>, entries: &EgressHosts) -> Self::Value {
        let imports = entries.parse();
        match imports.namespaces() {
            Some(owners) => {
                let offered = virtual_service::for_sidecars_from(ctx, &entries.importer, &owners);
                imports.virtual_services(&offered).into()
            }
            None => {
                let offered = virtual_service::for_sidecars(ctx, &entries.importer);
                if imports.is_everything() { offered } else { imports.virtual_services(&offered).into() }
            }
        }
    }
}

/// Where the routes that entries let in lead to, in their order: it stays as it is when they change in other ways.
pub(super) struct ImportedRouteTargets;

impl Query for ImportedRouteTargets {
    const NAME: &'static str = "imported_route_targets";
    type Key = EgressHosts;
    /// Hosts with the ports of theirs that are meant, which are all where none is named.
    type Value = Vec<(Box<str>, Vec<u32>)>;

    fn run(ctx: &Ctx<'_>, entries: &EgressHosts) -> Self::Value {
        let routes = ctx.get::<ImportedRoutes>(entries);
        routes.iter().flat_map(|route| targets(&route.spec, &entries.importer)).collect()
    }
}

/// The services that an egress listener imports, with the ports that it imports.
pub(super) struct ImportedServices;

impl Query for ImportedServices {
    const NAME: &'static str = "imported_services";
    type Key = Import;
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, import: &Import) -> Self::Value {
        let (imports, importer) = (import.hosts.parse(), import.importer());
        let trim = |service| import.trim(service);
        let services = match (imports.all_named(), imports.namespaces()) {
            (Some(named), _) => imports.services(&named_services(ctx, importer, named), trim),
            (None, Some(owners)) => imports.services(&visible_in(ctx, importer, &owners), trim),
            (None, None) if imports.is_everything() && import.port.is_none() => {
                return everything(ctx, importer);
            }
            (None, None) => imports.services(&*ctx.get::<ServicesVisibleTo>(importer), trim),
        };
        services.into()
    }
}

/// All services that a namespace sees, those of one namespace for each host.
fn everything(ctx: &Ctx<'_>, importer: &Arc<str>) -> List<Service> {
    if let Some(besides) = also_exported(ctx, importer) {
        let common = ctx.get::<PublicServices>(&());
        if !common.shadowing_namespaces.contains(importer) {
            let besides = one_namespace_per_host(besides.to_vec(), importer);
            return List::prepend(Arc::new(besides), &common.imported);
        }
    }
    let visible = ctx.get::<ServicesVisibleTo>(importer).to_vec();
    one_namespace_per_host(visible, importer).into()
}

/// The visible services of namespaces and hosts, oldest first. Parity: of a service at several addresses only the first
/// counts where it is imported by name.
fn named_services(ctx: &Ctx<'_>, namespace: &str, named: Vec<(&str, &str)>) -> Vec<Arc<Service>> {
    let owned = |(owner, host): (&str, &str)| ctx.get::<ServicesByHost>(&host.into()).get(owner).cloned();
    let mut services: Vec<_> = named.into_iter().filter_map(owned).collect();
    services.retain(|service| is_visible(ctx, service, namespace));
    service::oldest_first(&mut services);
    services
}

/// The service with those of its ports that are wanted; `None` if none is.
fn with_ports(service: &Arc<Service>, wanted: impl Fn(u32) -> bool) -> Option<Arc<Service>> {
    let ports: Vec<_> = service.ports.iter().filter(|port| wanted(port.number)).cloned().collect();
    match ports.len() {
        0 => None,
        all if all == service.ports.len() => Some(service.clone()),
        _ => Some(Arc::new(Service { ports, ..Service::clone(service) })),
    }
}
