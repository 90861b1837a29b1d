//! All VirtualServices of the mesh in order.
//!
//! They are kept in stretches of their order: one that changes makes its own stretch be looked at again, and lists of all are
//! put together from stretches and sections.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::{DerivedVirtualServices, DerivedVirtualServicesIn, ResolvedVirtualService, VirtualService};
use crate::list::List;
use crate::order::{Chunk, ChunkGroup, Order, SortEntry};
use crate::world::NamespacesWith;
use crate::world::{ObjectIndex, Objects, Origin};

/// Where a VirtualService comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RouteLocator {
    /// Somebody wrote it.
    Written(Origin),
    /// It stands for an object of another kind, by its position among those of its namespace.
    Derived(Arc<str>, usize),
}

impl RouteLocator {
    /// The VirtualService, if it is one that has hosts.
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

/// Where the VirtualServices of a namespace come from: those that are written, then those that are derived.
pub(crate) fn locators_in(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Vec<RouteLocator> {
    let index = ObjectIndex::Namespace(Kind::VirtualService, namespace.as_ref().into());
    let written = ctx.members::<Objects>(&index);
    let written = written.iter().map(|origin| RouteLocator::Written(origin.clone()));
    let derived = 0..*ctx.get::<DerivedCount>(namespace);
    written.chain(derived.map(|at| RouteLocator::Derived(namespace.clone(), at))).collect()
}

/// How many VirtualServices of a namespace are derived.
struct DerivedCount;

impl Query for DerivedCount {
    const NAME: &'static str = "derived_virtual_service_count";
    type Key = Arc<str>;
    type Value = usize;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> usize {
        ctx.get::<DerivedVirtualServicesIn>(namespace).len()
    }
}

/// Where the VirtualServices of a namespace come in order among all.
struct SortEntriesIn;

impl Query for SortEntriesIn {
    const NAME: &'static str = "virtual_service_sort_entries_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<SortEntry<RouteLocator>>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let places = locators_in(ctx, namespace);
        let mut ranks: Vec<_> =
            places.iter().filter_map(|place| ctx.get::<SortEntryOf>(place).as_ref().clone()).collect();
        ranks.sort_by(|a, b| a.compare(b));
        ranks
    }
}

/// Where a VirtualService comes in order among all: that stays the same when it changes in other ways.
struct SortEntryOf;

impl Query for SortEntryOf {
    const NAME: &'static str = "virtual_service_sort_entry";
    type Key = RouteLocator;
    type Value = Option<Arc<SortEntry<RouteLocator>>>;

    fn run(ctx: &Ctx<'_>, place: &RouteLocator) -> Self::Value {
        let route = place.route(ctx)?;
        Some(Arc::new(SortEntry::new(route.created, route.name().into(), route.namespace(), place.clone())))
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

/// VirtualServices by who they are for, each list oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VirtualServiceLists {
    all: List<VirtualService>,
    /// Those for sidecars that everybody sees.
    pub(super) public: List<VirtualService>,
    /// Those for sidecars that not everybody sees.
    pub(super) restricted: List<VirtualService>,
    /// The namespaces with public routes of the Gateway API, which their own proxies see in another order.
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

/// The VirtualServices of a stretch of their order.
struct VirtualServicesInChunk;

impl Query for VirtualServicesInChunk {
    const NAME: &'static str = "virtual_services_in_chunk";
    type Key = Chunk<RouteLocator>;
    type Value = VirtualServiceLists;

    fn run(ctx: &Ctx<'_>, stretch: &Chunk<RouteLocator>) -> VirtualServiceLists {
        let all: Vec<_> = stretch.locators().filter_map(|place| place.route(ctx)).collect();
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

/// The VirtualServices of a section of their order.
struct VirtualServicesInChunkGroup;

impl Query for VirtualServicesInChunkGroup {
    const NAME: &'static str = "virtual_services_in_chunk_group";
    type Key = ChunkGroup<RouteLocator>;
    type Value = VirtualServiceLists;

    fn run(ctx: &Ctx<'_>, section: &ChunkGroup<RouteLocator>) -> VirtualServiceLists {
        let stretches: Vec<_> =
            section.chunks().map(|stretch| ctx.get::<VirtualServicesInChunk>(stretch)).collect();
        VirtualServiceLists::joined(&stretches)
    }
}

/// All VirtualServices, by who they are for.
pub(super) struct SortedVirtualServices;

impl Query for SortedVirtualServices {
    const NAME: &'static str = "sorted_virtual_services";
    type Key = ();
    type Value = VirtualServiceLists;

    fn run(ctx: &Ctx<'_>, (): &()) -> VirtualServiceLists {
        let order = ctx.get::<VirtualServiceOrder>(&());
        let sections: Vec<_> =
            order.groups.iter().map(|section| ctx.get::<VirtualServicesInChunkGroup>(section)).collect();
        VirtualServiceLists::joined(&sections)
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
