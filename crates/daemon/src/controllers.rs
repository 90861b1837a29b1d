//! The controllers of the process: which there are, and under which lock each of them writes.
//!
//! | controller | writes | lock |
//! |---|---|---|
//! | gateway-status | statuses of Gateway API objects | Lease `istio-gateway-status-leader-REVISION` |
//! | gateway-deployment | Deployments, Services and the like for Gateways | Lease `istio-gateway-deployment-REVISION` |
//! | gateway-classes | the built-in GatewayClasses, where they are missing | none: whoever is first has done it |
//! | inference-pools | the Services that stand for InferencePools | Lease `istio-gateway-inferencepool-REVISION` |
//! | ingress-status | addresses of Ingresses | ConfigMap `istio-leader` |
//! | ambient-conditions | conditions of Services, ServiceEntries, WorkloadEntries and policies | Lease `istio-status-leader` |
//! | analysis | what analysis finds, in statuses of Istio's kinds | ConfigMap `istio-analyze-leader` |
//! | service-entry-addresses | addresses of ServiceEntries that have none | ConfigMap `istio-ip-autoallocate` |
//! | node-untaint | taints of nodes whose node agent is ready | ConfigMap `istio-node-untaint` |
//! | workload-registration | WorkloadEntries of machines that are connected to this replica, their health | none: each replica has its own |
//! | workload-entry-cleanup | deletes what registered itself and went away | none: all replicas delete the same |
//! | root-config-maps, cluster-trust-bundle | the roots, in one of two forms | ConfigMap `istio-namespace-controller-election` |
//! | root-config-maps of a remote cluster that lists this one, with `EXTERNAL_ISTIOD` | the roots | the same ConfigMap there |
//! | dns-certificates | Secrets of `certificates:` | Lease `canopus-dns-certificates-leader-REVISION` |
//! | webhook-roots | `caBundle` of webhooks, `failurePolicy` of validation | none: all replicas write the same |

mod registrations;
mod remote_roots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use canopus_admission::injection::Injector;
use canopus_api::{Kind, ObjectKey, labels};
use canopus_controllers::election::{Candidate, ClusterLock, Election, Leaders, Leadership, LockKind};
use canopus_controllers::trust::{DistributedRoots, Roots};
use canopus_controllers::{
    AmbientConditionController, AnalysisController, Applier, Change, ClusterTrustBundleController,
    Controller, DnsCertificateController, GatewayClassController, GatewayDeploymentController,
    GatewayStatusController, InferencePoolController, IngressStatusController, Installation,
    InstalledTemplates, NodeUntaintController, Observer, Outcome, RefusedWrites, RootConfigMapController,
    ServiceEntryAddressController, WebhookRootsController, WorkloadEntryCleanupController,
    WorkloadRegistrationController, Write,
};
use canopus_engine::{Batch, Engine};
use canopus_identity::authority::Authority;
use canopus_mesh::world::{MeshSettings, Objects, Origin};
use canopus_runtime::flags::{
    CANOPUS_CONTROLLERS, ENABLE_GATEWAY_API_INFERENCE_EXTENSION, ENABLE_LEADER_ELECTION, EXTERNAL_ISTIOD,
    Flags, PILOT_ANALYSIS_INTERVAL, PILOT_ENABLE_AMBIENT, PILOT_ENABLE_ANALYSIS,
    PILOT_ENABLE_IP_AUTOALLOCATE, PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS, POD_NAME,
};
use canopus_runtime::metrics::catalogue::CANOPUS_CONTROLLER_WRITES_TOTAL;
use canopus_runtime::metrics::{Counter, Family, Registry};
use canopus_runtime::shutdown::{Phase, Shutdown};
use canopus_runtime::tasks::Tasks;
use canopus_sources::kubernetes::{Cluster, RateLimit, RemoteRegistry};
use parking_lot::Mutex;
use registrations::Registrations;
use remote_roots::RemoteRoots;
use tokio::sync::watch;
use tracing::{info, warn};

/// How often all controllers together may write: as often as istiod.
const WRITES: RateLimit = RateLimit { qps: 80.0, burst: 160 };

