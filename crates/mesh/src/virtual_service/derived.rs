//! VirtualServices derived from Gateway API routes and Ingresses.
//!
//! [`gateway_api`] and [`ingress`] convert their objects to VirtualService objects, one for each group of routes or host.
//! Here each becomes a [`VirtualService`] in a query of its own, so that a changed route costs its group, and an index
//! finds them by namespace and by gateway.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use super::VirtualService;
use crate::gateway_api::{self, RouteGroups};
use crate::ingress::{self, IngressHosts};

/// Identifies a derived VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum DerivedKey {
    /// A key of [`RouteGroups`].
    RouteGroup(Arc<str>),
    /// A host of [`IngressHosts`].
    IngressHost(Arc<str>),
}

/// One derived VirtualService.
struct DerivedVirtualService;

impl Query for DerivedVirtualService {
    const NAME: &'static str = "derived_route";
    type Key = DerivedKey;
    type Value = Option<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, key: &DerivedKey) -> Self::Value {
        let object = match key {
            DerivedKey::RouteGroup(group) => ctx.get::<gateway_api::DerivedVirtualService>(group),
            DerivedKey::IngressHost(host) => ctx.get::<ingress::DerivedVirtualService>(host),
        };
        object.as_ref().as_ref().map(|object| Arc::new(VirtualService::derived(ctx, object)))
    }
}

/// Derived VirtualServices by namespace and by gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DerivedIndex {
    pub(super) by_namespace: BTreeMap<Arc<str>, Vec<Arc<VirtualService>>>,
    by_gateway: BTreeMap<Arc<str>, Vec<Arc<VirtualService>>>,
}

/// All derived VirtualServices.
pub(super) struct DerivedVirtualServices;

impl Query for DerivedVirtualServices {
    const NAME: &'static str = "derived_virtual_services";
    type Key = ();
    type Value = DerivedIndex;

    fn run(ctx: &Ctx<'_>, (): &()) -> DerivedIndex {
        let mut index = DerivedIndex::default();
        let (groups, hosts) = (ctx.get::<RouteGroups>(&()), ctx.get::<IngressHosts>(&()));
        let groups = groups.keys().cloned().map(DerivedKey::RouteGroup);
        let keys = groups.chain(hosts.keys().cloned().map(DerivedKey::IngressHost));
        for service in keys.filter_map(|key| ctx.get::<DerivedVirtualService>(&key).as_ref().clone()) {
            for gateway in service.gateways() {
                index.by_gateway.entry(gateway.into()).or_default().push(service.clone());
            }
            index.by_namespace.entry(service.namespace().into()).or_default().push(service);
        }
        index
    }
}

/// The derived VirtualServices of a namespace.
pub(super) struct DerivedVirtualServicesIn;

impl Query for DerivedVirtualServicesIn {
    const NAME: &'static str = "derived_virtual_services_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        ctx.get::<DerivedVirtualServices>(&()).by_namespace.get(namespace).cloned().unwrap_or_default()
    }
}

/// The derived VirtualServices bound to a gateway, given as `namespace/name`.
pub(super) struct DerivedVirtualServicesAt;

impl Query for DerivedVirtualServicesAt {
    const NAME: &'static str = "derived_virtual_services_at";
    type Key = Arc<str>;
    type Value = Vec<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, gateway: &Arc<str>) -> Self::Value {
        ctx.get::<DerivedVirtualServices>(&()).by_gateway.get(gateway).cloned().unwrap_or_default()
    }
}
