//! What a proxy sees: the services and routes its namespace may use, narrowed by the Sidecar that applies to it.

mod imports;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Sidecar;
use canopus_api::node::NodeKind;
use canopus_base::host;
use canopus_base::labels::Labels;
use canopus_base::protocol::Protocol;
use canopus_base::{FastMap, FastSet};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use canopus_proto::istio::networking::v1alpha3::{
    ConnectionPoolSettings, IstioEgressListener, OutboundTrafficPolicy, Sidecar as SidecarSpec,
};
use canopus_runtime::flags::PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE;

use self::imports::Imports;
use crate::proxy::View;
use crate::service::{self, Definitions, Service, ServicesByHost, VisibleServices, is_visible, visible_in};
use crate::virtual_service::{self, MESH, VirtualService, destination_hosts, destinations};
use crate::world::{Origin, Shelf, object, objects_on, oldest_first, settings};

/// What a proxy sees.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// What does not depend on which services and routes there are.
    pub terms: Arc<Terms>,
    /// What is imported, listener by listener; one without a port is the last.
    pub listeners: Vec<EgressListener>,
    /// All services of all listeners, one for each host.
    pub services: Vec<Arc<Service>>,
    by_host: FastMap<Arc<str>, usize>,
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        // The index follows from the services.
        self.terms == other.terms && self.services == other.services && self.listeners == other.listeners
    }
}

impl Deref for Scope {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

/// What of a scope does not depend on which services and routes there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// The namespace it is for.
    pub namespace: Arc<str>,
    /// The Sidecar that narrows it, if one does.
    pub sidecar: Option<Arc<Sidecar>>,
    /// What happens to traffic for hosts that are not seen.
    pub outbound_policy: OutboundTrafficPolicy,
    /// Whether everything is imported that the namespace may see, with all its ports.
    pub is_unlimited: bool,
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
}

impl Terms {
    /// What the Sidecar says.
    pub fn spec(&self) -> Option<&SidecarSpec> {
        self.sidecar.as_ref().map(|sidecar| &sidecar.spec)
    }

    /// Whether the Sidecar lists what the proxy listens on for its workload.
    pub fn has_ingress(&self) -> bool {
        self.spec().is_some_and(|spec| !spec.ingress.is_empty())
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

impl ScopeKey {
    fn namespace(&self) -> &Arc<str> {
        match self {
            Self::Gateways(namespace) | Self::Sidecars(namespace, _) => namespace,
        }
    }
}

/// The scope of a view. It changes with every service and route in it: see the functions below for parts of it.
pub fn scope(ctx: &Ctx<'_>, view: &View) -> Arc<Scope> {
    ctx.get::<Scopes>(&ctx.get::<ScopeOf>(view))
}

/// What of the scope of a view does not depend on services and routes.
pub fn terms(ctx: &Ctx<'_>, view: &View) -> Arc<Terms> {
    ctx.get::<TermsOf>(&ctx.get::<ScopeOf>(view))
}

/// The services of the scope of a view, one for each host.
pub fn services(ctx: &Ctx<'_>, view: &View) -> Arc<Vec<Arc<Service>>> {
    ctx.get::<ScopedServices>(&ctx.get::<ScopeOf>(view))
}

/// The service that a host means in the scope of a view. Unlike [`scope`], this depends on that service alone.
pub fn scoped_service(ctx: &Ctx<'_>, view: &View, host: &str) -> Option<Arc<Service>> {
    ctx.get::<ScopedService>(&(ctx.get::<ScopeOf>(view).as_ref().clone(), host.into())).as_ref().clone()
}

/// One service of a scope, by host.
struct ScopedService;

impl Query for ScopedService {
    const NAME: &'static str = "scoped_service";
    type Key = (ScopeKey, Arc<str>);
    type Value = Option<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, (scope, host): &Self::Key) -> Self::Value {
        // Where nothing is left out, a host with one definition means that one, whatever else there is.
        if ctx.get::<TermsOf>(scope).is_unlimited {
            match &ctx.get::<Definitions>(host)[..] {
                [] => return None,
                [only] if is_visible(ctx, only, scope.namespace()) => return Some(only.clone()),
                _ => {}
            }
        }
        ctx.get::<Scopes>(scope).service(host).cloned()
    }
}

/// All services of a scope.
struct ScopedServices;

impl Query for ScopedServices {
    const NAME: &'static str = "scoped_services";
    type Key = ScopeKey;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, scope: &ScopeKey) -> Self::Value {
        ctx.get::<Scopes>(scope).services.clone()
    }
}

/// Whose scope a view has.
struct ScopeOf;

impl Query for ScopeOf {
    const NAME: &'static str = "scope_of";
    type Key = View;
    type Value = ScopeKey;

