//! What the mesh consists of, counted when somebody asks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use canopus_api::istio::DestinationRule;
use canopus_api::kube::EndpointSlice;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::{Ctx, Query, Snapshot};
use canopus_mesh::endpoint::{Endpoints, Health};
use canopus_mesh::service::{AllServices, Registry as ServiceRegistry, Resolution};
use canopus_mesh::world::{Objects, Origin, Settings, Shelf, objects_of};
use canopus_runtime::metrics::catalogue::{
    CANOPUS_CLIENTS_BEHIND, CANOPUS_ENGINE_EVALUATIONS_TOTAL, CANOPUS_ENGINE_INPUTS, CANOPUS_ENGINE_RESULTS,
    CANOPUS_OBJECTS_NOT_CONVERGED, CANOPUS_QUARANTINE_TOTAL, CANOPUS_QUARANTINED_OBJECTS, ENDPOINT_NO_POD,
    ISTIOD_MANAGED_CLUSTERS, PILOT_DESTRULE_SUBSETS, PILOT_DNS_CLUSTER_WITHOUT_ENDPOINTS,
    PILOT_EDS_NO_INSTANCES, PILOT_ENDPOINT_NOT_READY, PILOT_K8S_ENDPOINTS_PENDING_POD, PILOT_SERVICES,
    PILOT_VIRT_SERVICES,
};
use canopus_runtime::metrics::{Collected, Registry};
use canopus_xds::types;

use super::events::pods_behind;
use crate::push::Dispatcher;

/// Has the registry look at the mesh behind a dispatcher at each scrape.
pub fn collect_model(registry: &Registry, dispatcher: &Arc<Dispatcher>) {
    let dispatcher: Weak<Dispatcher> = Arc::downgrade(dispatcher);
    let pending_before = AtomicBool::new(false);
    registry.collect(move |collected| {
        if let Some(dispatcher) = dispatcher.upgrade() {
            collect(collected, &dispatcher, &pending_before);
        }
    });
}

fn collect(collected: &mut Collected, dispatcher: &Dispatcher, pending_before: &AtomicBool) {
    let world = dispatcher.engine().snapshot();
    let counts = world.get::<Counts>(&()).map(|counts| counts.as_ref().clone()).unwrap_or_default();
    collected.push(PILOT_SERVICES, [], counts.services as f64);
    collected.push(PILOT_VIRT_SERVICES, [], counts.virtual_services as f64);
    collected.push(PILOT_ENDPOINT_NOT_READY, [], counts.not_ready as f64);
    collected.push(ENDPOINT_NO_POD, [], counts.without_pod as f64);
    collected.push(PILOT_DESTRULE_SUBSETS, [], counts.duplicate_subsets as f64);
    collected.push(PILOT_EDS_NO_INSTANCES, [], empty_assignments(dispatcher, &world) as f64);
    collected.push(PILOT_DNS_CLUSTER_WITHOUT_ENDPOINTS, [], counts.unresolvable as f64);
    // Told once there was any, as it is then worth watching.
    if pending_before.fetch_or(counts.pending > 0, Ordering::Relaxed) || counts.pending > 0 {
        collected.push(PILOT_K8S_ENDPOINTS_PENDING_POD, [], counts.pending as f64);
    }
    clusters(collected, &world);
    let behind = dispatcher.connections().all().iter().filter(|one| !one.outstanding().is_empty()).count();
    collected.push(CANOPUS_CLIENTS_BEHIND, [], behind as f64);
    collected.push(CANOPUS_OBJECTS_NOT_CONVERGED, [], dispatcher.ledger().unconverged().len() as f64);
    collected.push(CANOPUS_QUARANTINED_OBJECTS, [], dispatcher.quarantine().len() as f64);
    collected.push(CANOPUS_QUARANTINE_TOTAL, [], dispatcher.quarantine().total() as f64);
    let stats = dispatcher.engine().stats();
    collected.push(CANOPUS_ENGINE_INPUTS, [], stats.inputs as f64);
    collected.push(CANOPUS_ENGINE_RESULTS, [], stats.memos as f64);
    collected.push(CANOPUS_ENGINE_EVALUATIONS_TOTAL, [], stats.evaluations as f64);
}

