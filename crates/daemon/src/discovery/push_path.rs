//! From changes to proxies: the engine, the dispatcher, those who observe it, and the apply loop that feeds it.

use std::sync::Arc;

use canopus_controllers::election::Leaders;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_runtime::flags::{CANOPUS_QUARANTINE, PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION};
use canopus_runtime::shutdown::Phase;
use canopus_sources::kubernetes::Cluster;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::DiscoveryArgs;
use super::process::Process;
use crate::apply::Applier;
use crate::metrics::{Metrics, collect_model};
use crate::object_history::ObjectHistory;
use crate::pace::Pace;
use crate::push::{Cause, Connections, Dispatcher, Ledger, Observer, Observers, Reason, Revisions, Stamp};
use crate::quarantine::{Quarantine, QuarantineController};
use crate::registration::{self, MachineKeeper, Sighting};
use crate::secret_access::{self, AccessKeeper, SecretInterest};
use crate::settings::SettingsKeeper;
use crate::source_statuses::SourceStatuses;
use crate::sources::Opened;

/// The dispatcher and those who observe it.
pub(super) struct PushPath {
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) history: Arc<ObjectHistory>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) source_statuses: Arc<SourceStatuses>,
    /// Holders of the controllers' locks.
    pub(super) leaders: Leaders,
    /// The revision of the world.
    pub(super) revision: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
    /// Service accounts whose access to secrets has to be reviewed; taken by the reviewer.
    wishes: Mutex<Option<mpsc::UnboundedReceiver<SecretInterest>>>,
    /// Connections and reports of machines that register themselves; taken by the task that tells the engine.
    sightings: Mutex<Option<mpsc::UnboundedReceiver<Sighting>>>,
}

impl PushPath {
    /// An engine that knows the settings and nothing else.
    pub(super) fn start(process: &Process, args: &DiscoveryArgs, settings: &MeshSettings) -> Self {
        let engine = Engine::new();
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings.clone());
        engine.apply(batch);
        let metrics = Arc::new(Metrics::new(&process.registry));
        let (wished, wishes) = secret_access::channel();
        let (seen, sightings) = registration::channel();
        let (revisions, revision) = Revisions::new(engine.revision().number());
        let enabled = args.quarantine.unwrap_or_else(|| process.flags.get(CANOPUS_QUARANTINE));
        let quarantine = Quarantine::new(enabled);
        let ledger =
            Ledger::new(Observers::new([metrics.clone() as Arc<dyn Observer>, process.tracer.clone()]));
        let history = ObjectHistory::new(engine.clone());
        let keeper = Arc::clone(&history);
        process.tasks.supervise("object history", move || Arc::clone(&keeper).keep());
        // A batch that concerns nobody converges as soon as the ledger knows of it, so the ledger is told after the others.
        let observers = Observers::new([
            quarantine.clone() as Arc<dyn Observer>,
            metrics.clone(),
            Arc::new(revisions),
            Arc::new(wished),
            seen,
            process.tracer.clone(),
            history.clone(),
            ledger.clone(),
        ]);
        let connections = Connections::new(observers.clone());
        let dispatcher = Dispatcher::new(engine, connections, observers);
        collect_model(&process.registry, &dispatcher, ledger.clone(), quarantine.clone());
        Self {
            dispatcher,
            ledger,
            history,
            quarantine,
            source_statuses: Arc::default(),
            leaders: Leaders::default(),
            revision,
            metrics,
            wishes: Mutex::new(Some(wishes)),
            sightings: Mutex::new(Some(sightings)),
        }
    }

    /// Applies batches that are no objects, such as what was fetched, for this reason.
    pub(super) fn store(&self, reason: Reason) -> impl Fn(Batch) + Clone + Send + Sync + 'static + use<> {
        let dispatcher = Arc::clone(&self.dispatcher);
        move |batch| {
            tokio::task::block_in_place(|| dispatcher.apply(batch, Cause::reason(reason)));
        }
    }

    /// Finds out which service accounts may read secrets, for as long as the process runs.
    pub(super) fn follow_secret_access(
        &self,
        process: &Process,
        settings: &MeshSettings,
        cluster: Option<Cluster>,
    ) {
        let Some(wishes) = self.wishes.lock().take() else { return };
        let own = Arc::clone(&settings.cluster);
        let access = AccessKeeper::new(own, cluster, wishes, self.store(Reason::Secret));
        process.tasks.supervise_with("secret access", access, |mut access| async move { access.run().await });
    }

    /// Tells the engine which machines register themselves, where there is a cluster to register in.
    pub(super) fn follow_machines(&self, process: &Process, cluster: Option<&Cluster>) {
        let Some(sightings) = self.sightings.lock().take() else { return };
        let registers = process.flags.get(PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION);
        if cluster.is_some() && registers {
            let keeper = MachineKeeper::new(sightings, self.store(Reason::Global));
            process.tasks.supervise_with("registering machines", keeper, |mut keeper| async move {
                keeper.run().await;
            });
        }
    }

    /// Applies what was restored, and from now on what sources say.
    pub(super) fn start_applying(&self, process: &Process, settings: SettingsKeeper, sources: Opened) {
        let mut applier = Applier {
            dispatcher: Arc::clone(&self.dispatcher),
            intake: sources.intake,
            metrics: Arc::clone(&self.metrics),
            pace: Pace::new(&process.flags),
            settings,
            quarantine: QuarantineController::new(Arc::clone(&self.dispatcher), self.quarantine.clone()),
            sources: self.source_statuses.clone(),
            keeper: sources.keeper,
            guards: sources.guards,
        };
        for update in sources.restored {
            applier.apply(update, Stamp::now());
        }
        process.tasks.spawn("apply", applier.run(process.shutdown.register(Phase::Last, "apply")));
    }
}
