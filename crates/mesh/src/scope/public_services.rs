//! What everybody sees, for proxies that import everything and for gateways: it is worked out once for all namespaces, and
//! stretch by stretch of the order of services, so that one service that changes costs one stretch.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use super::host_filter::one_namespace_per_host;
use super::visible_services::{ServiceSet, VisibleServices};
use crate::list::List;
use crate::order::{Chunk, ChunkGroup};
use crate::service::{
    HostDefinitions, Service, ServiceLocator, ServiceOrder, ServicesExportedTo, ServicesInChunk,
    ServicesInChunkGroup, is_public,
};

/// What of all public services counts for a namespace that defines none of them itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PublicServiceLists {
    /// Those of one namespace for each host.
    pub(super) imported: List<Service>,
    /// What sidecars that import them see.
    pub(super) sidecars: Arc<VisibleServices>,
    /// What gateways see.
    pub(super) gateways: Arc<VisibleServices>,
    /// The namespaces with a host that others define too: their own definition is what counts for them.
    pub(super) shadowing_namespaces: BTreeSet<Arc<str>>,
}

impl From<ChosenDefinitions> for PublicServiceLists {
    fn from(
        ChosenDefinitions { imported, sidecars, gateways, shadowing_namespaces: contestants }: ChosenDefinitions,
    ) -> Self {
        Self {
            imported,
            sidecars: Arc::new(sidecars.into()),
            gateways: Arc::new(gateways.into()),
            shadowing_namespaces: contestants,
        }
    }
}

/// All of [`CommonServices`].
pub(super) struct PublicServices;

impl Query for PublicServices {
    const NAME: &'static str = "public_services";
    type Key = ();
    type Value = PublicServiceLists;

    fn run(ctx: &Ctx<'_>, (): &()) -> PublicServiceLists {
        let order = ctx.get::<ServiceOrder>(&());
        let sections: Vec<_> = order.groups.iter().map(|one| ctx.get::<ChosenInChunkGroup>(one)).collect();
        ChosenDefinitions::joined(&sections).into()
    }
}

/// What counts of some services.
#[derive(Debug, PartialEq, Eq)]
struct ChosenDefinitions {
    imported: List<Service>,
    sidecars: List<Service>,
    gateways: List<Service>,
    shadowing_namespaces: BTreeSet<Arc<str>>,
}

impl ChosenDefinitions {
    /// Nearly always: what is public counts for all.
    fn without_duplicates(public: &List<Service>) -> Self {
        Self {
            imported: public.clone(),
            sidecars: public.clone(),
            gateways: public.clone(),
            shadowing_namespaces: BTreeSet::new(),
        }
    }

    fn joined(parts: &[Arc<Self>]) -> Self {
        let list = |part: fn(&Self) -> &List<Service>| List::concat(parts.iter().map(|chosen| part(chosen)));
        Self {
            imported: list(|chosen| &chosen.imported),
            sidecars: list(|chosen| &chosen.sidecars),
            gateways: list(|chosen| &chosen.gateways),
            shadowing_namespaces: parts
                .iter()
                .flat_map(|chosen| chosen.shadowing_namespaces.iter().cloned())
                .collect(),
        }
    }
}

/// What counts of a section of the order of services.
struct ChosenInChunkGroup;

impl Query for ChosenInChunkGroup {
    const NAME: &'static str = "public_services_in_chunk_group";
    type Key = ChunkGroup<ServiceLocator>;
    type Value = ChosenDefinitions;

    fn run(ctx: &Ctx<'_>, section: &ChunkGroup<ServiceLocator>) -> ChosenDefinitions {
        let services = ctx.get::<ServicesInChunkGroup>(section);
        if !services.has_duplicate_hosts {
            return ChosenDefinitions::without_duplicates(&services.public);
        }
        let stretches: Vec<_> = section.chunks().map(|one| ctx.get::<ChosenInChunk>(one)).collect();
        ChosenDefinitions::joined(&stretches)
    }
}

/// What counts of a stretch of the order of services.
struct ChosenInChunk;

impl Query for ChosenInChunk {
    const NAME: &'static str = "public_services_in_chunk";
    type Key = Chunk<ServiceLocator>;
    type Value = ChosenDefinitions;

    fn run(ctx: &Ctx<'_>, stretch: &Chunk<ServiceLocator>) -> ChosenDefinitions {
        let services = ctx.get::<ServicesInChunk>(stretch);
        if !services.has_duplicate_hosts {
            return ChosenDefinitions::without_duplicates(&services.public);
        }
        let (mut imported, mut sidecars, mut gateways) = (Vec::new(), Vec::new(), Vec::new());
        let mut contestants = BTreeSet::new();
        // The order has a place for each service there is, and no other.
        for (place, service) in stretch.locators().zip(&services.all) {
            if !is_public(ctx, service) {
                continue;
            }
            let public = public_definitions(ctx, &service.host);
            let chosen = one_namespace_per_host(public.clone(), NO_NAMESPACE);
            if public.iter().any(|other| other.namespace != service.namespace) {
                contestants.insert(service.namespace.clone());
            }
            if chosen.first().is_some_and(|first| first.namespace == service.namespace) {
                imported.push(service.clone());
            }
            if place.locates_first(ctx, &chosen) {
                sidecars.extend(merged(&chosen));
            }
            if place.locates_first(ctx, &public) {
                gateways.extend(merged(&public));
            }
        }
        let (imported, sidecars, gateways) = (imported.into(), sidecars.into(), gateways.into());
        ChosenDefinitions { imported, sidecars, gateways, shadowing_namespaces: contestants }
    }
}

/// The name of no namespace.
const NO_NAMESPACE: &str = "";

/// The definitions of a host that everybody sees, oldest first.
fn public_definitions(ctx: &Ctx<'_>, host: &Arc<str>) -> Vec<Arc<Service>> {
    let all = ctx.get::<HostDefinitions>(host);
    all.iter().filter(|service| is_public(ctx, service)).cloned().collect()
}

/// The service that a host means where what everybody sees is imported.
pub(super) fn public_service(ctx: &Ctx<'_>, host: &Arc<str>) -> Option<Arc<Service>> {
    merged(&one_namespace_per_host(public_definitions(ctx, host), NO_NAMESPACE))
}

/// The one service that definitions of a host amount to.
fn merged(definitions: &[Arc<Service>]) -> Option<Arc<Service>> {
    let mut seen = ServiceSet::default();
    seen.add_all(definitions);
    seen.into_services().pop()
}

/// The services that a namespace sees besides those that everybody does; `None` if some of them are of the same hosts.
pub(super) fn also_exported(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Option<Arc<Vec<Arc<Service>>>> {
    let named = ctx.get::<ServicesExportedTo>(namespace);
    let is_apart = |service: &Arc<Service>| {
        let definitions = ctx.get::<HostDefinitions>(&service.host);
        !definitions.iter().any(|definition| is_public(ctx, definition))
    };
    named.iter().all(is_apart).then_some(named)
}