fn clusters(collected: &mut Collected, world: &Snapshot) {
    let own = world.read::<Settings>(&()).map(|settings| settings.cluster.clone()).unwrap_or_default();
    let keys = world.keys::<Objects>();
    let remote: BTreeSet<_> =
        keys.iter().map(|origin| &origin.cluster).filter(|name| **name != own).collect();
    collected.push(ISTIOD_MANAGED_CLUSTERS, ["local"], 1.0);
    collected.push(ISTIOD_MANAGED_CLUSTERS, ["remote"], remote.len() as f64);
}

/// The clusters some client asks endpoints for and gets none.
fn empty_assignments(dispatcher: &Dispatcher, world: &Snapshot) -> usize {
    let mut asked = BTreeSet::new();
    for connection in dispatcher.connections().all() {
        let interest = connection.status(types::ENDPOINT).and_then(|status| status.interest);
        let names = interest.as_ref().and_then(|interest| interest.names());
        asked.extend(names.into_iter().flat_map(|names| names.iter().cloned()));
    }
    let Ok(services) = world.get::<AllServices>(&()) else { return 0 };
    let is_empty = |name: &str| {
        let host = name.rsplit('|').next().unwrap_or_default();
        let service = services.iter().find(|service| *service.host == *host);
        service.is_some_and(|service| {
            world.get::<Endpoints>(&service.key()).is_ok_and(|endpoints| endpoints.is_empty())
        })
    };
    asked.iter().filter(|name| is_empty(name)).count()
}

/// What there is of everything.
#[derive(Clone, Debug, Default, PartialEq)]
struct Numbers {
    services: usize,
    virtual_services: usize,
    not_ready: usize,
    without_pod: usize,
    /// Those of them that are to have a pod.
    pending: usize,
    unresolvable: usize,
    duplicate_subsets: usize,
}

struct Counts;

impl Query for Counts {
    const NAME: &'static str = "counts_of_model";
    type Key = ();
    type Value = Numbers;

    fn run(ctx: &Ctx<'_>, (): &()) -> Numbers {
        let services = ctx.get::<AllServices>(&());
        let mut numbers = Numbers {
            services: services.len(),
            virtual_services: ctx.members::<Objects>(&Shelf::Kind(Kind::VirtualService)).len(),
            duplicate_subsets: duplicate_subsets(ctx),
            ..Numbers::default()
        };
        for service in services.iter() {
            let endpoints = ctx.get::<Endpoints>(&service.key());
            numbers.not_ready += endpoints.iter().filter(|one| one.health == Health::Unhealthy).count();
            let of_cluster = endpoints.iter().filter(|one| one.registry == ServiceRegistry::Kubernetes);
            numbers.without_pod += of_cluster.filter(|one| one.workload.origin.is_none()).count();
            let dns = matches!(service.resolution, Resolution::Dns | Resolution::DnsRoundRobin);
            numbers.unresolvable += usize::from(dns && endpoints.is_empty());
        }
        if numbers.without_pod > 0 {
            numbers.pending = pending(ctx);
        }
        numbers
    }
}

/// Endpoints whose pod is named and not known.
fn pending(ctx: &Ctx<'_>) -> usize {
    let slices: Vec<(Origin, Arc<EndpointSlice>)> = objects_of(ctx);
    let missing = |(origin, slice): &(Origin, Arc<EndpointSlice>)| {
        let is_missing = |pod: &ObjectKey| {
            ctx.read::<Objects>(&Origin::new(origin.cluster.clone(), pod.clone())).is_none()
        };
        pods_behind(slice).filter(is_missing).count()
    };
    slices.iter().map(missing).sum()
}

/// Subsets that an earlier rule for the same host of the same namespace has already.
fn duplicate_subsets(ctx: &Ctx<'_>) -> usize {
    let mut seen = BTreeSet::new();
    let mut duplicates = 0;
    let rules: Vec<(Origin, Arc<DestinationRule>)> = objects_of(ctx);
    for (origin, rule) in &rules {
        for subset in &rule.spec.subsets {
            let key = (origin.namespace().to_owned(), rule.spec.host.clone(), subset.name.clone());
            duplicates += usize::from(!seen.insert(key));
        }
    }
    duplicates
}
