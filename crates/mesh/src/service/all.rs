//! All services of the mesh, oldest first, and which of them a namespace may see.
//!
//! The pipeline, each step a query: every service has a sort entry; [`ServiceOrder`] merges them and divides the order into
//! chunks (see [`order`](crate::order)); [`ServicesInChunk`] reads the services of a chunk and sorts them by exposure;
//! [`ServicesInChunkGroup`] and [`AllServicesByExposure`] join the lists, sharing segments. An edited service re-runs its
//! chunk and the joins above it.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::index::{CrossServiceFacts, HostDefinitions, entries_in, kubernetes_names_in};
use super::{Exposure, KubernetesService, Service, ServicesOf, exposure, is_public};
use crate::list::List;
use crate::order::{Chunk, ChunkGroup, Order, SortEntry};
use crate::world::NamespacesWith;
use crate::world::{Origin, settings};

/// Locates the definition of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceLocator {
    host: Arc<str>,
    definition: Definition,
}

/// The object that defines a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Definition {
    /// A Kubernetes Service: namespace and name.
    Kubernetes(Arc<str>, Arc<str>),
    /// A ServiceEntry, and the position among the services it defines.
    Entry(Origin, usize),
}

impl ServiceLocator {
    fn service(&self, ctx: &Ctx<'_>) -> Option<Arc<Service>> {
        let service = match &self.definition {
            Definition::Kubernetes(namespace, name) => {
                ctx.get::<KubernetesService>(&(namespace.clone(), name.clone())).as_ref().clone()
            }
            Definition::Entry(origin, at) => ctx.get::<ServicesOf>(origin).get(*at).cloned(),
        };
        Some(CrossServiceFacts::load(ctx).apply_to(service?))
    }

    /// Whether this locates the first of these definitions of its host.
    pub(crate) fn locates_first(&self, ctx: &Ctx<'_>, definitions: &[Arc<Service>]) -> bool {
        let Some(first) = definitions.first() else { return false };
        match &self.definition {
            Definition::Kubernetes(..) => first.is_kubernetes(),
            Definition::Entry(origin, at) => {
                let of_entry = ctx.get::<ServicesOf>(origin);
                first.origins.first() == Some(origin)
                    && of_entry.iter().position(|one| one.host == self.host) == Some(*at)
            }
        }
    }
}

/// The sort entries of the services of a namespace, sorted.
struct SortEntriesIn;

impl Query for SortEntriesIn {
    const NAME: &'static str = "service_sort_entries_in";
    type Key = Arc<str>;
    type Value = SortEntries;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> SortEntries {
        let names = kubernetes_names_in(ctx, namespace).into_iter();
        let mut entries: Vec<_> = names
            .flat_map(|name| ctx.get::<KubernetesSortEntry>(&(namespace.clone(), name)).to_vec())
            .collect();
        for origin in entries_in(ctx, namespace).iter() {
            entries.extend_from_slice(&ctx.get::<ServiceEntrySortEntries>(origin));
        }
        entries.sort_by(|a, b| a.compare(b));
        entries
    }
}

type SortEntries = Vec<Arc<SortEntry<ServiceLocator>>>;

fn sort_entry(service: &Service, definition: Definition) -> Arc<SortEntry<ServiceLocator>> {
    let locator = ServiceLocator { host: service.host.clone(), definition };
    Arc::new(SortEntry::new(service.created, service.name.clone(), &service.namespace, locator))
}

/// The sort entry of a Kubernetes service, if it exists. It changes only with the age or name of the service.
struct KubernetesSortEntry;

impl Query for KubernetesSortEntry {
    const NAME: &'static str = "kubernetes_service_sort_entry";
    /// Namespace and name.
    type Key = (Arc<str>, Arc<str>);
    type Value = SortEntries;

    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> SortEntries {
        let service = ctx.get::<KubernetesService>(key);
        let definition = || Definition::Kubernetes(key.0.clone(), key.1.clone());
        service.iter().map(|service| sort_entry(service, definition())).collect()
    }
}

/// The sort entries of the services of a ServiceEntry.
struct ServiceEntrySortEntries;

impl Query for ServiceEntrySortEntries {
    const NAME: &'static str = "service_entry_sort_entries";
    type Key = Origin;
    type Value = SortEntries;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> SortEntries {
        let services = ctx.get::<ServicesOf>(origin);
        let services = services.iter().enumerate();
        services.map(|(at, service)| sort_entry(service, Definition::Entry(origin.clone(), at))).collect()
    }
}

/// The order of all services of the mesh.
pub(crate) struct ServiceOrder;

