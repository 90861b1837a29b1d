//! The VirtualServices that apply to proxies of a namespace, in order of precedence.

use std::sync::Arc;

use canopus_api::visibility::Visibility;
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_UNIFIED_SIDECAR_SCOPE;

use super::all::{SortedVirtualServices, VirtualServiceLists};
use super::{VirtualService, VirtualServicesByGateway, VirtualServicesIn, oldest_first};
use crate::list::{List, Segment};
use crate::world::settings;

/// The VirtualServices that a namespace may see; each list oldest first.
#[derive(Debug, PartialEq)]
struct VisibleRoutes {
    restricted: Arc<RestrictedRoutes>,
    /// VirtualServices that are exported to all namespaces.
    public: List<VirtualService>,
}

/// The VirtualServices that a namespace sees but not all namespaces do; each list oldest first.
#[derive(Debug, PartialEq)]
struct RestrictedRoutes {
    /// VirtualServices of the namespace itself.
    own: Segment<VirtualService>,
    /// VirtualServices that other namespaces export to this one by name.
    exported: Segment<VirtualService>,
}

impl RestrictedRoutes {
    /// Selects what a namespace may see.
    fn visible_to<'a>(
        restricted: impl IntoIterator<Item = &'a Arc<VirtualService>>,
        namespace: &str,
    ) -> Self {
        let wanted = Visibility::Namespace(namespace.into());
        let is_seen = |service: &&Arc<VirtualService>| {
            service.export_to.contains(&wanted) && !service.export_to.contains(&Visibility::None)
        };
        let seen = restricted.into_iter().filter(is_seen).cloned();
        let (own, exported): (Vec<_>, Vec<_>) = seen.partition(|service| service.namespace() == namespace);
        Self { own: Arc::new(own), exported: Arc::new(exported) }
    }
}

impl VisibleRoutes {
    /// Selects what a namespace may see.
    fn visible_to(services: &[Arc<VirtualService>], namespace: &str) -> Self {
        let (public, restricted): (Vec<_>, Vec<_>) =
            services.iter().cloned().partition(|service| service.is_public());
        Self {
            restricted: Arc::new(RestrictedRoutes::visible_to(&restricted, namespace)),
            public: public.into(),
        }
    }

    /// All in order of precedence: the namespace's own, those exported to it, public ones.
    fn list(&self) -> List<VirtualService> {
        let RestrictedRoutes { own, exported } = &*self.restricted;
        List::prepend(own.clone(), &List::prepend(exported.clone(), &self.public))
    }

    /// [`Self::list`], with the namespace's own Gateway API routes before other public ones.
    fn for_gateways(&self, namespace: &str) -> Vec<Arc<VirtualService>> {
        let (overrides, rest): (Vec<_>, Vec<_>) =
            self.public.iter().partition(|service| service.is_consumer_override(namespace));
        let RestrictedRoutes { own, exported } = &*self.restricted;
        own.iter().chain(exported.iter()).chain(overrides).chain(rest).cloned().collect()
    }

    /// [`Self::list`]; with `overrides_first`, the namespace's own Gateway API routes come first of their list.
    fn for_sidecars(&self, namespace: &str, overrides_first: bool) -> Vec<Arc<VirtualService>> {
        let RestrictedRoutes { own, exported } = &*self.restricted;
        let first =
            |service: &&Arc<VirtualService>| overrides_first && service.is_consumer_override(namespace);
        let mut ordered = Vec::with_capacity(own.len() + exported.len() + self.public.len());
        ordered.extend(own.iter().filter(first).cloned());
        ordered.extend(own.iter().filter(|service| !first(service)).cloned());
        ordered.extend(exported.iter().cloned());
        ordered.extend(self.public.iter().filter(first).cloned());
        ordered.extend(self.public.iter().filter(|service| !first(service)).cloned());
        ordered
    }
}

/// The VirtualServices bound to a gateway, for proxies of a namespace, in order of precedence.
struct RoutesBoundTo;

