//! What a proxy sees: the services and routes its namespace may use, narrowed by the Sidecar that applies to it.

mod choice;
mod host_filter;
mod import;
mod public_services;
#[cfg(test)]
mod tests;
mod unlisted_hosts;
mod visible_services;

use std::ops::Deref;
use std::sync::Arc;

use canopus_api::istio::Sidecar;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use canopus_proto::istio::networking::v1alpha3::{
    ConnectionPoolSettings, IstioEgressListener, OutboundTrafficPolicy, Sidecar as SidecarSpec,
};

use self::import::{EgressHosts, Import, ImportedRoutes, ImportedServices};
use self::visible_services::{VisibilityKey, VisibleServices, VisibleServicesFor};
use crate::list::List;
use crate::service::{HostDefinitions, Service, is_visible};
use crate::virtual_service::{self, VirtualService};
use crate::world::{Origin, object, settings};

pub(crate) use self::choice::choose;

/// What a proxy sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// What does not depend on which services and routes there are.
    pub settings: Arc<ScopeSettings>,
    /// What is imported, listener by listener; one without a port is the last.
    pub listeners: Vec<EgressListener>,
    visible: Arc<VisibleServices>,
}

impl Deref for Scope {
    type Target = ScopeSettings;

    fn deref(&self) -> &ScopeSettings {
        &self.settings
    }
}

/// What of a scope does not depend on which services and routes there are.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeSettings {
    /// The namespace it is for.
    pub namespace: Arc<str>,
    /// The Sidecar that narrows it, if one does.
    pub sidecar: Option<Arc<Sidecar>>,
    /// What happens to traffic for hosts that are not seen.
    pub outbound_policy: OutboundTrafficPolicy,
    /// Whether everything is imported that the namespace may see, with all its ports.
    pub is_unlimited: bool,
    /// The egress listeners, and what each imports; none for gateways.
    egress: Vec<(Arc<IstioEgressListener>, Import)>,
    visibility_key: VisibilityKey,
}

/// What one egress listener imports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EgressListener {
    /// The listener as the Sidecar has it; `None` for gateways.
    pub written: Option<Arc<IstioEgressListener>>,
    /// The services; a service may have only the ports that the listener has.
    pub services: List<Service>,
    /// The VirtualServices, in the order in which they count.
    pub virtual_services: List<VirtualService>,
}

impl EgressListener {
    /// The port it is for; `None` if it is for all ports.
    pub fn port(&self) -> Option<u32> {
        self.written.as_ref()?.port.as_ref().map(|port| port.number)
    }

    /// Whether it is a forward proxy, which is for all ports.
    pub fn is_http_proxy(&self) -> bool {
        self.written.as_ref().is_some_and(|written| is_http_proxy(written))
    }
}

fn is_http_proxy(written: &IstioEgressListener) -> bool {
    written.port.as_ref().is_some_and(|port| Protocol::parse(&port.protocol) == Protocol::HttpProxy)
}

impl Scope {
    /// All services of all listeners, one for each host.
    pub fn services(&self) -> &List<Service> {
        &self.visible.services
    }