impl Query for ServiceOrder {
    const NAME: &'static str = "service_order";
    type Key = ();
    type Value = Order<ServiceLocator>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let of_kind = |kind| ctx.get::<NamespacesWith>(&kind);
        let (kube, entries) = (of_kind(Kind::Service), of_kind(Kind::ServiceEntry));
        let mut namespaces: Vec<Arc<str>> = kube.iter().chain(entries.iter()).cloned().collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        Order::new(&namespaces, |namespace| ctx.get::<SortEntriesIn>(namespace))
    }
}

/// Services by exposure, each list oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServicesByExposure {
    /// All services, in the order of their locators.
    pub(crate) all: List<Service>,
    /// Services that are exported to all namespaces.
    pub(crate) public: List<Service>,
    restricted: List<Service>,
    /// Whether some host among them has other definitions too.
    pub(crate) has_duplicate_hosts: bool,
}

impl ServicesByExposure {
    fn joined(parts: &[Arc<Self>]) -> Self {
        let list =
            |part: fn(&Self) -> &List<Service>| List::concat(parts.iter().map(|reached| part(reached)));
        let restricted = list(|reached| &reached.restricted);
        let all = list(|reached| &reached.all);
        let public = if restricted.is_empty() { all.clone() } else { list(|reached| &reached.public) };
        Self {
            all,
            public,
            restricted,
            has_duplicate_hosts: parts.iter().any(|reached| reached.has_duplicate_hosts),
        }
    }
}

/// The services of a chunk of the order.
pub(crate) struct ServicesInChunk;

impl Query for ServicesInChunk {
    const NAME: &'static str = "services_in_chunk";
    type Key = Chunk<ServiceLocator>;
    type Value = ServicesByExposure;

    fn run(ctx: &Ctx<'_>, chunk: &Chunk<ServiceLocator>) -> ServicesByExposure {
        let mut is_contested = false;
        let service = |locator: &ServiceLocator| match &ctx.get::<HostDefinitions>(&locator.host)[..] {
            [only] => Some(only.clone()),
            _ => {
                is_contested = true;
                locator.service(ctx)
            }
        };
        let all: Vec<_> = chunk.locators().filter_map(service).collect();
        let (public, restricted): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|service| is_public(ctx, service));
        let (all, restricted) = (List::from(all), List::from(restricted));
        let public = if restricted.is_empty() { all.clone() } else { public.into() };
        ServicesByExposure { all, public, restricted, has_duplicate_hosts: is_contested }
    }
}

/// The services of a group of chunks.
pub(crate) struct ServicesInChunkGroup;

impl Query for ServicesInChunkGroup {
    const NAME: &'static str = "services_in_chunk_group";
    type Key = ChunkGroup<ServiceLocator>;
    type Value = ServicesByExposure;

    fn run(ctx: &Ctx<'_>, group: &ChunkGroup<ServiceLocator>) -> ServicesByExposure {
        let chunks: Vec<_> = group.chunks().map(|chunk| ctx.get::<ServicesInChunk>(chunk)).collect();
        ServicesByExposure::joined(&chunks)
    }
}

/// The services of the mesh by exposure.
struct AllServicesByExposure;

impl Query for AllServicesByExposure {
    const NAME: &'static str = "services_by_exposure";
    type Key = ();
    type Value = ServicesByExposure;

    fn run(ctx: &Ctx<'_>, (): &()) -> ServicesByExposure {
        let order = ctx.get::<ServiceOrder>(&());
        let groups: Vec<_> =
            order.groups.iter().map(|group| ctx.get::<ServicesInChunkGroup>(group)).collect();
        ServicesByExposure::joined(&groups)
    }
}

/// Every service of the mesh, oldest first.
pub struct AllServices;

impl Query for AllServices {
    const NAME: &'static str = "all_services";
    type Key = ();
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        ctx.get::<AllServicesByExposure>(&()).all.clone()
    }
}

/// The services that are not exported to all namespaces, oldest first.
struct RestrictedServices;

impl Query for RestrictedServices {
    const NAME: &'static str = "restricted_services";
    type Key = ();
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        ctx.get::<AllServicesByExposure>(&()).restricted.clone()
    }
}

/// The services whose `exportTo` names a namespace, oldest first.
pub(crate) struct ServicesExportedTo;

impl Query for ServicesExportedTo {
    const NAME: &'static str = "services_exported_to";
    type Key = Arc<str>;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let (settings, restricted) = (settings(ctx), ctx.get::<RestrictedServices>(&()));
        let is_named =
            |service: &&Arc<Service>| exposure(&settings, service, namespace) == Exposure::Exported;
        restricted.iter().filter(is_named).cloned().collect()
    }
}

/// The services that a namespace may see: those exported to it by name, then public ones; each oldest first.
pub struct ServicesVisibleTo;

impl Query for ServicesVisibleTo {
    const NAME: &'static str = "services_visible_to";
    type Key = Arc<str>;
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        List::prepend(ctx.get::<ServicesExportedTo>(namespace), &ctx.get::<AllServicesByExposure>(&()).public)
    }
}
