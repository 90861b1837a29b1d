//! What a proxy sees: the services and routes its namespace may use, narrowed by the Sidecar that applies to it.

mod imports;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Sidecar;
use canopus_api::node::NodeKind;
use canopus_base::FastMap;
use canopus_base::host;
use canopus_base::labels::Labels;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use canopus_proto::istio::networking::v1alpha3::{
    ConnectionPoolSettings, IstioEgressListener, OutboundTrafficPolicy, Sidecar as SidecarSpec,
};
use canopus_runtime::flags::PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE;

use self::imports::Imports;
use crate::proxy::View;
use crate::service::{Service, ServicesByHost, VisibleServices, is_visible};
use crate::virtual_service::{self, MESH, VirtualService, destinations};
use crate::world::{Origin, Shelf, object, objects_on, oldest_first, settings};

/// What a proxy sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The namespace it is for.
    pub namespace: Arc<str>,
    /// The Sidecar that narrows it, if one does.
    pub sidecar: Option<Arc<Sidecar>>,
    /// What is imported, listener by listener; one without a port is the last.
    pub listeners: Vec<EgressListener>,
    /// All services of all listeners, one for each host.
    pub services: Vec<Arc<Service>>,
    /// What happens to traffic for hosts that are not seen.
    pub outbound_policy: OutboundTrafficPolicy,
    by_host: BTreeMap<Arc<str>, usize>,
}

/// What one egress listener imports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EgressListener {
    /// The listener as the Sidecar has it; `None` where no Sidecar says anything.
    pub written: Option<IstioEgressListener>,
    /// The services; a service may have only the ports that the listener has.
    pub services: Vec<Arc<Service>>,
    /// The VirtualServices, in the order in which they count.
    pub virtual_services: Vec<Arc<VirtualService>>,
}

impl EgressListener {
    /// The port it is for; `None` if it is for all ports.
    pub fn port(&self) -> Option<u32> {
        self.written.as_ref()?.port.as_ref().map(|port| port.number)
    }

    /// Whether it is a forward proxy, which is for all ports.
    pub fn is_http_proxy(&self) -> bool {
        let port = self.written.as_ref().and_then(|written| written.port.as_ref());
        port.is_some_and(|port| Protocol::parse(&port.protocol) == Protocol::HttpProxy)
    }

    /// Whether services count only with the port of the listener.
    fn matches_port(&self) -> bool {
        self.port().is_some_and(|number| number != 0) && !self.is_http_proxy()
    }
}

impl Scope {
    /// The service of a host.
    pub fn service(&self, host: &str) -> Option<&Arc<Service>> {
        self.by_host.get(host).map(|index| &self.services[*index])
    }

    /// The services whose hosts a name or wildcard covers.
    pub fn services_matching(&self, name: &str) -> Vec<&Arc<Service>> {
        if host::is_wildcard(name) {
            return self.services.iter().filter(|service| host::matches(name, &service.host)).collect();
        }
        self.service(name).into_iter().collect()
    }

    /// What the Sidecar says.
    pub fn spec(&self) -> Option<&SidecarSpec> {
        self.sidecar.as_ref().map(|sidecar| &sidecar.spec)
    }

    /// Whether the Sidecar lists what the proxy listens on for its workload.
    pub fn has_ingress(&self) -> bool {
        self.spec().is_some_and(|spec| !spec.ingress.is_empty())
    }

    /// The listener whose imports decide about a port, or about a socket if the port is 0.
    pub fn listener_for(&self, port: u32, bind: &str) -> Option<&EgressListener> {
        self.listeners.iter().find(|listener| {
            let written = listener.written.as_ref();
            match (listener.port(), written) {
                (None, _) => true,
                (Some(0), Some(written)) => port == 0 && written.bind == bind,
                (Some(own), _) => own == port,
            }
        })
    }

    /// The limits of connections to a port of the workload.
    pub fn inbound_connection_pool(&self, port: u32) -> Option<&ConnectionPoolSettings> {
        let spec = self.spec()?;
        let own = |number: u32| {
            let ingress =
                spec.ingress.iter().find(|i| i.port.as_ref().is_some_and(|p| p.number == number))?;
            ingress.connection_pool.as_ref()
        };
        own(port).or(spec.inbound_connection_pool.as_ref())
    }