/// Locks are renewed by a handle of their own: writes that wait must not cost the leadership.
const RENEWALS: RateLimit = RateLimit { qps: 10.0, burst: 20 };

/// The lock under which the roots are written, in each cluster.
const ROOTS_LOCK: &str = "istio-namespace-controller-election";

/// Marks the default revision.
const DEFAULT_TAG: &str = "istio-revision-tag-default";

/// Whether and how controllers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Write,
    DryRun,
    Off,
}

impl Mode {
    fn new(flags: &Flags) -> anyhow::Result<Self> {
        match flags.get(CANOPUS_CONTROLLERS) {
            "on" => Ok(Self::Write),
            "dry-run" => Ok(Self::DryRun),
            "off" => Ok(Self::Off),
            other => bail!("CANOPUS_CONTROLLERS: {other:?} is none of on, dry-run and off"),
        }
    }
}

/// What controllers are started with.
pub(crate) struct Controllers<'a> {
    pub(crate) cluster: Cluster,
    pub(crate) engine: Engine,
    pub(crate) revisions: watch::Receiver<u64>,
    pub(crate) settings: &'a MeshSettings,
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) remote: RemoteRegistry,
    pub(crate) registry: &'a Registry,
    pub(crate) tasks: &'a Tasks,
    pub(crate) shutdown: &'a Shutdown,
    /// How long a connection of a proxy lasts at most; none if it has no end.
    pub(crate) longest_connection: Option<Duration>,
    /// Records which replica holds which lock.
    pub(crate) leaders: Leaders,
    /// Namespace of the node agents.
    pub(crate) agent_namespace: Arc<str>,
    /// Tells the engine what is no object.
    pub(crate) store: Arc<dyn Fn(Batch) + Send + Sync>,
}

impl Controllers<'_> {
    /// Starts all controllers. The world must have been read: a status computed from half of it is wrong.
    pub(crate) fn start(self) -> anyhow::Result<()> {
        let mode = Mode::new(&self.settings.flags)?;
        if mode == Mode::Off {
            info!("CANOPUS_CONTROLLERS is off: nothing is written to the cluster");
            return Ok(());
        }
        let starter = Starter {
            writes: Arc::new(self.cluster.limited(WRITES)),
            renewals: self.cluster.limited(RENEWALS),
            observer: Arc::new(WriteObserver {
                counts: self.registry.family(CANOPUS_CONTROLLER_WRITES_TOTAL),
                registrations: Registrations::new(self.registry),
                refused: Mutex::default(),
                store: Arc::clone(&self.store),
            }),
            dry_run: mode == Mode::DryRun,
            context: &self,
        };
        let statuses = starter.lead(Lock::RevisionLease, "istio-gateway-status-leader");
        starter.run(Arc::new(GatewayStatusController), statuses);
        let deployments = starter.lead(Lock::RevisionLease, "istio-gateway-deployment");
        starter.run(Arc::new(GatewayDeploymentController), deployments);
        starter.run(Arc::new(GatewayClassController), Leadership::unconditional());
        let flags = &self.settings.flags;
        if flags.get(ENABLE_GATEWAY_API_INFERENCE_EXTENSION) {
            let pools = starter.lead(Lock::RevisionLease, "istio-gateway-inferencepool");
            starter.run(Arc::new(InferencePoolController), pools);
        }
        let ingresses = starter.lead(Lock::ConfigMap, "istio-leader");
        starter.run(Arc::new(IngressStatusController), ingresses);
        if flags.get(PILOT_ENABLE_AMBIENT) {
            let statuses = starter.lead(Lock::Lease, "istio-status-leader");
            starter.run(Arc::new(AmbientConditionController), statuses);
        }
        if flags.get(PILOT_ENABLE_ANALYSIS) {
            let messages = starter.lead(Lock::ConfigMap, "istio-analyze-leader");
            let interval = flags.get(PILOT_ANALYSIS_INTERVAL);
            starter.run(Arc::new(AnalysisController { interval }), messages);
        }
        if flags.get(PILOT_ENABLE_IP_AUTOALLOCATE) {
            let addresses = starter.lead(Lock::ConfigMap, "istio-ip-autoallocate");
            starter.run(Arc::new(ServiceEntryAddressController), addresses);
        }
        if flags.get(PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS) {
            let nodes = starter.lead(Lock::ConfigMap, "istio-node-untaint");
            let namespace = Arc::clone(&self.agent_namespace);
            starter.run(Arc::new(NodeUntaintController { namespace }), nodes);
        }
        let cleanup = WorkloadEntryCleanupController { longest_connection: self.longest_connection };
        starter.run(Arc::new(cleanup), Leadership::unconditional());
        let registration = WorkloadRegistrationController { replica: identity(flags) };
        starter.run(Arc::new(registration), Leadership::unconditional());
        let distribution = starter.lead(Lock::ConfigMap, ROOTS_LOCK);
        let cluster = Arc::clone(&self.settings.cluster);
        starter.run(Arc::new(RootConfigMapController { cluster }), distribution.clone());
        if flags.get(EXTERNAL_ISTIOD) {
            starter.run_remote_roots();
        }
        starter.run(Arc::new(ClusterTrustBundleController), distribution);
        starter.run(Arc::new(WebhookRootsController), Leadership::unconditional());
        if let Some(authority) = &self.authority {
            let issuing = starter.lead(Lock::RevisionLease, "canopus-dns-certificates-leader");
            starter.run(Arc::new(DnsCertificateController::new(Arc::clone(authority))), issuing);
        }
        Ok(())
    }
}

