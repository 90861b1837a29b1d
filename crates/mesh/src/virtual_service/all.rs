//! All VirtualServices of the mesh, oldest first.
//!
//! Built like the list of all services (`service::all`): sort entries, an order in chunks, lists per chunk and per group. See
//! [`order`](crate::order) for why.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::{DerivedVirtualServices, DerivedVirtualServicesIn, ResolvedVirtualService, VirtualService};
use crate::list::List;
use crate::order::{Chunk, ChunkGroup, Order, SortEntry};
use crate::world::NamespacesWith;
use crate::world::{ObjectIndex, Objects, Origin};

/// Locates a VirtualService.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RouteLocator {
    /// An object that a user wrote.
    Written(Origin),
    /// Derived from an object of another kind: namespace, and position among the derived ones of the namespace.
    Derived(Arc<str>, usize),
}

impl RouteLocator {
    /// Reads the VirtualService. Returns `None` if it has no hosts.
    pub(crate) fn route(&self, ctx: &Ctx<'_>) -> Option<Arc<VirtualService>> {
        match self {
            Self::Written(origin) => ctx.get::<ResolvedVirtualService>(origin).as_ref().clone(),
            Self::Derived(namespace, at) => ctx.get::<DerivedVirtualServicesIn>(namespace).get(*at).cloned(),
        }
    }
}

/// The namespaces with VirtualServices, sorted.
pub(crate) struct RouteNamespaces;

impl Query for RouteNamespaces {
    const NAME: &'static str = "virtual_service_namespaces";
    type Key = ();
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let (written, derived) =
            (ctx.get::<NamespacesWith>(&Kind::VirtualService), ctx.get::<DerivedVirtualServices>(&()));
        let mut namespaces: Vec<_> = written.iter().chain(derived.by_namespace.keys()).cloned().collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }
}

/// Locates the VirtualServices of a namespace: written ones, then derived ones.
pub(crate) fn locators_in(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Vec<RouteLocator> {
    let index = ObjectIndex::Namespace(Kind::VirtualService, namespace.as_ref().into());
    let written = ctx.members::<Objects>(&index);
    let written = written.iter().map(|origin| RouteLocator::Written(origin.clone()));
    let derived = 0..*ctx.get::<DerivedCount>(namespace);
    written.chain(derived.map(|at| RouteLocator::Derived(namespace.clone(), at))).collect()
}

/// The number of derived VirtualServices of a namespace.
struct DerivedCount;

impl Query for DerivedCount {
    const NAME: &'static str = "derived_virtual_service_count";
    type Key = Arc<str>;
    type Value = usize;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> usize {
        ctx.get::<DerivedVirtualServicesIn>(namespace).len()
    }
}

/// The sort entries of the VirtualServices of a namespace, sorted.
struct SortEntriesIn;

impl Query for SortEntriesIn {
    const NAME: &'static str = "virtual_service_sort_entries_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<SortEntry<RouteLocator>>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let locators = locators_in(ctx, namespace);
        let mut entries: Vec<_> =
            locators.iter().filter_map(|locator| ctx.get::<SortEntryOf>(locator).as_ref().clone()).collect();
        entries.sort_by(|a, b| a.compare(b));
        entries
    }
}

/// The sort entry of a VirtualService. It changes only with the age or name of the object.
struct SortEntryOf;

impl Query for SortEntryOf {
    const NAME: &'static str = "virtual_service_sort_entry";
    type Key = RouteLocator;
    type Value = Option<Arc<SortEntry<RouteLocator>>>;

    fn run(ctx: &Ctx<'_>, locator: &RouteLocator) -> Self::Value {
        let route = locator.route(ctx)?;
        Some(Arc::new(SortEntry::new(route.created, route.name().into(), route.namespace(), locator.clone())))
    }
}

/// The order of all VirtualServices.
struct VirtualServiceOrder;

