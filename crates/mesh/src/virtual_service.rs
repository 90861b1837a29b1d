//! VirtualServices as routes are made of them: names resolved, delegates merged, and who may see them.

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
    /// Whose rules it follows.
    pub semantics: Semantics,
    /// Who may see it; `Private` has become its namespace.
    pub export_to: BTreeSet<Visibility>,
    /// What it says.
    pub spec: proto::VirtualService,
}

// Nothing in one is unequal to itself: numbers that are not numbers do not pass validation. What lists of them are compared
// by is then whether they are the very same.
impl Eq for VirtualService {}

impl VirtualService {
    /// Whether it stands for a route of the Gateway API.
    pub fn is_gateway_api(&self) -> bool {
        self.semantics == Semantics::GatewayApi
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.origin.namespace()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.origin.name()
    }

    /// The gateways it is bound to; none written means all sidecars.
    pub fn gateways(&self) -> impl Iterator<Item = &str> {
        let default = self.spec.gateways.is_empty().then_some(MESH);
        default.into_iter().chain(self.spec.gateways.iter().map(String::as_str))
    }

    /// What an object stands for that the control plane made of one of another kind.
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

    /// Whether it is for sidecars.
    fn is_for_sidecars(&self) -> bool {
        self.gateways().any(|gateway| gateway == MESH)
    }

    /// Whether everybody may see it.
    fn is_public(&self) -> bool {
        self.export_to.contains(&Visibility::Public)
    }

    /// A Gateway API route that the consumer of a service wrote in its own namespace.
    fn is_consumer_override(&self, namespace: &str) -> bool {
        self.is_gateway_api() && self.namespace() == namespace
    }
}

/// Who may see an object of `namespace` that says `export_to`, the mesh's default applied.
fn visibility(export_to: &[String], settings: &MeshSettings, namespace: &str) -> BTreeSet<Visibility> {
    let default = &settings.mesh.default_virtual_service_export_to;
    let said = if export_to.is_empty() { default } else { export_to };
    if said.is_empty() {
        return BTreeSet::from([Visibility::Public]);
    }
    let own = |entry: &String| match Visibility::parse(entry) {
        Visibility::Private => Visibility::Namespace(namespace.into()),
        other => other,
    };
    said.iter().map(own).collect()
}

/// A VirtualService ready for use; `None` if it has no hosts, which makes it a delegate of others.
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
            // Written by the control plane itself, with full names.
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

/// Replaces every route that names a delegate by the routes of that delegate; one that cannot be used leaves nothing.
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

/// Whether an object of `namespace` can be the delegate of one of namespace `of`.
pub(crate) fn may_delegate(object: &Object, namespace: &str, of: &str, settings: &MeshSettings) -> bool {
    let visible = visibility(&object.spec.export_to, settings, namespace);
    let is_seen =
        visible.contains(&Visibility::Public) || visible.contains(&Visibility::Namespace(of.into()));
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

/// The VirtualServices on a index that have hosts, oldest first.
fn resolved(ctx: &Ctx<'_>, index: &ObjectIndex) -> Vec<Arc<VirtualService>> {
    let origins = ctx.members::<Objects>(index);
    let mut services: Vec<_> = origins
        .iter()
        .filter_map(|origin| ctx.get::<ResolvedVirtualService>(origin).as_ref().clone())
        .collect();
    oldest_first(&mut services);
    services
}

/// Both, oldest first.
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

/// All VirtualServices of a gateway, whoever may see them, oldest first.
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
