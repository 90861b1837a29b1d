//! All VirtualServices of the mesh in order.
//!
//! They are kept in stretches of their order: one that changes makes its own stretch be looked at again, and lists of all are
//! put together from stretches.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::{Derived, DerivedIn, Resolved, VirtualService, by_age};
use crate::list::{List, Part};
use crate::namespaces::NamespacesWith;
use crate::order::{Order, Rank, Stretch};
use crate::world::{Objects, Origin, Shelf};

/// Where a VirtualService comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Somebody wrote it.
    Written(Origin),
    /// It stands for an object of another kind, by its position among those of its namespace.
    Derived(Arc<str>, usize),
}

impl Place {
    fn route(&self, ctx: &Ctx<'_>) -> Option<Arc<VirtualService>> {
        match self {
            Self::Written(origin) => ctx.get::<Resolved>(origin).as_ref().clone(),
            Self::Derived(namespace, at) => ctx.get::<DerivedIn>(namespace).get(*at).cloned(),
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
        let (written, derived) = (ctx.get::<NamespacesWith>(&Kind::VirtualService), ctx.get::<Derived>(&()));
        let mut namespaces: Vec<_> = written.iter().chain(derived.by_namespace.keys()).cloned().collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }
}

/// Where the VirtualServices of a namespace come in order among all.
struct RanksIn;

impl Query for RanksIn {
    const NAME: &'static str = "virtual_service_ranks_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<Rank<Place>>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let origins =
            ctx.members::<Objects>(&Shelf::Namespace(Kind::VirtualService, namespace.as_ref().into()));
        let written = origins.iter().map(|origin| Place::Written(origin.clone()));
        let derived = 0..ctx.get::<DerivedIn>(namespace).len();
        let derived = derived.map(|at| Place::Derived(namespace.clone(), at));
        let route = |place: Place| Some((place.route(ctx)?, place));
        let mut placed: Vec<_> = written.chain(derived).filter_map(route).collect();
        placed.sort_by(|(a, _), (b, _)| by_age(a, b));
        let rank = |(route, place): (Arc<VirtualService>, Place)| {
            Arc::new(Rank::new(route.created, route.name().into(), namespace, place))
        };
        placed.into_iter().map(rank).collect()
    }
}

/// The order of all VirtualServices.
pub(super) struct VirtualServiceOrder;

impl Query for VirtualServiceOrder {
    const NAME: &'static str = "virtual_service_order";
    type Key = ();
    type Value = Order<Place>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        Order::new(&ctx.get::<RouteNamespaces>(&()), |namespace| ctx.get::<RanksIn>(namespace))
    }
}

/// VirtualServices by who they are for, each part oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sorted {
    all: Part<VirtualService>,
    /// Those for sidecars that everybody sees.
    pub(super) public: Part<VirtualService>,
    /// Those for sidecars that not everybody sees.
    pub(super) restricted: Part<VirtualService>,
    /// The namespaces with public routes of the Gateway API, which their own proxies see in another order.
    pub(super) consumers: BTreeSet<Arc<str>>,
}

/// The VirtualServices of a stretch of their order.
pub(super) struct InStretch;

impl Query for InStretch {
    const NAME: &'static str = "virtual_services_in_stretch";
    type Key = Stretch<Place>;
    type Value = Sorted;

    fn run(ctx: &Ctx<'_>, stretch: &Stretch<Place>) -> Sorted {
        let all: Vec<_> = stretch.places().filter_map(|place| place.route(ctx)).collect();
        let for_sidecars = all.iter().filter(|route| route.is_for_sidecars()).cloned();
        let (public, restricted): (Vec<_>, Vec<_>) = for_sidecars.partition(|route| route.is_public());
        let of_consumers = public.iter().filter(|route| route.is_gateway_api());
        let consumers = of_consumers.map(|route| route.namespace().into()).collect();
        let all = Arc::new(all);
        let public = if public.len() == all.len() { all.clone() } else { Arc::new(public) };
        Sorted { all, public, restricted: Arc::new(restricted), consumers }
    }
}

/// Every VirtualService that has hosts, whether written or derived from another kind of object, oldest first.
pub struct AllVirtualServices;

impl Query for AllVirtualServices {
    const NAME: &'static str = "all_virtual_services";
    type Key = ();
    type Value = List<VirtualService>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let order = ctx.get::<VirtualServiceOrder>(&());
        List::of_parts(order.stretches.iter().map(|stretch| ctx.get::<InStretch>(stretch).all.clone()))
    }
}
