//! Scopes: the services and VirtualServices that a proxy may use.
//!
//! `exportTo` decides what a namespace may see at all, and a Sidecar narrows that to the hosts its egress listeners import.
//! Services that imported routes send to are visible as well, even if no listener imports them.
//!
//! **Sharing.** Most proxies import everything, and most services are public, so most scopes are equal. [`ScopeKey`] groups
//! proxies by namespace and Sidecar. Below it, `VisibilityKey` drops the Sidecar's identity and keeps what its listeners
//! import, so equal Sidecars of a namespace share one set of services. And namespaces that see exactly the public services
//! share one list across the mesh: see `public_services`.
//!
//! ```text
//! ScopeKey ─► ScopeSettings ─► VisibilityKey ─► VisibleServices        (visible_services)
//!                   │                              ▲         ▲
//!                   └► Import per listener ─► ImportedServices  PublicServices, UnlistedHosts
//!                                         └─► ImportedRoutes ─► route targets
//! ```
//!
//! **The fast path.** A sidecar that imports `*/*`, and every gateway, sees the public services plus those exported to its
//! namespace by name. That shared list is used if three conditions hold, else the services are collected one by one:
//!
//! - no service that is exported by name has the host of a public one (`also_exported`);
//! - the namespace does not define a host that others define too (`shadowing_namespaces`), because its own definition wins;
//! - no imported route leads to a host outside of the list (`UnlistedHosts`).
//!
//! Invariant: the fast path returns what collecting would return, in the same order. `tests` compares both on random worlds.
//!
//! Start reading at [`Scopes`] and `visible_services`. How a scope becomes listeners and routes is not decided here.

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

/// The services and VirtualServices that a proxy may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// What does not depend on the services and routes that exist.
    pub settings: Arc<ScopeSettings>,
    /// The imports of each egress listener. A listener without a port comes last.
    pub listeners: Vec<EgressListener>,
    visible: Arc<VisibleServices>,
}

impl Deref for Scope {
    type Target = ScopeSettings;

    fn deref(&self) -> &ScopeSettings {
        &self.settings
    }
}

/// The properties of a scope that do not depend on the services and routes that exist.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeSettings {
    /// The namespace of the proxies.
    pub namespace: Arc<str>,
    /// The Sidecar that narrows the scope, if there is one.
    pub sidecar: Option<Arc<Sidecar>>,
    /// What happens to traffic for hosts outside of the scope.
    pub outbound_policy: OutboundTrafficPolicy,
    /// Whether the scope has everything that the namespace may see, with all ports.
    pub is_unlimited: bool,
    /// The egress listeners with their imports; empty for gateways.
    egress: Vec<(Arc<IstioEgressListener>, Import)>,
    visibility_key: VisibilityKey,
}

/// An egress listener with what it imports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EgressListener {
    /// The listener of the Sidecar; `None` for gateways.
    pub written: Option<Arc<IstioEgressListener>>,
    /// The imported services, reduced to the ports of the listener.
    pub services: List<Service>,
    /// The imported VirtualServices, those that take precedence first.
    pub virtual_services: List<VirtualService>,
}

impl EgressListener {
    /// The port of the listener; `None` if it covers all ports.
    pub fn port(&self) -> Option<u32> {
        self.written.as_ref()?.port.as_ref().map(|port| port.number)
    }

    /// Whether it is a forward proxy, which covers all ports.
    pub fn is_http_proxy(&self) -> bool {
        self.written.as_ref().is_some_and(|written| is_http_proxy(written))
    }
}

fn is_http_proxy(written: &IstioEgressListener) -> bool {
    written.port.as_ref().is_some_and(|port| Protocol::parse(&port.protocol) == Protocol::HttpProxy)
}

impl Scope {
    /// The services of all listeners, one for each host.
    pub fn services(&self) -> &List<Service> {
        &self.visible.services
    }

    /// The service of a host.
    pub fn service(&self, host: &str) -> Option<&Arc<Service>> {
        self.visible.service(host)
    }

    /// The listener whose imports apply to a port, or to a Unix socket if the port is 0.
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
    /// The spec of the Sidecar.
    pub fn spec(&self) -> Option<&SidecarSpec> {
        self.sidecar.as_ref().map(|sidecar| &sidecar.spec)
    }

    /// Whether the Sidecar lists ingress listeners.
    pub fn has_ingress(&self) -> bool {
        self.spec().is_some_and(|spec| !spec.ingress.is_empty())
    }