    /// Whether traffic for hosts that are not seen is let through.
    pub fn allows_any(&self) -> bool {
        self.outbound_policy.mode() == Mode::AllowAny
    }
}

/// Who sees the same: proxies of one namespace under one Sidecar.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKey {
    /// Gateways and waypoints of a namespace, which no Sidecar narrows.
    Gateways(Arc<str>),
    /// Sidecar proxies of a namespace, and the Sidecar that applies to them.
    Sidecars(Arc<str>, Option<Origin>),
}

/// The scope of a view.
pub fn scope(ctx: &Ctx<'_>, view: &View) -> Arc<Scope> {
    ctx.get::<Scopes>(&scope_key(ctx, view))
}

/// The service that a host means in the scope of a view. Unlike [`scope`], this depends on that service alone.
pub fn scoped_service(ctx: &Ctx<'_>, view: &View, host: &str) -> Option<Arc<Service>> {
    ctx.get::<ScopedService>(&(scope_key(ctx, view), host.into())).as_ref().clone()
}

/// One service of a scope, by host.
struct ScopedService;

impl Query for ScopedService {
    const NAME: &'static str = "scoped_service";
    type Key = (ScopeKey, Arc<str>);
    type Value = Option<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, (scope, host): &Self::Key) -> Self::Value {
        ctx.get::<Scopes>(scope).service(host).cloned()
    }
}

fn scope_key(ctx: &Ctx<'_>, view: &View) -> ScopeKey {
    if view.kind != NodeKind::Sidecar {
        return ScopeKey::Gateways(view.namespace.clone());
    }
    ScopeKey::Sidecars(view.namespace.clone(), sidecar_for(ctx, &view.namespace, &view.labels))
}

/// The Sidecar that narrows the scope of a view; only sidecar proxies have one.
pub(crate) fn sidecar_of(ctx: &Ctx<'_>, view: &View) -> Option<Origin> {
    match scope_key(ctx, view) {
        ScopeKey::Sidecars(_, sidecar) => sidecar,
        ScopeKey::Gateways(_) => None,
    }
}

/// The Sidecar of a workload: the oldest that selects it, else the oldest without selector, else that of the root
/// namespace.
fn sidecar_for(ctx: &Ctx<'_>, namespace: &str, labels: &Labels) -> Option<Origin> {
    let of_namespace = sidecars_in(ctx, namespace);
    let selects = |sidecar: &Sidecar| {
        let selector = sidecar.spec.workload_selector.as_ref()?;
        Some(selector.labels.iter().all(|(key, value)| labels.get(key) == Some(value)))
    };
    let selecting = of_namespace.iter().find(|(_, sidecar)| selects(sidecar) == Some(true));
    let general = of_namespace.iter().find(|(_, sidecar)| selects(sidecar).is_none());
    if let Some((origin, _)) = selecting.or(general) {
        return Some(origin.clone());
    }
    let root = sidecars_in(ctx, settings(ctx).root_namespace());
    root.into_iter().find(|(_, sidecar)| sidecar.spec.workload_selector.is_none()).map(|(origin, _)| origin)
}

fn sidecars_in(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<Sidecar>)> {
    let mut sidecars = objects_on::<Sidecar>(ctx, &Shelf::Namespace(Kind::Sidecar, namespace.into()));
    oldest_first(&mut sidecars);
    sidecars
}

/// All scopes, by who shares them.
pub struct Scopes;

impl Query for Scopes {
    const NAME: &'static str = "scopes";
    type Key = ScopeKey;
    type Value = Scope;

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> Scope {
        match key {
            ScopeKey::Gateways(namespace) => of_gateways(ctx, namespace),
            ScopeKey::Sidecars(namespace, origin) => {
                let sidecar = origin.as_ref().and_then(|origin| object::<Sidecar>(ctx, origin));
                of_sidecars(ctx, namespace, sidecar)
            }
        }
    }
}

