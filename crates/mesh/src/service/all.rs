//! All services of the mesh in order, and who sees which.
//!
//! They are kept in stretches of their order: one that changes makes its own stretch be looked at again, and lists of all are
//! put together from stretches.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::index::{Additions, by_age, entries_in, kubernetes_in};
use super::{KubernetesService, Reach, Service, ServicesOf, is_public, reach};
use crate::list::{List, Part};
use crate::namespaces::NamespacesWith;
use crate::order::{Order, Rank, Stretch};
use crate::world::{Origin, settings};

/// Where a service is defined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In Kubernetes, by namespace and name.
    Kubernetes((Arc<str>, Arc<str>)),
    /// In a ServiceEntry, by its position among those of the entry.
    Entry(Origin, usize),
}

impl Place {
    fn service(&self, ctx: &Ctx<'_>) -> Option<Arc<Service>> {
        match self {
            Self::Kubernetes(key) => ctx.get::<KubernetesService>(key).as_ref().clone(),
            Self::Entry(origin, at) => ctx.get::<ServicesOf>(origin).get(*at).cloned(),
        }
    }
}

/// Where the services of a namespace come in order among all.
struct RanksIn;

impl Query for RanksIn {
    const NAME: &'static str = "service_ranks_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<Rank<Place>>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let kube = kubernetes_in(ctx, namespace).into_iter();
        let mut placed: Vec<_> = kube.map(|(key, service)| (Place::Kubernetes(key), service)).collect();
        for (origin, services) in entries_in(ctx, namespace) {
            let of_entry = services.iter().cloned().enumerate();
            placed.extend(of_entry.map(|(at, service)| (Place::Entry(origin.clone(), at), service)));
        }
        placed.sort_by(|(_, a), (_, b)| by_age(a, b));
        let rank = |(place, service): (Place, Arc<Service>)| {
            Arc::new(Rank::new(service.created, service.name.clone(), namespace, place))
        };
        placed.into_iter().map(rank).collect()
    }
}

/// The order of all services.
pub(crate) struct ServiceOrder;

impl Query for ServiceOrder {
    const NAME: &'static str = "service_order";
    type Key = ();
    type Value = Order<Place>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let of_kind = |kind| ctx.get::<NamespacesWith>(&kind);
        let (kube, entries) = (of_kind(Kind::Service), of_kind(Kind::ServiceEntry));
        let mut namespaces: Vec<Arc<str>> = kube.iter().chain(entries.iter()).cloned().collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        Order::new(&namespaces, |namespace| ctx.get::<RanksIn>(namespace))
    }
}

/// Services by who may see them, each part oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// All, one for each place of the stretch.
    pub(crate) all: Part<Service>,
    /// What everybody sees.
    pub(crate) public: Part<Service>,
    restricted: Part<Service>,
}

/// The services of a stretch of their order.
pub(crate) struct InStretch;

impl Query for InStretch {
    const NAME: &'static str = "services_in_stretch";
    type Key = Stretch<Place>;
    type Value = Reached;

    fn run(ctx: &Ctx<'_>, stretch: &Stretch<Place>) -> Reached {
        let additions = Additions::of(ctx);
        let services = stretch.places().filter_map(|place| place.service(ctx));
        let all: Vec<_> = services.map(|service| additions.add_to(service)).collect();
        let (public, restricted): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|service| is_public(ctx, service));
        let all = Arc::new(all);
        let public = if restricted.is_empty() { all.clone() } else { Arc::new(public) };
        Reached { all, public, restricted: Arc::new(restricted) }
    }
}

/// A list of what each stretch has.
fn of_stretches(ctx: &Ctx<'_>, part: impl Fn(&Reached) -> Part<Service>) -> List<Service> {
    let order = ctx.get::<ServiceOrder>(&());
    List::of_parts(order.stretches.iter().map(|stretch| part(&ctx.get::<InStretch>(stretch))))
}

/// Every service of the mesh, oldest first.
pub struct AllServices;

impl Query for AllServices {
    const NAME: &'static str = "all_services";
    type Key = ();
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        of_stretches(ctx, |reached| reached.all.clone())
    }
}

/// The services that not everybody may see, oldest first.
struct Restricted;

impl Query for Restricted {
    const NAME: &'static str = "restricted_services";
    type Key = ();
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        of_stretches(ctx, |reached| reached.restricted.clone())
    }
}

/// The services that are exported to a namespace by its name, oldest first.
pub(crate) struct Named;

impl Query for Named {
    const NAME: &'static str = "services_exported_to";
    type Key = Arc<str>;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let (settings, restricted) = (settings(ctx), ctx.get::<Restricted>(&()));
        let is_named = |service: &&Arc<Service>| reach(&settings, service, namespace) == Reach::Named;
        restricted.iter().filter(is_named).cloned().collect()
    }
}

/// The services proxies of a namespace may see: those exported to it by name first, then public ones; each oldest first.
pub struct VisibleServices;

impl Query for VisibleServices {
    const NAME: &'static str = "visible_services";
    type Key = Arc<str>;
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let public = of_stretches(ctx, |reached| reached.public.clone());
        List::before(ctx.get::<Named>(namespace), &public)
    }
}
