//! VirtualServices: names resolved, delegates merged, and visibility applied.

mod all;
mod bound;
mod delegate;
mod derived;
mod destinations;
mod names;
mod specific;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::istio::VirtualService as Object;
use canopus_api::visibility::Visibility;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3 as proto;
use jiff::Timestamp;

use crate::reference::semantics;
use crate::world::{MeshSettings, ObjectIndex, Objects, Origin, object, settings};

pub use all::AllVirtualServices;
pub(crate) use all::{RouteLocator, RouteNamespaces, locators_in};
pub use bound::for_gateway;
pub(crate) use bound::{for_sidecars, for_sidecars_from, mesh_routes_for_gateways};
pub use delegate::merge as merge_delegate;
pub use destinations::{Destinations, destinations};
pub(crate) use destinations::{destination_hosts, targets};
pub use specific::HostOwners;

pub use crate::reference::{MESH, Semantics, gateway_name};

use derived::{DerivedVirtualServices, DerivedVirtualServicesAt, DerivedVirtualServicesIn};

/// A VirtualService with hosts: short names resolved, delegates merged in.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualService {
    /// The object it comes from.
    pub origin: Origin,
    /// When that was created.
    pub created: Option<Timestamp>,
    /// The API it was written in.
    pub semantics: Semantics,
    /// The namespaces it is exported to, with `.` replaced by its namespace.
    pub export_to: BTreeSet<Visibility>,
    /// The resolved spec.
    pub spec: proto::VirtualService,
}

// Sound because validation rejects NaN, the only value that is not equal to itself. Lists need `Eq` to compare by pointer first.
impl Eq for VirtualService {}

impl VirtualService {
    /// Whether it is derived from a Gateway API route.
    pub fn is_gateway_api(&self) -> bool {
        self.semantics == Semantics::GatewayApi
    }

    /// Namespace of the VirtualService.
    pub fn namespace(&self) -> &str {
        self.origin.namespace()
    }

    /// Name of the VirtualService.
    pub fn name(&self) -> &str {
        self.origin.name()
    }

    /// The gateways it is bound to; `mesh` if none is written.
    pub fn gateways(&self) -> impl Iterator<Item = &str> {
        let default = self.spec.gateways.is_empty().then_some(MESH);
        default.into_iter().chain(self.spec.gateways.iter().map(String::as_str))
    }

    /// Resolves an object that the control plane derived from another kind.
    pub(crate) fn derived(ctx: &Ctx<'_>, object: &Object) -> Self {
        let settings = settings(ctx);
        let meta = &object.meta;
        let key = ObjectKey::new(Kind::VirtualService, &meta.namespace, &meta.name);
        Self {
            origin: Origin::new(settings.cluster.clone(), key),
            created: meta.creation_timestamp,
            semantics: semantics(object),
            export_to: visibility(&object.spec.export_to, &settings, &meta.namespace),
            spec: object.spec.clone(),
        }
    }

    /// Whether it applies to sidecars.
    fn is_for_sidecars(&self) -> bool {
        self.gateways().any(|gateway| gateway == MESH)
    }

    /// Whether it is exported to all namespaces.
    fn is_public(&self) -> bool {
        self.export_to.contains(&Visibility::Public)
    }

    /// Whether it is a Gateway API route that a consumer of a service wrote in its own namespace.
    fn is_consumer_override(&self, namespace: &str) -> bool {
        self.is_gateway_api() && self.namespace() == namespace
    }
}

/// The namespaces that an object of `namespace` is exported to, with the mesh-wide default applied.
fn visibility(export_to: &[String], settings: &MeshSettings, namespace: &str) -> BTreeSet<Visibility> {
    let default = &settings.mesh.default_virtual_service_export_to;
    let entries = if export_to.is_empty() { default } else { export_to };
    if entries.is_empty() {
        return BTreeSet::from([Visibility::Public]);
    }
    let own = |entry: &String| match Visibility::parse(entry) {
        Visibility::Private => Visibility::Namespace(namespace.into()),
        other => other,
    };
    entries.iter().map(own).collect()
}

/// A resolved VirtualService; `None` if it has no hosts and can only be a delegate.
pub struct ResolvedVirtualService;

