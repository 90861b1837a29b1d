//! What the mesh consists of, counted when somebody asks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use canopus_api::Kind;
use canopus_api::istio::DestinationRule;
use canopus_api::kube::EndpointSlice;
use canopus_api::labels::KUBERNETES_SERVICE_NAME;
use canopus_engine::{Ctx, Query, Snapshot};
use canopus_mesh::endpoint::{Endpoints, Health};
use canopus_mesh::service::{AllServices, Resolution};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, Settings, all_objects, object};
use canopus_runtime::metrics::catalogue::{
    CANOPUS_CLIENTS_BEHIND, CANOPUS_ENGINE_EVALUATIONS_TOTAL, CANOPUS_ENGINE_INPUTS, CANOPUS_ENGINE_RESULTS,
    CANOPUS_OBJECTS_NOT_CONVERGED, CANOPUS_QUARANTINE_TOTAL, CANOPUS_QUARANTINED_OBJECTS,
    CANOPUS_TASK_PANICS_TOTAL, ENDPOINT_NO_POD, ISTIOD_MANAGED_CLUSTERS, PILOT_DESTRULE_SUBSETS,
    PILOT_DNS_CLUSTER_WITHOUT_ENDPOINTS, PILOT_ENDPOINT_NOT_READY, PILOT_K8S_ENDPOINTS_PENDING_POD,
    PILOT_SERVICES, PILOT_VIRT_SERVICES,
};
use canopus_runtime::metrics::{Collected, Registry};
use canopus_runtime::tasks;

use super::clients;
use super::events::pods_behind;
use super::mishaps::Mishaps;
use crate::push::{Dispatcher, Ledger};
use crate::quarantine::Quarantine;

/// Registers metrics that read the mesh behind a dispatcher at each scrape.
pub fn collect_model(
    registry: &Registry,
    dispatcher: &Arc<Dispatcher>,
    ledger: Arc<Ledger>,
    quarantine: Arc<Quarantine>,
) {
    let dispatcher: Weak<Dispatcher> = Arc::downgrade(dispatcher);
    let pending_before = AtomicBool::new(false);
    let mishaps = Mishaps::new(registry);
    registry.collect(move |collected| {
        if let Some(dispatcher) = dispatcher.upgrade() {
            collect(collected, &dispatcher, &ledger, &quarantine, &pending_before);
            mishaps.look(&dispatcher.engine().snapshot(), &dispatcher.connections().all());
        }
    });
}

fn collect(
    collected: &mut Collected,
    dispatcher: &Dispatcher,
    ledger: &Ledger,
    quarantine: &Quarantine,
    pending_before: &AtomicBool,
) {
    let world = dispatcher.engine().snapshot();
    let counts = world.get::<Counts>(&()).map(|counts| counts.as_ref().clone()).unwrap_or_default();
    collected.push(PILOT_SERVICES, [], counts.services as f64);
    collected.push(PILOT_VIRT_SERVICES, [], counts.virtual_services as f64);
    collected.push(PILOT_ENDPOINT_NOT_READY, [], counts.not_ready as f64);
    collected.push(ENDPOINT_NO_POD, [], counts.without_pod as f64);
    collected.push(PILOT_DESTRULE_SUBSETS, [], counts.duplicate_subsets as f64);
    collected.push(PILOT_DNS_CLUSTER_WITHOUT_ENDPOINTS, [], counts.unresolvable as f64);
    // Logged once there were any, as the count is then worth watching.
    if pending_before.fetch_or(counts.pending > 0, Ordering::Relaxed) || counts.pending > 0 {
        collected.push(PILOT_K8S_ENDPOINTS_PENDING_POD, [], counts.pending as f64);
    }
    clusters(collected, &world);
    let connections = dispatcher.connections().all();
    clients::collect(collected, &world, &connections);
    let behind = connections.iter().filter(|one| !one.outstanding().is_empty()).count();
    collected.push(CANOPUS_CLIENTS_BEHIND, [], behind as f64);
    collected.push(CANOPUS_OBJECTS_NOT_CONVERGED, [], ledger.unconverged().len() as f64);
    collected.push(CANOPUS_QUARANTINED_OBJECTS, [], quarantine.len() as f64);
    collected.push(CANOPUS_QUARANTINE_TOTAL, [], quarantine.total() as f64);
    for (task, panics) in tasks::panics() {
        collected.push(CANOPUS_TASK_PANICS_TOTAL, [&*task], panics as f64);
    }
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

/// What there is of everything.
#[derive(Clone, Debug, Default, PartialEq)]
struct Numbers {
    services: usize,
    virtual_services: usize,
    not_ready: usize,
    /// Services with endpoints whose pod is not known.
    without_pod: usize,
    /// Pods named by endpoints that are not known.
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
            virtual_services: ctx.members::<Objects>(&ObjectIndex::Kind(Kind::VirtualService)).len(),
            duplicate_subsets: duplicate_subsets(ctx),
            ..Numbers::default()
        };
        for service in services.iter() {
            let endpoints = ctx.get::<Endpoints>(&service.key());
            numbers.not_ready += endpoints.iter().filter(|one| one.health == Health::Unhealthy).count();
            let dns = matches!(service.resolution, Resolution::Dns | Resolution::DnsRoundRobin);
            numbers.unresolvable += usize::from(dns && endpoints.is_empty());
        }
        let awaited = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::EndpointSlice));
        let awaited: Vec<_> = awaited.iter().map(|slice| ctx.get::<Awaited>(slice)).collect();
        let of_services = awaited.iter().filter_map(|awaited| awaited.service.as_ref());
        numbers.without_pod = of_services.collect::<BTreeSet<_>>().len();
        numbers.pending = awaited.iter().flat_map(|awaited| &awaited.pods).collect::<BTreeSet<_>>().len();
        numbers
    }
}

/// The pods that a slice names and that are not known.
#[derive(PartialEq, Default)]
struct AwaitedPods {
    pods: Vec<Origin>,
    /// The service of the slice, if there are any.
    service: Option<(Box<str>, Box<str>)>,
}

struct Awaited;

impl Query for Awaited {
    const NAME: &'static str = "awaited_pods";
    type Key = Origin;
    type Value = AwaitedPods;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> AwaitedPods {
        let Some(slice) = object::<EndpointSlice>(ctx, origin) else { return AwaitedPods::default() };
        let pods = pods_behind(&slice).map(|pod| Origin::new(origin.cluster.clone(), pod));
        let pods: Vec<Origin> = pods.filter(|pod| ctx.read::<Objects>(pod).is_none()).collect();
        let service = slice.meta.labels.get(KUBERNETES_SERVICE_NAME.name).filter(|_| !pods.is_empty());
        AwaitedPods { service: service.map(|name| (origin.namespace().into(), name.into())), pods }
    }
}

/// Subsets that an earlier rule for the same host of the same namespace has already.
fn duplicate_subsets(ctx: &Ctx<'_>) -> usize {
    let mut seen = BTreeSet::new();
    let mut duplicates = 0;
    let rules: Vec<(Origin, Arc<DestinationRule>)> = all_objects(ctx);
    for (origin, rule) in &rules {
        for subset in &rule.spec.subsets {
            let key = (origin.namespace().to_owned(), rule.spec.host.clone(), subset.name.clone());
            duplicates += usize::from(!seen.insert(key));
        }
    }
    duplicates
}