impl Query for RoutesBoundTo {
    const NAME: &'static str = "virtual_services_bound_to";
    /// Namespace of the proxy; `namespace/name` of the gateway.
    type Key = (Arc<str>, Arc<str>);
    type Value = Vec<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, (namespace, gateway): &Self::Key) -> Self::Value {
        VisibleRoutes::visible_to(&ctx.get::<VirtualServicesByGateway>(gateway), namespace)
            .for_gateways(namespace)
    }
}

/// The VirtualServices for sidecars that are not exported to all namespaces, oldest first.
struct RestrictedMeshRoutes;

impl Query for RestrictedMeshRoutes {
    const NAME: &'static str = "restricted_mesh_routes";
    type Key = ();
    type Value = List<VirtualService>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        ctx.get::<SortedVirtualServices>(&()).restricted.clone()
    }
}

/// The part of [`RestrictedMeshRoutes`] that one namespace sees.
struct RestrictedMeshRoutesFor;

impl Query for RestrictedMeshRoutesFor {
    const NAME: &'static str = "restricted_mesh_routes_for";
    type Key = Arc<str>;
    type Value = Arc<RestrictedRoutes>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        Arc::new(RestrictedRoutes::visible_to(&*ctx.get::<RestrictedMeshRoutes>(&()), namespace))
    }
}

/// The VirtualServices for sidecars that a namespace may see.
fn visible_routes(ctx: &Ctx<'_>, routes: &VirtualServiceLists, namespace: &Arc<str>) -> VisibleRoutes {
    VisibleRoutes {
        restricted: ctx.get::<RestrictedMeshRoutesFor>(namespace).as_ref().clone(),
        public: routes.public.clone(),
    }
}

/// The VirtualServices that a gateway proxy of `namespace` uses for a gateway, in order of precedence.
pub fn for_gateway(ctx: &Ctx<'_>, namespace: &Arc<str>, gateway: &Arc<str>) -> Arc<Vec<Arc<VirtualService>>> {
    ctx.get::<RoutesBoundTo>(&(namespace.clone(), gateway.clone()))
}

/// The VirtualServices for sidecars that a gateway proxy of `namespace` sees, in order of precedence.
pub(crate) fn mesh_routes_for_gateways(ctx: &Ctx<'_>, namespace: &Arc<str>) -> List<VirtualService> {
    let routes = ctx.get::<SortedVirtualServices>(&());
    let bound = visible_routes(ctx, &routes, namespace);
    if routes.consumer_namespaces.contains(namespace) {
        bound.for_gateways(namespace).into()
    } else {
        bound.list()
    }
}

/// The VirtualServices that sidecars of `namespace` may import, in order of precedence.
pub(crate) fn for_sidecars(ctx: &Ctx<'_>, namespace: &Arc<str>) -> List<VirtualService> {
    let routes = ctx.get::<SortedVirtualServices>(&());
    let bound = visible_routes(ctx, &routes, namespace);
    let overrides_first = settings(ctx).flags.get(PILOT_UNIFIED_SIDECAR_SCOPE);
    let has_overrides = || {
        let mut own = bound.restricted.own.iter();
        routes.consumer_namespaces.contains(namespace) || own.any(|route| route.is_gateway_api())
    };
    if overrides_first && has_overrides() {
        return bound.for_sidecars(namespace, overrides_first).into();
    }
    bound.list()
}

/// The VirtualServices of [`for_sidecars`] that some namespaces define.
pub(crate) fn for_sidecars_from(
    ctx: &Ctx<'_>,
    namespace: &str,
    owners: &[Arc<str>],
) -> Vec<Arc<VirtualService>> {
    let owned = sidecar_routes_in(ctx, owners);
    let overrides_first = settings(ctx).flags.get(PILOT_UNIFIED_SIDECAR_SCOPE);
    VisibleRoutes::visible_to(&owned, namespace).for_sidecars(namespace, overrides_first)
}

/// The VirtualServices for sidecars of some namespaces, oldest first.
fn sidecar_routes_in(ctx: &Ctx<'_>, namespaces: &[Arc<str>]) -> Vec<Arc<VirtualService>> {
    let mut services = Vec::new();
    for namespace in namespaces {
        let in_namespace = ctx.get::<VirtualServicesIn>(namespace);
        services.extend(in_namespace.iter().filter(|service| service.is_for_sidecars()).cloned());
    }
    oldest_first(&mut services);
    services
}