    /// The service of a host.
    pub fn service(&self, host: &str) -> Option<&Arc<Service>> {
        self.visible.service(host)
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

impl ScopeSettings {
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

    /// The Sidecar that narrows the scope; only sidecar proxies have one.
    pub(crate) fn sidecar(&self) -> Option<&Origin> {
        match self {
            Self::Sidecars(_, sidecar) => sidecar.as_ref(),
            Self::Gateways(_) => None,
        }
    }
}

/// A scope. It changes with every service and route in it: see the functions below for parts of it.
pub fn scope(ctx: &Ctx<'_>, key: &ScopeKey) -> Arc<Scope> {
    ctx.get::<Scopes>(key)
}

/// What of a scope does not depend on services and routes.
pub fn scope_settings(ctx: &Ctx<'_>, key: &ScopeKey) -> Arc<ScopeSettings> {
    ctx.get::<ScopeSettingsFor>(key)
}

/// The services of a scope, one for each host.
pub fn services(ctx: &Ctx<'_>, key: &ScopeKey) -> List<Service> {
    ctx.get::<VisibleServicesFor>(&scope_settings(ctx, key).visibility_key).services.clone()
}

/// The service that a host means in a scope. Unlike [`scope`], this depends on that service alone.
pub fn scoped_service(ctx: &Ctx<'_>, key: &ScopeKey, host: &str) -> Option<Arc<Service>> {
    service_in(ctx, key, &host.into())
}

/// The same as [`scoped_service`], where many hosts are looked up.
pub fn service_in(ctx: &Ctx<'_>, scope: &ScopeKey, host: &Arc<str>) -> Option<Arc<Service>> {
    ctx.get::<ScopedService>(&(scope.clone(), host.clone())).as_ref().clone()
}

/// One service of a scope, by host.
struct ScopedService;

impl Query for ScopedService {
    const NAME: &'static str = "scoped_service";
    type Key = (ScopeKey, Arc<str>);
    type Value = Option<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, (scope, host): &Self::Key) -> Self::Value {
        // Where nothing is left out, a host with one definition means that one, whatever else there is.
        let terms = ctx.get::<ScopeSettingsFor>(scope);
        if terms.is_unlimited {
            match &ctx.get::<HostDefinitions>(host)[..] {
                [] => return None,
                [only] if is_visible(ctx, only, scope.namespace()) => return Some(only.clone()),
                _ => {}
            }
        }
        ctx.get::<VisibleServicesFor>(&terms.visibility_key).service(host).cloned()
    }
}

/// All scopes, by who shares them.
pub struct Scopes;

impl Query for Scopes {
    const NAME: &'static str = "scopes";
    type Key = ScopeKey;
    type Value = Scope;

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> Scope {
        let terms = ctx.get::<ScopeSettingsFor>(key);
        let listeners = match key {
            ScopeKey::Gateways(namespace) => vec![EgressListener {
                virtual_services: virtual_service::mesh_routes_for_gateways(ctx, namespace),
                ..EgressListener::default()
            }],
            ScopeKey::Sidecars(..) => terms.egress.iter().map(|egress| listener(ctx, egress)).collect(),
        };
        Scope {
            listeners,
            visible: ctx.get::<VisibleServicesFor>(&terms.visibility_key).as_ref().clone(),
            settings: terms,
        }
    }
}

fn listener(ctx: &Ctx<'_>, (written, import): &(Arc<IstioEgressListener>, Import)) -> EgressListener {
    EgressListener {
        written: Some(written.clone()),
        services: ctx.get::<ImportedServices>(import).as_ref().clone(),
        virtual_services: ctx.get::<ImportedRoutes>(&import.hosts).as_ref().clone(),
    }
}

/// [`Terms`] of all scopes.
struct ScopeSettingsFor;

impl Query for ScopeSettingsFor {
    const NAME: &'static str = "scope_settings";
    type Key = ScopeKey;
    type Value = ScopeSettings;

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> ScopeSettings {
        let sidecar = match key {
            ScopeKey::Sidecars(_, Some(origin)) => object::<Sidecar>(ctx, origin),
            _ => None,
        };
        let said = sidecar.as_ref().and_then(|sidecar| sidecar.spec.outbound_traffic_policy.clone());
        let of_mesh = || {
            let policy = settings(ctx).mesh.outbound_traffic_policy.clone()?;
            Some(OutboundTrafficPolicy { mode: policy.mode, ..Default::default() })
        };
        let egress = match key {
            ScopeKey::Gateways(_) => Vec::new(),
            ScopeKey::Sidecars(namespace, _) => egress(sidecar.as_deref(), namespace),
        };
        let is_unlimited = match &egress[..] {
            [] => true,
            [(only, _)] => only.port.is_none() && only.hosts == [EVERYTHING],
            _ => false,
        };
        let outlook = match &egress[..] {
            [] => VisibilityKey::Gateways(key.namespace().clone()),
            [(_, import)] if is_unlimited => VisibilityKey::Unlimited(import.clone()),
            all => VisibilityKey::Limited(all.iter().map(|(_, import)| import.clone()).collect()),
        };
        ScopeSettings {
            namespace: key.namespace().clone(),
            outbound_policy: said.or_else(of_mesh).unwrap_or_default(),
            is_unlimited,
            sidecar,
            egress,
            visibility_key: outlook,
        }
    }
}

/// The entry of an egress listener that leaves nothing out.
const EVERYTHING: &str = "*/*";

/// The egress listeners of a Sidecar, and what they import; one for everything if it has none.
fn egress(sidecar: Option<&Sidecar>, namespace: &Arc<str>) -> Vec<(Arc<IstioEgressListener>, Import)> {
    let mut written = sidecar.map(|sidecar| sidecar.spec.egress.clone()).unwrap_or_default();
    if written.is_empty() {
        let hosts = vec![EVERYTHING.to_owned()];
        written.push(IstioEgressListener { hosts, ..Default::default() });
    }
    written
        .into_iter()
        .map(|written| {
            let import = import(&written, namespace);
            (Arc::new(written), import)
        })
        .collect()
}

fn import(written: &IstioEgressListener, namespace: &Arc<str>) -> Import {
    let port = written.port.as_ref().map(|port| port.number).filter(|number| *number != 0);
    Import {
        hosts: EgressHosts { importer: namespace.clone(), patterns: written.hosts.as_slice().into() },
        // A forward proxy is for all ports.
        port: port.filter(|_| !is_http_proxy(written)),
    }
}
