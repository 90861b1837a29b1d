//! What everybody sees, for proxies that import everything and for gateways: it is worked out once for all namespaces, and
//! stretch by stretch of the order of services, so that one service that changes costs one stretch.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use super::imports::one_namespace_each;
use super::sight::{Seen, Sight};
use crate::list::{List, Part};
use crate::order::Stretch;
use crate::service::{Definitions, InStretch, Named, Place, Service, ServiceOrder, ServicesOf, is_public};

/// What of all public services counts for a namespace that defines none of them itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommonServices {
    /// Those of one namespace for each host.
    pub(super) imported: List<Service>,
    /// What sidecars that import them see.
    pub(super) sidecars: Arc<Sight>,
    /// What gateways see.
    pub(super) gateways: Arc<Sight>,
    /// The namespaces with a host that others define too: their own definition is what counts for them.
    pub(super) contestants: BTreeSet<Arc<str>>,
}

/// All of [`CommonServices`].
pub(super) struct Common;

impl Query for Common {
    const NAME: &'static str = "common_services";
    type Key = ();
    type Value = CommonServices;

    fn run(ctx: &Ctx<'_>, (): &()) -> CommonServices {
        let order = ctx.get::<ServiceOrder>(&());
        let stretches: Vec<_> = order.stretches.iter().map(|one| ctx.get::<CommonInStretch>(one)).collect();
        let list = |part: fn(&CommonStretch) -> &Part<Service>| {
            List::of_parts(stretches.iter().map(|stretch| part(stretch).clone()))
        };
        CommonServices {
            imported: list(|stretch| &stretch.imported),
            sidecars: Arc::new(list(|stretch| &stretch.sidecars).into()),
            gateways: Arc::new(list(|stretch| &stretch.gateways).into()),
            contestants: stretches.iter().flat_map(|stretch| stretch.contestants.iter().cloned()).collect(),
        }
    }
}

/// [`CommonServices`] of a stretch of the order of services.
#[derive(Debug, PartialEq, Eq)]
struct CommonStretch {
    imported: Part<Service>,
    sidecars: Part<Service>,
    gateways: Part<Service>,
    contestants: BTreeSet<Arc<str>>,
}

/// All of [`CommonStretch`].
struct CommonInStretch;

impl Query for CommonInStretch {
    const NAME: &'static str = "common_services_in_stretch";
    type Key = Stretch<Place>;
    type Value = CommonStretch;

    fn run(ctx: &Ctx<'_>, stretch: &Stretch<Place>) -> CommonStretch {
        let services = ctx.get::<InStretch>(stretch);
        let is_sole = |service: &Arc<Service>| ctx.get::<Definitions>(&service.host).len() == 1;
        if services.public.iter().all(is_sole) {
            // Nearly always: what is public counts for all.
            let public = &services.public;
            return CommonStretch {
                imported: public.clone(),
                sidecars: public.clone(),
                gateways: public.clone(),
                contestants: BTreeSet::new(),
            };
        }
        let (mut imported, mut sidecars, mut gateways) = (Vec::new(), Vec::new(), Vec::new());
        let mut contestants = BTreeSet::new();
        // The order has a place for each service there is, and no other.
        for (place, service) in stretch.places().zip(services.all.iter()) {
            if !is_public(ctx, service) {
                continue;
            }
            let public = public_definitions(ctx, &service.host);
            let chosen = one_namespace_each(public.clone(), NO_NAMESPACE);
            if public.iter().any(|other| other.namespace != service.namespace) {
                contestants.insert(service.namespace.clone());
            }
            if chosen.first().is_some_and(|first| first.namespace == service.namespace) {
                imported.push(service.clone());
            }
            if is_first(ctx, place, service, &chosen) {
                sidecars.extend(merged(&chosen));
            }
            if is_first(ctx, place, service, &public) {
                gateways.extend(merged(&public));
            }
        }
        let (imported, sidecars, gateways) = (Arc::new(imported), Arc::new(sidecars), Arc::new(gateways));
        CommonStretch { imported, sidecars, gateways, contestants }
    }
}

/// The name of no namespace.
const NO_NAMESPACE: &str = "";

/// The definitions of a host that everybody sees, oldest first.
fn public_definitions(ctx: &Ctx<'_>, host: &Arc<str>) -> Vec<Arc<Service>> {
    let all = ctx.get::<Definitions>(host);
    all.iter().filter(|service| is_public(ctx, service)).cloned().collect()
}

/// The service that a host means where what everybody sees is imported.
pub(super) fn common_service(ctx: &Ctx<'_>, host: &Arc<str>) -> Option<Arc<Service>> {
    merged(&one_namespace_each(public_definitions(ctx, host), NO_NAMESPACE))
}

/// The one service that definitions of a host amount to.
fn merged(definitions: &[Arc<Service>]) -> Option<Arc<Service>> {
    let mut seen = Seen::default();
    seen.add_all(definitions);
    seen.into_services().pop()
}

/// Whether the service at a place is the first of these definitions of its host.
fn is_first(ctx: &Ctx<'_>, place: &Place, service: &Service, definitions: &[Arc<Service>]) -> bool {
    let Some(first) = definitions.first() else { return false };
    match place {
        Place::Kubernetes(_) => first.is_kubernetes(),
        Place::Entry(origin, at) => {
            let of_entry = ctx.get::<ServicesOf>(origin);
            first.origins.first() == Some(origin)
                && of_entry.iter().position(|one| one.host == service.host) == Some(*at)
        }
    }
}

/// The services that a namespace sees besides those that everybody does; `None` if some of them are of the same hosts.
pub(super) fn besides(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Option<Arc<Vec<Arc<Service>>>> {
    let named = ctx.get::<Named>(namespace);
    let is_apart = |service: &Arc<Service>| {
        let definitions = ctx.get::<Definitions>(&service.host);
        !definitions.iter().any(|definition| is_public(ctx, definition))
    };
    named.iter().all(is_apart).then_some(named)
}