impl Query for ResolvedVirtualService {
    const NAME: &'static str = "virtual_service";
    type Key = Origin;
    type Value = Option<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let object = object::<Object>(ctx, origin)?;
        if object.spec.hosts.is_empty() {
            return None;
        }
        let settings = settings(ctx);
        let semantics = semantics(&object);
        let spec = match semantics {
            // The control plane derives these with qualified names.
            Semantics::GatewayApi => object.spec.clone(),
            Semantics::Ingress => names::resolve(&object.spec, origin.namespace(), &settings.domain),
            Semantics::Istio => {
                let resolved = names::resolve(&object.spec, origin.namespace(), &settings.domain);
                with_delegates(ctx, origin, resolved, &settings)
            }
        };
        Some(Arc::new(VirtualService {
            origin: origin.clone(),
            created: object.meta.creation_timestamp,
            semantics,
            export_to: visibility(&object.spec.export_to, &settings, origin.namespace()),
            spec,
        }))
    }
}

/// Replaces every route that names a delegate by the routes of the delegate. A delegate that cannot be used leaves no routes.
fn with_delegates(
    ctx: &Ctx<'_>,
    origin: &Origin,
    mut spec: proto::VirtualService,
    settings: &MeshSettings,
) -> proto::VirtualService {
    if spec.http.iter().all(|http| http.delegate.is_none()) {
        return spec;
    }
    for mut http in std::mem::take(&mut spec.http) {
        let Some(delegate) = http.delegate.take() else {
            spec.http.push(http);
            continue;
        };
        let namespace = if delegate.namespace.is_empty() { origin.namespace() } else { &delegate.namespace };
        let key = ObjectKey::new(Kind::VirtualService, namespace, &delegate.name);
        let Some(found) = object::<Object>(ctx, &Origin::new(origin.cluster.clone(), key)) else { continue };
        if may_delegate(&found, namespace, origin.namespace(), settings) {
            let resolved = names::resolve(&found.spec, namespace, &settings.domain);
            spec.http.extend(delegate::merge(&http, resolved.http));
        }
    }
    spec
}

/// Whether an object of `namespace` may be the delegate of one of namespace `root`.
pub(crate) fn may_delegate(object: &Object, namespace: &str, root: &str, settings: &MeshSettings) -> bool {
    let visible = visibility(&object.spec.export_to, settings, namespace);
    let is_seen =
        visible.contains(&Visibility::Public) || visible.contains(&Visibility::Namespace(root.into()));
    object.spec.hosts.is_empty() && is_seen
}

fn oldest_first(services: &mut [Arc<VirtualService>]) {
    services.sort_by(|a, b| (a.created, a.name(), a.namespace()).cmp(&(b.created, b.name(), b.namespace())));
}

/// The VirtualServices of a namespace that have hosts, oldest first.
pub struct VirtualServicesIn;

impl Query for VirtualServicesIn {
    const NAME: &'static str = "virtual_services_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let written = resolved(ctx, &ObjectIndex::Namespace(Kind::VirtualService, namespace.as_ref().into()));
        with_derived(written, &ctx.get::<DerivedVirtualServicesIn>(namespace))
    }
}

/// The resolved VirtualServices of an index, oldest first.
fn resolved(ctx: &Ctx<'_>, index: &ObjectIndex) -> Vec<Arc<VirtualService>> {
    let origins = ctx.members::<Objects>(index);
    let mut services: Vec<_> = origins
        .iter()
        .filter_map(|origin| ctx.get::<ResolvedVirtualService>(origin).as_ref().clone())
        .collect();
    oldest_first(&mut services);
    services
}

/// Merges written and derived VirtualServices, oldest first.
fn with_derived(
    mut written: Vec<Arc<VirtualService>>,
    derived: &[Arc<VirtualService>],
) -> Vec<Arc<VirtualService>> {
    if !derived.is_empty() {
        written.extend_from_slice(derived);
        oldest_first(&mut written);
    }
    written
}

/// All VirtualServices bound to a gateway, regardless of visibility, oldest first.
pub fn bound_to(ctx: &Ctx<'_>, gateway: &Arc<str>) -> Arc<Vec<Arc<VirtualService>>> {
    ctx.get::<VirtualServicesByGateway>(gateway)
}

/// The VirtualServices of one gateway, oldest first.
struct VirtualServicesByGateway;

impl Query for VirtualServicesByGateway {
    const NAME: &'static str = "virtual_services_by_gateway";
    type Key = Arc<str>;
    type Value = Vec<Arc<VirtualService>>;

    fn run(ctx: &Ctx<'_>, gateway: &Arc<str>) -> Self::Value {
        if **gateway == *MESH {
            return ctx
                .get::<AllVirtualServices>(&())
                .iter()
                .filter(|one| one.is_for_sidecars())
                .cloned()
                .collect();
        }
        let written = resolved(ctx, &ObjectIndex::BoundToGateway(gateway.as_ref().into()));
        with_derived(written, &ctx.get::<DerivedVirtualServicesAt>(gateway))
    }
}