fn of_gateways(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Scope {
    let mut seen = Seen::default();
    for service in ctx.get::<VisibleServices>(namespace).iter() {
        seen.add(service.clone());
    }
    let virtual_services = virtual_service::for_gateway(ctx, namespace, MESH);
    let listener = EgressListener { virtual_services, ..EgressListener::default() };
    seen.into_scope(ctx, namespace, None, vec![listener])
}

fn of_sidecars(ctx: &Ctx<'_>, namespace: &Arc<str>, sidecar: Option<Arc<Sidecar>>) -> Scope {
    let written = sidecar.as_ref().map(|sidecar| sidecar.spec.egress.clone()).unwrap_or_default();
    let everything = IstioEgressListener { hosts: vec!["*/*".to_owned()], ..Default::default() };
    let written = if written.is_empty() { vec![everything] } else { written };
    let mut listeners = Vec::with_capacity(written.len());
    for written in written {
        listeners.push(import(ctx, namespace, written));
    }
    let mut seen = Seen::default();
    for listener in &listeners {
        for service in &listener.services {
            seen.add(service.clone());
        }
        for virtual_service in &listener.virtual_services {
            for (host, ports) in destinations(&virtual_service.spec, Some(namespace)) {
                let Some(service) = destination(ctx, namespace, &host) else { continue };
                let trimmed = if listener.matches_port() {
                    with_ports(&service, |port| Some(port) == listener.port())
                } else if ports.is_empty() || ports.contains(&0) {
                    Some(service)
                } else {
                    with_ports(&service, |port| ports.contains(&port))
                };
                trimmed.into_iter().for_each(|service| seen.add(service));
            }
        }
    }
    seen.into_scope(ctx, namespace, sidecar, listeners)
}

/// What an egress listener imports.
fn import(ctx: &Ctx<'_>, namespace: &Arc<str>, written: IstioEgressListener) -> EgressListener {
    let imports = Imports::new(&written.hosts, namespace);
    let mut listener = EgressListener { written: Some(written), ..EgressListener::default() };
    listener.virtual_services = imports.virtual_services(virtual_service::for_sidecars(ctx, namespace));
    let visible = match imports.all_named() {
        Some(named) => named_services(ctx, namespace, named),
        None => ctx.get::<VisibleServices>(namespace).to_vec(),
    };
    let trim = |service: Arc<Service>| {
        if listener.matches_port() {
            with_ports(&service, |port| Some(port) == listener.port())
        } else {
            Some(service)
        }
    };
    listener.services = imports.services(&visible, trim);
    listener
}

/// The visible services of namespaces and hosts, oldest first. Parity: of a service at several addresses only the first
/// counts where it is imported by name.
fn named_services(ctx: &Ctx<'_>, namespace: &str, named: Vec<(&str, &str)>) -> Vec<Arc<Service>> {
    let owned = |(owner, host): (&str, &str)| ctx.get::<ServicesByHost>(&host.into()).get(owner).cloned();
    let mut services: Vec<_> = named.into_iter().filter_map(owned).collect();
    services.retain(|service| is_visible(ctx, service, namespace));
    services.sort_by(|a, b| (a.created, &a.name, &a.namespace).cmp(&(b.created, &b.name, &b.namespace)));
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
}

impl Seen {
    /// The first definition of a host stays, but one of Kubernetes takes its place; parts of one service are joined.
    fn add(&mut self, service: Arc<Service>) {
        let Some(&index) = self.by_host.get(&service.host) else {
            self.by_host.insert(service.host.clone(), self.services.len());
            self.services.push(service);
            return;
        };
        let present = &mut self.services[index];
        if Arc::ptr_eq(present, &service) || (present.is_kubernetes() && !service.is_kubernetes()) {
            return;
        }
        if !present.is_kubernetes() && service.is_kubernetes() {
            *present = service;
        } else if present.ports != service.ports && are_one(present, &service) {
            let joined = Arc::make_mut(present);
            for port in &service.ports {
                if joined.ports.iter().all(|own| own.number != port.number) {
                    joined.ports.push(port.clone());
                }
            }
        }
    }

    fn into_scope(
        self,
        ctx: &Ctx<'_>,
        namespace: &Arc<str>,
        sidecar: Option<Arc<Sidecar>>,
        listeners: Vec<EgressListener>,
    ) -> Scope {
        let said = sidecar.as_ref().and_then(|sidecar| sidecar.spec.outbound_traffic_policy.clone());
        let of_mesh = || {
            let policy = settings(ctx).mesh.outbound_traffic_policy.clone()?;
            Some(OutboundTrafficPolicy { mode: policy.mode, ..Default::default() })
        };
        Scope {
            namespace: namespace.clone(),
            listeners,
            services: self.services,
            outbound_policy: said.or_else(of_mesh).unwrap_or_default(),
            by_host: self.by_host.into_iter().collect(),
            sidecar,
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
