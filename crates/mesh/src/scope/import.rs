//! What egress listeners import. Listeners of one namespace with equal hosts and port share it, across Sidecars.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use super::host_filter::{HostFilter, one_namespace_per_host};
use super::public_services::{PublicServices, also_exported};
use crate::list::List;
use crate::service::{self, Service, ServicesByHost, ServicesVisibleTo, is_visible, visible_in};
use crate::virtual_service::{self, VirtualService, targets};

/// The import of an egress listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Import {
    /// The hosts that are imported.
    pub(super) hosts: EgressHosts,
    /// The port that services are reduced to; `None` keeps all ports.
    pub(super) port: Option<u32>,
}

/// The `namespace/name` entries of an egress listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EgressHosts {
    /// The importing namespace.
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

    /// Reduces a service to the ports of the listener. Returns `None` if no port is left.
    fn trim(&self, service: Arc<Service>) -> Option<Arc<Service>> {
        match self.port {
            Some(wanted) => with_ports(&service, |port| port == wanted),
            None => Some(service),
        }
    }

    /// Reduces the target of a route to the ports that the route sends to.
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

/// The VirtualServices that a listener imports, those that take precedence first. Namespaces that import everything and see
/// exactly the public ones share the list.
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

/// The destinations of the imported routes, in order. They change less often than the routes do.
pub(super) struct ImportedRouteTargets;

impl Query for ImportedRouteTargets {
    const NAME: &'static str = "imported_route_targets";
    type Key = EgressHosts;
    /// Hosts with the ports that routes send to; no ports means all.
    type Value = Vec<(Box<str>, Vec<u32>)>;

    fn run(ctx: &Ctx<'_>, entries: &EgressHosts) -> Self::Value {
        let routes = ctx.get::<ImportedRoutes>(entries);
        routes.iter().flat_map(|route| targets(&route.spec, &entries.importer)).collect()
    }
}

/// The services that an egress listener imports, reduced to its port.
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

/// All services that a namespace may see: of each host, the definitions of one namespace.
fn everything(ctx: &Ctx<'_>, importer: &Arc<str>) -> List<Service> {
    if let Some(exported) = also_exported(ctx, importer) {
        let public = ctx.get::<PublicServices>(&());
        if !public.shadowing_namespaces.contains(importer) {
            let exported = one_namespace_per_host(exported.to_vec(), importer);
            return List::prepend(Arc::new(exported), &public.imported);
        }
    }
    let visible = ctx.get::<ServicesVisibleTo>(importer).to_vec();
    one_namespace_per_host(visible, importer).into()
}

/// The visible services with these namespaces and hosts, oldest first. Parity: of a service with several addresses, only the
/// first is imported by name.
fn named_services(ctx: &Ctx<'_>, namespace: &str, named: Vec<(&str, &str)>) -> Vec<Arc<Service>> {
    let owned = |(owner, host): (&str, &str)| ctx.get::<ServicesByHost>(&host.into()).get(owner).cloned();
    let mut services: Vec<_> = named.into_iter().filter_map(owned).collect();
    services.retain(|service| is_visible(ctx, service, namespace));
    service::oldest_first(&mut services);
    services
}

/// Reduces a service to the wanted ports. Returns `None` if no port is left.
fn with_ports(service: &Arc<Service>, wanted: impl Fn(u32) -> bool) -> Option<Arc<Service>> {
    let ports: Vec<_> = service.ports.iter().filter(|port| wanted(port.number)).cloned().collect();
    match ports.len() {
        0 => None,
        all if all == service.ports.len() => Some(service.clone()),
        _ => Some(Arc::new(Service { ports, ..Service::clone(service) })),
    }
}