    /// The connection pool settings for a port of the workload.
    pub fn inbound_connection_pool(&self, port: u32) -> Option<&ConnectionPoolSettings> {
        let spec = self.spec()?;
        let own = |number: u32| {
            let ingress =
                spec.ingress.iter().find(|i| i.port.as_ref().is_some_and(|p| p.number == number))?;
            ingress.connection_pool.as_ref()
        };
        own(port).or(spec.inbound_connection_pool.as_ref())
    }

    /// Whether traffic for hosts outside of the scope is let through.
    pub fn allows_any(&self) -> bool {
        self.outbound_policy.mode() == Mode::AllowAny
    }
}

/// Identifies a scope: the proxies of one namespace that one Sidecar applies to share it.
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

    /// The Sidecar that narrows the scope; `None` for gateways.
    pub(crate) fn sidecar(&self) -> Option<&Origin> {
        match self {
            Self::Sidecars(_, sidecar) => sidecar.as_ref(),
            Self::Gateways(_) => None,
        }
    }
}

/// Returns a whole scope. It changes with every service and route in it; a query that needs less uses the functions below.
pub fn scope(ctx: &Ctx<'_>, key: &ScopeKey) -> Arc<Scope> {
    ctx.get::<Scopes>(key)
}

/// Returns the properties of a scope that do not depend on services and routes.
pub fn scope_settings(ctx: &Ctx<'_>, key: &ScopeKey) -> Arc<ScopeSettings> {
    ctx.get::<ScopeSettingsFor>(key)
}

/// Returns the services of a scope, one for each host.
pub fn services(ctx: &Ctx<'_>, key: &ScopeKey) -> List<Service> {
    ctx.get::<VisibleServicesFor>(&scope_settings(ctx, key).visibility_key).services.clone()
}

/// Resolves a host in a scope. Unlike [`scope`], the result depends on that service alone.
pub fn scoped_service(ctx: &Ctx<'_>, key: &ScopeKey, host: &str) -> Option<Arc<Service>> {
    service_in(ctx, key, &host.into())
}

/// [`scoped_service`] for callers that already have the host as an `Arc`.
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
        // With everything imported, a host with a single definition resolves to it, whatever else exists.
        let settings = ctx.get::<ScopeSettingsFor>(scope);
        if settings.is_unlimited {
            match &ctx.get::<HostDefinitions>(host)[..] {
                [] => return None,
                [only] if is_visible(ctx, only, scope.namespace()) => return Some(only.clone()),
                _ => {}
            }
        }
        ctx.get::<VisibleServicesFor>(&settings.visibility_key).service(host).cloned()
    }
}

/// The scope of a [`ScopeKey`].
pub struct Scopes;

impl Query for Scopes {
    const NAME: &'static str = "scopes";
    type Key = ScopeKey;
    type Value = Scope;

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> Scope {
        let settings = ctx.get::<ScopeSettingsFor>(key);
        let listeners = match key {
            ScopeKey::Gateways(namespace) => vec![EgressListener {
                virtual_services: virtual_service::mesh_routes_for_gateways(ctx, namespace),
                ..EgressListener::default()
            }],
            ScopeKey::Sidecars(..) => settings.egress.iter().map(|egress| listener(ctx, egress)).collect(),
        };
        Scope {
            listeners,
            visible: ctx.get::<VisibleServicesFor>(&settings.visibility_key).as_ref().clone(),
            settings,
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

/// The [`ScopeSettings`] of a [`ScopeKey`].
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
        let own_policy = sidecar.as_ref().and_then(|sidecar| sidecar.spec.outbound_traffic_policy.clone());
        let mesh_policy = || {
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
        let visibility_key = match &egress[..] {
            [] => VisibilityKey::Gateways(key.namespace().clone()),
            [(_, import)] if is_unlimited => VisibilityKey::Unlimited(import.clone()),
            all => VisibilityKey::Limited(all.iter().map(|(_, import)| import.clone()).collect()),
        };
        ScopeSettings {
            namespace: key.namespace().clone(),
            outbound_policy: own_policy.or_else(mesh_policy).unwrap_or_default(),
            is_unlimited,
            sidecar,
            egress,
            visibility_key,
        }
    }
}

/// The host entry that imports everything.
const EVERYTHING: &str = "*/*";

/// The egress listeners of a Sidecar with their imports. Without any, one listener imports everything.
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
        // A forward proxy covers all ports.
        port: port.filter(|_| !is_http_proxy(written)),
    }
}