/// Where a lock is kept, and whether the replicas of all revisions take part. Parity: as istiod has it, lock by lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    /// A ConfigMap, for all revisions; the default one goes first.
    ConfigMap,
    /// A Lease, for all revisions; the default one goes first.
    Lease,
    /// A Lease of each revision, named for it.
    RevisionLease,
}

struct Starter<'a> {
    writes: Arc<Cluster>,
    renewals: Cluster,
    observer: Arc<WriteObserver>,
    dry_run: bool,
    context: &'a Controllers<'a>,
}

impl Starter<'_> {
    /// Takes part in the election for a lock.
    fn lead(&self, lock: Lock, name: &str) -> Leadership {
        let settings = self.context.settings;
        // A dry run writes nothing, so it must not take the lock from the replica that writes.
        if self.dry_run || !settings.flags.get(ENABLE_LEADER_ELECTION) {
            return Leadership::unconditional();
        }
        let revision = if settings.revision.is_empty() { "default" } else { &*settings.revision };
        let mut candidate = Candidate::new(&identity(&settings.flags), revision);
        let mut lock_name = name.to_owned();
        if lock == Lock::RevisionLease {
            candidate = candidate.per_revision();
            lock_name = format!("{name}-{revision}");
        }
        let kind = if lock == Lock::ConfigMap { LockKind::ConfigMap } else { LockKind::Lease };
        let lock = ClusterLock::new(self.renewals.clone(), kind, &settings.system_namespace, &lock_name);
        let (election, leadership) = Election::new(lock, candidate);
        let election = election.telling(self.context.leaders.clone());
        let part = self.context.shutdown.register(Phase::Intake, format!("election {name}"));
        let (engine, cluster) = (self.context.engine.clone(), Arc::clone(&settings.cluster));
        let default = move || default_revision(&engine, &cluster);
        self.context.tasks.supervise_with(
            format!("election {name}"),
            (election, part, default),
            |mut state| async move {
                let (election, part, default) = &mut *state;
                election.run(&*default, part.stopping()).await;
            },
        );
        leadership
    }

    /// Parity: only a control plane for other clusters writes into them.
    fn run_remote_roots(&self) {
        let roots = RemoteRoots {
            engine: self.context.engine.clone(),
            revisions: self.context.revisions.clone(),
            remote: self.context.remote.clone(),
            settings: self.context.settings.clone(),
            observer: Arc::clone(&self.observer) as Arc<dyn Observer>,
            dry_run: self.dry_run,
        };
        self.context.tasks.supervise("roots of remote clusters", move || roots.clone().run());
    }

    fn run(&self, controller: Arc<dyn Controller>, leadership: Leadership) {
        let name = format!("controller {}", controller.name());
        let applier = Applier {
            controller,
            api: Arc::clone(&self.writes),
            engine: self.context.engine.clone(),
            revisions: self.context.revisions.clone(),
            leadership,
            dry_run: self.dry_run,
            observer: Arc::clone(&self.observer) as Arc<dyn Observer>,
        };
        self.context.tasks.supervise(name, move || applier.clone().run());
    }
}

