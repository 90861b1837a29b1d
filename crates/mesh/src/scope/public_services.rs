//! The public services as a namespace sees them that defines none of them itself.
//!
//! Computed once for the whole mesh and shared by every proxy that imports everything and by every gateway. The computation
//! follows the chunks of the service order, so an edited service costs one chunk. Where no host has a second definition,
//! which is nearly always, a chunk's public services are passed on as they are.

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

/// The public services as seen by a namespace that defines none of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PublicServiceLists {
    /// The definitions that a sidecar imports: of each host, those of one namespace.
    pub(super) imported: List<Service>,
    /// The services that sidecars see: of each host, the imported definitions merged into one.
    pub(super) sidecars: Arc<VisibleServices>,
    /// The services that gateways see: of each host, all definitions merged into one.
    pub(super) gateways: Arc<VisibleServices>,
    /// The namespaces that define a host which others define too. For them their own definition wins, so they cannot use these
    /// lists.
    pub(super) shadowing_namespaces: BTreeSet<Arc<str>>,
}

impl From<ChosenDefinitions> for PublicServiceLists {
    fn from(
        ChosenDefinitions { imported, sidecars, gateways, shadowing_namespaces }: ChosenDefinitions,
    ) -> Self {
        Self {
            imported,
            sidecars: Arc::new(sidecars.into()),
            gateways: Arc::new(gateways.into()),
            shadowing_namespaces,
        }
    }
}

/// The [`PublicServiceLists`] of the mesh.
pub(super) struct PublicServices;

impl Query for PublicServices {
    const NAME: &'static str = "public_services";
    type Key = ();
    type Value = PublicServiceLists;

    fn run(ctx: &Ctx<'_>, (): &()) -> PublicServiceLists {
        let order = ctx.get::<ServiceOrder>(&());
        let groups: Vec<_> = order.groups.iter().map(|one| ctx.get::<ChosenInChunkGroup>(one)).collect();
        ChosenDefinitions::joined(&groups).into()
    }
}

/// The definitions of some part of the service order that win.
#[derive(Debug, PartialEq, Eq)]
struct ChosenDefinitions {
    imported: List<Service>,
    sidecars: List<Service>,
    gateways: List<Service>,
    shadowing_namespaces: BTreeSet<Arc<str>>,
}

impl ChosenDefinitions {
    /// The result where no host has a second definition: the public services as they are.
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

/// The winning definitions of a group of chunks.
struct ChosenInChunkGroup;

impl Query for ChosenInChunkGroup {
    const NAME: &'static str = "public_services_in_chunk_group";
    type Key = ChunkGroup<ServiceLocator>;
    type Value = ChosenDefinitions;

    fn run(ctx: &Ctx<'_>, group: &ChunkGroup<ServiceLocator>) -> ChosenDefinitions {
        let services = ctx.get::<ServicesInChunkGroup>(group);
        if !services.has_duplicate_hosts {
            return ChosenDefinitions::without_duplicates(&services.public);
        }
        let chunks: Vec<_> = group.chunks().map(|one| ctx.get::<ChosenInChunk>(one)).collect();
        ChosenDefinitions::joined(&chunks)
    }
}

/// The winning definitions of a chunk.
struct ChosenInChunk;

impl Query for ChosenInChunk {
    const NAME: &'static str = "public_services_in_chunk";
    type Key = Chunk<ServiceLocator>;
    type Value = ChosenDefinitions;

    fn run(ctx: &Ctx<'_>, chunk: &Chunk<ServiceLocator>) -> ChosenDefinitions {
        let services = ctx.get::<ServicesInChunk>(chunk);
        if !services.has_duplicate_hosts {
            return ChosenDefinitions::without_duplicates(&services.public);
        }
        let (mut imported, mut sidecars, mut gateways) = (Vec::new(), Vec::new(), Vec::new());
        let mut shadowing_namespaces = BTreeSet::new();
        // The chunk has one locator for each service, in the same order.
        for (locator, service) in chunk.locators().zip(&services.all) {
            if !is_public(ctx, service) {
                continue;
            }
            let public = public_definitions(ctx, &service.host);
            let chosen = one_namespace_per_host(public.clone(), NO_NAMESPACE);
            if public.iter().any(|other| other.namespace != service.namespace) {
                shadowing_namespaces.insert(service.namespace.clone());
            }
            if chosen.first().is_some_and(|first| first.namespace == service.namespace) {
                imported.push(service.clone());
            }
            if locator.locates_first(ctx, &chosen) {
                sidecars.extend(merged(&chosen));
            }
            if locator.locates_first(ctx, &public) {
                gateways.extend(merged(&public));
            }
        }
        let (imported, sidecars, gateways) = (imported.into(), sidecars.into(), gateways.into());
        ChosenDefinitions { imported, sidecars, gateways, shadowing_namespaces }
    }
}

/// A namespace that defines nothing.
const NO_NAMESPACE: &str = "";

/// The public definitions of a host, oldest first.
fn public_definitions(ctx: &Ctx<'_>, host: &Arc<str>) -> Vec<Arc<Service>> {
    let all = ctx.get::<HostDefinitions>(host);
    all.iter().filter(|service| is_public(ctx, service)).cloned().collect()
}

/// Resolves a host among the public services, for a sidecar that imports everything.
pub(super) fn public_service(ctx: &Ctx<'_>, host: &Arc<str>) -> Option<Arc<Service>> {
    merged(&one_namespace_per_host(public_definitions(ctx, host), NO_NAMESPACE))
}

/// Merges the definitions of a host into one service.
fn merged(definitions: &[Arc<Service>]) -> Option<Arc<Service>> {
    let mut set = ServiceSet::default();
    set.add_all(definitions);
    set.into_services().pop()
}

/// The services that are exported to a namespace by name, in addition to the public ones. Returns `None` if one of them has
/// the host of a public service, because the two would have to be merged.
pub(super) fn also_exported(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Option<Arc<Vec<Arc<Service>>>> {
    let named = ctx.get::<ServicesExportedTo>(namespace);
    let is_apart = |service: &Arc<Service>| {
        let definitions = ctx.get::<HostDefinitions>(&service.host);
        !definitions.iter().any(|definition| is_public(ctx, definition))
    };
    named.iter().all(is_apart).then_some(named)
}