impl Query for VirtualServiceOrder {
    const NAME: &'static str = "virtual_service_order";
    type Key = ();
    type Value = Order<RouteLocator>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        Order::new(&ctx.get::<RouteNamespaces>(&()), |namespace| ctx.get::<SortEntriesIn>(namespace))
    }
}

/// VirtualServices by what they apply to, each list oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VirtualServiceLists {
    all: List<VirtualService>,
    /// VirtualServices that apply to sidecars and are exported to all namespaces.
    pub(super) public: List<VirtualService>,
    /// VirtualServices that apply to sidecars and are not exported to all namespaces.
    pub(super) restricted: List<VirtualService>,
    /// The namespaces with public Gateway API routes. Their own proxies evaluate these routes before others.
    pub(super) consumer_namespaces: BTreeSet<Arc<str>>,
}

impl VirtualServiceLists {
    fn joined(parts: &[Arc<Self>]) -> Self {
        let list =
            |part: fn(&Self) -> &List<VirtualService>| List::concat(parts.iter().map(|sorted| part(sorted)));
        Self {
            all: list(|sorted| &sorted.all),
            public: list(|sorted| &sorted.public),
            restricted: list(|sorted| &sorted.restricted),
            consumer_namespaces: parts
                .iter()
                .flat_map(|sorted| sorted.consumer_namespaces.iter().cloned())
                .collect(),
        }
    }
}

/// The VirtualServices of a chunk of the order.
struct VirtualServicesInChunk;

impl Query for VirtualServicesInChunk {
    const NAME: &'static str = "virtual_services_in_chunk";
    type Key = Chunk<RouteLocator>;
    type Value = VirtualServiceLists;

    fn run(ctx: &Ctx<'_>, chunk: &Chunk<RouteLocator>) -> VirtualServiceLists {
        let all: Vec<_> = chunk.locators().filter_map(|locator| locator.route(ctx)).collect();
        let for_sidecars = all.iter().filter(|route| route.is_for_sidecars()).cloned();
        let (public, restricted): (Vec<_>, Vec<_>) = for_sidecars.partition(|route| route.is_public());
        let of_consumers = public.iter().filter(|route| route.is_gateway_api());
        let consumers = of_consumers.map(|route| route.namespace().into()).collect();
        let is_all = public.len() == all.len();
        let all = List::from(all);
        let public = if is_all { all.clone() } else { public.into() };
        VirtualServiceLists { all, public, restricted: restricted.into(), consumer_namespaces: consumers }
    }
}

/// The VirtualServices of a group of chunks.
struct VirtualServicesInChunkGroup;

impl Query for VirtualServicesInChunkGroup {
    const NAME: &'static str = "virtual_services_in_chunk_group";
    type Key = ChunkGroup<RouteLocator>;
    type Value = VirtualServiceLists;

    fn run(ctx: &Ctx<'_>, group: &ChunkGroup<RouteLocator>) -> VirtualServiceLists {
        let chunks: Vec<_> = group.chunks().map(|chunk| ctx.get::<VirtualServicesInChunk>(chunk)).collect();
        VirtualServiceLists::joined(&chunks)
    }
}

/// The VirtualServices of the mesh by what they apply to.
pub(super) struct SortedVirtualServices;

impl Query for SortedVirtualServices {
    const NAME: &'static str = "sorted_virtual_services";
    type Key = ();
    type Value = VirtualServiceLists;

    fn run(ctx: &Ctx<'_>, (): &()) -> VirtualServiceLists {
        let order = ctx.get::<VirtualServiceOrder>(&());
        let groups: Vec<_> =
            order.groups.iter().map(|group| ctx.get::<VirtualServicesInChunkGroup>(group)).collect();
        VirtualServiceLists::joined(&groups)
    }
}

/// Every VirtualService that has hosts, whether written or derived from another kind of object, oldest first.
pub struct AllVirtualServices;

impl Query for AllVirtualServices {
    const NAME: &'static str = "all_virtual_services";
    type Key = ();
    type Value = List<VirtualService>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        ctx.get::<SortedVirtualServices>(&()).all.clone()
    }
}
