//! All services of the mesh in order, and who sees which.
//!
//! They are kept in stretches of their order: one that changes makes its own stretch be looked at again, and lists of all are
//! put together from stretches and sections.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::index::{Additions, Definitions, entries_in, kubernetes_names_in};
use super::{KubernetesService, Reach, Service, ServicesOf, is_public, reach};
use crate::list::List;
use crate::namespaces::NamespacesWith;
use crate::order::{Order, Rank, Section, Stretch};
use crate::world::{Origin, settings};

/// Where a service is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    host: Arc<str>,
    definition: Definition,
}

/// What defines a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Definition {
    /// Kubernetes, by this name.
    Kubernetes(Arc<str>, Arc<str>),
    /// A ServiceEntry, by the position among those it defines.
    Entry(Origin, usize),
}

impl Place {
    fn service(&self, ctx: &Ctx<'_>) -> Option<Arc<Service>> {
        let service = match &self.definition {
            Definition::Kubernetes(namespace, name) => {
                ctx.get::<KubernetesService>(&(namespace.clone(), name.clone())).as_ref().clone()
            }
            Definition::Entry(origin, at) => ctx.get::<ServicesOf>(origin).get(*at).cloned(),
        };
        Some(Additions::of(ctx).add_to(service?))
    }

    /// Whether what is found here is the first of these definitions of its host.
    pub(crate) fn is_of_first(&self, ctx: &Ctx<'_>, definitions: &[Arc<Service>]) -> bool {
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

/// Where the services of a namespace come in order among all.
struct RanksIn;

impl Query for RanksIn {
    const NAME: &'static str = "service_ranks_in";
    type Key = Arc<str>;
    type Value = Ranks;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Ranks {
        let names = kubernetes_names_in(ctx, namespace).into_iter();
        let mut ranks: Vec<_> =
            names.flat_map(|name| ctx.get::<KubernetesRank>(&(namespace.clone(), name)).to_vec()).collect();
        for origin in entries_in(ctx, namespace).iter() {
            ranks.extend_from_slice(&ctx.get::<EntryRanks>(origin));
        }
        ranks.sort_by(|a, b| a.compare(b));
        ranks
    }
}

/// Where services come in order among all.
type Ranks = Vec<Arc<Rank<Place>>>;

fn rank(service: &Service, definition: Definition) -> Arc<Rank<Place>> {
    let place = Place { host: service.host.clone(), definition };
    Arc::new(Rank::new(service.created, service.name.clone(), &service.namespace, place))
}

/// Where a Kubernetes service comes in order among all, if there is one: that stays the same when it changes in other ways.
struct KubernetesRank;

impl Query for KubernetesRank {
    const NAME: &'static str = "kubernetes_service_rank";
    /// Namespace and name.
    type Key = (Arc<str>, Arc<str>);
    type Value = Ranks;

    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Ranks {
        let service = ctx.get::<KubernetesService>(key);
        let definition = || Definition::Kubernetes(key.0.clone(), key.1.clone());
        service.iter().map(|service| rank(service, definition())).collect()
    }
}

/// Where the services of a ServiceEntry come in order among all.
struct EntryRanks;

impl Query for EntryRanks {
    const NAME: &'static str = "service_entry_ranks";
    type Key = Origin;
    type Value = Ranks;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Ranks {
        let services = ctx.get::<ServicesOf>(origin);
        let services = services.iter().enumerate();
        services.map(|(at, service)| rank(service, Definition::Entry(origin.clone(), at))).collect()
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

/// Services by who may see them, each list oldest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// All, one for each place.
    pub(crate) all: List<Service>,
    /// What everybody sees.
    pub(crate) public: List<Service>,
    restricted: List<Service>,
    /// Whether some have a host that has other definitions too.
    pub(crate) is_contested: bool,
}

impl Reached {
    fn joined(parts: &[Arc<Self>]) -> Self {
        let list =
            |part: fn(&Self) -> &List<Service>| List::joined(parts.iter().map(|reached| part(reached)));
        let restricted = list(|reached| &reached.restricted);
        let all = list(|reached| &reached.all);
        let public = if restricted.is_empty() { all.clone() } else { list(|reached| &reached.public) };
        Self { all, public, restricted, is_contested: parts.iter().any(|reached| reached.is_contested) }
    }
}

/// The services of a stretch of their order.
pub(crate) struct InStretch;

impl Query for InStretch {
    const NAME: &'static str = "services_in_stretch";
    type Key = Stretch<Place>;
    type Value = Reached;

    fn run(ctx: &Ctx<'_>, stretch: &Stretch<Place>) -> Reached {
        let mut is_contested = false;
        let service = |place: &Place| match &ctx.get::<Definitions>(&place.host)[..] {
            [only] => Some(only.clone()),
            _ => {
                is_contested = true;
                place.service(ctx)
            }
        };
        let all: Vec<_> = stretch.places().filter_map(service).collect();
        let (public, restricted): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|service| is_public(ctx, service));
        let (all, restricted) = (List::from(all), List::from(restricted));
        let public = if restricted.is_empty() { all.clone() } else { public.into() };
        Reached { all, public, restricted, is_contested }
    }
}

/// The services of a section of their order.
pub(crate) struct InSection;

impl Query for InSection {
    const NAME: &'static str = "services_in_section";
    type Key = Section<Place>;
    type Value = Reached;

    fn run(ctx: &Ctx<'_>, section: &Section<Place>) -> Reached {
        let stretches: Vec<_> = section.stretches().map(|stretch| ctx.get::<InStretch>(stretch)).collect();
        Reached::joined(&stretches)
    }
}

/// All services.
struct ByReach;

impl Query for ByReach {
    const NAME: &'static str = "services_by_reach";
    type Key = ();
    type Value = Reached;

    fn run(ctx: &Ctx<'_>, (): &()) -> Reached {
        let order = ctx.get::<ServiceOrder>(&());
        let sections: Vec<_> = order.sections.iter().map(|section| ctx.get::<InSection>(section)).collect();
        Reached::joined(&sections)
    }
}

/// Every service of the mesh, oldest first.
pub struct AllServices;

impl Query for AllServices {
    const NAME: &'static str = "all_services";
    type Key = ();
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        ctx.get::<ByReach>(&()).all.clone()
    }
}

/// The services that not everybody may see, oldest first.
struct Restricted;

impl Query for Restricted {
    const NAME: &'static str = "restricted_services";
    type Key = ();
    type Value = List<Service>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        ctx.get::<ByReach>(&()).restricted.clone()
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
        List::before(ctx.get::<Named>(namespace), &ctx.get::<ByReach>(&()).public)
    }
}