    fn run(ctx: &Ctx<'_>, view: &View) -> ScopeKey {
        if view.kind != NodeKind::Sidecar {
            return ScopeKey::Gateways(view.namespace.clone());
        }
        ScopeKey::Sidecars(view.namespace.clone(), sidecar_for(ctx, &view.namespace, &view.labels))
    }
}

/// The Sidecar that narrows the scope of a view; only sidecar proxies have one.
pub(crate) fn sidecar_of(ctx: &Ctx<'_>, view: &View) -> Option<Origin> {
    match ctx.get::<ScopeOf>(view).as_ref() {
        ScopeKey::Sidecars(_, sidecar) => sidecar.clone(),
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
        let terms = ctx.get::<TermsOf>(key);
        match key {
            ScopeKey::Gateways(_) => of_gateways(ctx, terms),
            ScopeKey::Sidecars(..) => of_sidecars(ctx, terms),
        }
    }
}

/// [`Terms`] of all scopes.
struct TermsOf;

impl Query for TermsOf {
    const NAME: &'static str = "scope_terms";
    type Key = ScopeKey;
    type Value = Terms;

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> Terms {
        let sidecar = match key {
            ScopeKey::Sidecars(_, Some(origin)) => object::<Sidecar>(ctx, origin),
            _ => None,
        };
        let said = sidecar.as_ref().and_then(|sidecar| sidecar.spec.outbound_traffic_policy.clone());
        let of_mesh = || {
            let policy = settings(ctx).mesh.outbound_traffic_policy.clone()?;
            Some(OutboundTrafficPolicy { mode: policy.mode, ..Default::default() })
        };
        Terms {
            namespace: key.namespace().clone(),
            outbound_policy: said.or_else(of_mesh).unwrap_or_default(),
            is_unlimited: match sidecar.as_ref().map_or(&[][..], |sidecar| &sidecar.spec.egress) {
                [] => true,
                [only] => only.port.is_none() && only.hosts == [EVERYTHING],
                _ => false,
            },
            sidecar,
        }
    }
}

/// The entry of an egress listener that leaves nothing out.
const EVERYTHING: &str = "*/*";

fn of_gateways(ctx: &Ctx<'_>, terms: Arc<Terms>) -> Scope {
    let mut seen = Seen::default();
    for service in ctx.get::<VisibleServices>(&terms.namespace).iter() {
        seen.add(service.clone());
    }
    let virtual_services = virtual_service::for_gateway(ctx, &terms.namespace, MESH);
    let listener = EgressListener { virtual_services, ..EgressListener::default() };
    seen.into_scope(terms, vec![listener])
}

fn of_sidecars(ctx: &Ctx<'_>, terms: Arc<Terms>) -> Scope {
    let namespace = &terms.namespace;
    let written = terms.spec().map(|spec| spec.egress.clone()).unwrap_or_default();
    let everything = IstioEgressListener { hosts: vec![EVERYTHING.to_owned()], ..Default::default() };
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
            if terms.is_unlimited && seen.has_all_of(virtual_service) {
                continue;
            }
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
    seen.into_scope(terms, listeners)
}

/// What an egress listener imports.
fn import(ctx: &Ctx<'_>, namespace: &Arc<str>, written: IstioEgressListener) -> EgressListener {
    let imports = Imports::new(&written.hosts, namespace);
    let mut listener = EgressListener { written: Some(written), ..EgressListener::default() };
    let owners = imports.namespaces();
    let routes = virtual_service::for_sidecars(ctx, namespace, owners.as_deref());
    listener.virtual_services = imports.virtual_services(routes);
    let visible = match (imports.all_named(), owners) {
        (Some(named), _) => named_services(ctx, namespace, named),
        (None, Some(owners)) => visible_in(ctx, namespace, &owners),
        (None, None) => ctx.get::<VisibleServices>(namespace).to_vec(),
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
    /// The first definition of a host stays, but one of Kubernetes takes its place; parts of one service are joined.
    fn add(&mut self, service: Arc<Service>) {
        let Some(&index) = self.by_host.get(&service.host) else {
            self.by_host.insert(service.host.clone(), self.services.len());
            self.services.push(service);
            return;
        };
        self.repeated.insert(service.host.clone());
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

    /// Whether every host that a VirtualService sends to is there, and is defined once: adding it again adds nothing.
    fn has_all_of(&self, virtual_service: &VirtualService) -> bool {
        destination_hosts(&virtual_service.spec)
            .all(|host| self.by_host.contains_key(host) && !self.repeated.contains(host))
    }

    fn into_scope(self, terms: Arc<Terms>, listeners: Vec<EgressListener>) -> Scope {
        Scope { terms, listeners, services: self.services, by_host: self.by_host }
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