/// The name of this process among replicas.
pub(crate) fn identity(flags: &Flags) -> String {
    match flags.get(POD_NAME) {
        "" => {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            format!("canopusd-{}-{}", host.trim(), std::process::id())
        }
        pod => pod.to_owned(),
    }
}

/// The revision that pods get which name none.
fn default_revision(engine: &Engine, cluster: &Arc<str>) -> Option<String> {
    let key = ObjectKey::new(Kind::MutatingWebhookConfiguration, "", DEFAULT_TAG);
    let tag = engine.read::<Objects>(&Origin::new(Arc::clone(cluster), key))?;
    tag.meta().label(labels::REVISION.name).map(str::to_owned)
}

/// Counts writes, and tells the engine which of them are refused, so that statuses can say so.
struct WriteObserver {
    counts: Family<Counter, 2>,
    registrations: Registrations,
    refused: Mutex<BTreeMap<ObjectKey, String>>,
    store: Arc<dyn Fn(Batch) + Send + Sync>,
}

impl Observer for WriteObserver {
    fn wrote(&self, controller: &str, write: &Write, outcome: &Outcome) {
        self.counts.with([controller, outcome.label()]).inc();
        self.registrations.count(controller, write, outcome);
        let reason = match outcome {
            Outcome::Forbidden(reason) | Outcome::Failed(reason) => Some(reason.clone()),
            Outcome::Foreign => {
                Some("an object of this name exists and was not made for the gateway".to_owned())
            }
            Outcome::Written => None,
            _ => return,
        };
        // Only objects that are managed for others have a status to report the outcome in.
        if !matches!(write.change, Change::Manage { .. }) {
            return;
        }
        let mut refused = self.refused.lock();
        if refused.get(&write.target) == reason.as_ref() {
            return;
        }
        let mut batch = Batch::new();
        match reason {
            Some(reason) => {
                batch.set::<RefusedWrites>(write.target.clone(), reason.as_str().into());
                refused.insert(write.target.clone(), reason);
            }
            None => {
                batch.remove::<RefusedWrites>(&write.target);
                refused.remove(&write.target);
            }
        }
        drop(refused);
        (self.store)(batch);
    }
}

/// The oldest version of Kubernetes that is supported. Templates are rendered for it where the server does not tell its own.
const OLDEST_KUBERNETES: (u16, u16) = (1, 28);

/// Tells the engine which templates gateways are deployed from, as they change.
pub(crate) async fn follow_templates(
    mut injectors: watch::Receiver<Option<Arc<Injector>>>,
    cluster: Cluster,
    store: impl Fn(Batch),
) {
    let kubernetes_version = cluster.kubernetes_version().await.unwrap_or_else(|error| {
        warn!(%error, "the version of Kubernetes is not known; templates are rendered for 1.28");
        OLDEST_KUBERNETES
    });
    loop {
        let injector = injectors.borrow_and_update().clone();
        if let Some(injector) = injector {
            let mut batch = Batch::new();
            batch.set::<InstalledTemplates>((), Installation { injector, kubernetes_version });
            store(batch);
        }
        if injectors.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Tells the engine which roots are handed out, as they change.
pub(crate) async fn follow_roots(mut roots: watch::Receiver<Option<Roots>>, store: impl Fn(Batch)) {
    loop {
        let now = roots.borrow_and_update().clone();
        let mut batch = Batch::new();
        match now {
            Some(roots) => batch.set::<DistributedRoots>((), roots),
            None => batch.remove::<DistributedRoots>(&()),
        };
        store(batch);
        if roots.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
