//! The roots in the namespaces of remote clusters.
//!
//! A remote cluster says which control planes may write into it: by an annotation of its system namespace, which lists their
//! clusters. Those that are listed take part in an election there; the one that leads writes. Whoever is not listed does not
//! even touch the lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::annotations::CONTROL_PLANE_CLUSTERS;
use canopus_api::{Kind, ObjectKey};
use canopus_controllers::election::{Candidate, ClusterLock, Election, Leadership, LockKind};
use canopus_controllers::{Applier, Observer, RootConfigMapController};
use canopus_engine::Engine;
use canopus_mesh::world::{MeshSettings, Objects, Origin};
use canopus_runtime::flags::ENABLE_LEADER_ELECTION;
use canopus_runtime::tasks::{Running, keep_running};
use canopus_sources::kubernetes::{Cluster, RemoteRegistry};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::info;

use super::{RENEWALS, ROOTS_LOCK, WRITES, default_revision, identity};

/// How soon changes of the world are looked at again.
const PACE: Duration = Duration::from_secs(1);

/// Writes the roots into remote clusters.
#[derive(Clone)]
pub(super) struct RemoteRoots {
    pub(super) engine: Engine,
    pub(super) revisions: watch::Receiver<u64>,
    pub(super) remote: RemoteRegistry,
    pub(super) settings: MeshSettings,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) dry_run: bool,
}

/// What runs for a remote cluster, and over which connection.
struct Writer {
    cluster: Cluster,
    _running: Vec<Running>,
}

impl RemoteRoots {
    /// Follows the remote clusters, until nobody changes the world any more.
    pub(super) async fn run(mut self) {
        let mut writers: BTreeMap<Arc<str>, Writer> = BTreeMap::new();
        loop {
            self.revisions.borrow_and_update();
            let wanted = self.wanted();
            writers.retain(|name, writer| {
                let is_wanted = wanted.get(name).is_some_and(|cluster| cluster.is_same(&writer.cluster));
                if !is_wanted {
                    info!(cluster = &**name, "the roots are no longer written into a remote cluster");
                }
                is_wanted
            });
            for (name, cluster) in wanted {
                if let Entry::Vacant(vacant) = writers.entry(name) {
                    info!(
                        cluster = &**vacant.key(),
                        "the roots are written into a remote cluster by whoever leads there"
                    );
                    let running = self.start(vacant.key(), &cluster);
                    vacant.insert(Writer { cluster, _running: running });
                }
            }
            tokio::select! {
                changed = self.revisions.changed() => if changed.is_err() { return },
                () = self.remote.changed() => {}
            }
            sleep(PACE).await;
        }
    }

    /// The remote clusters that let this control plane write.
    fn wanted(&self) -> BTreeMap<Arc<str>, Cluster> {
        let list = self.remote.current();
        let ours = list.clusters.iter().filter(|(name, remote)| !remote.is_dropped && self.may_write(name));
        ours.map(|(name, remote)| (Arc::clone(name), remote.cluster.clone())).collect()
    }

    fn may_write(&self, cluster: &Arc<str>) -> bool {
        let key = ObjectKey::new(Kind::Namespace, "", &self.settings.system_namespace);
        let namespace = self.engine.read::<Objects>(&Origin::new(Arc::clone(cluster), key));
        namespace.is_some_and(|namespace| {
            let listed = namespace.meta().annotation(CONTROL_PLANE_CLUSTERS.name).unwrap_or_default();
            listed.split(',').map(str::trim).any(|named| named == "*" || named == &*self.settings.cluster)
        })
    }

    /// Takes part in the election of a cluster, and writes while it is won.
    fn start(&self, name: &Arc<str>, cluster: &Cluster) -> Vec<Running> {
        let mut running = Vec::new();
        let leadership = if self.dry_run || !self.settings.flags.get(ENABLE_LEADER_ELECTION) {
            Leadership::unconditional()
        } else {
            let revision =
                if self.settings.revision.is_empty() { "default" } else { &*self.settings.revision };
            let candidate = Candidate::new(&identity(&self.settings.flags), revision);
            let renewals = cluster.limited(RENEWALS);
            let namespace = &self.settings.system_namespace;
            let lock = ClusterLock::new(renewals, LockKind::ConfigMap, namespace, ROOTS_LOCK);
            let (election, leadership) = Election::new(lock, candidate);
            let (engine, own) = (self.engine.clone(), Arc::clone(&self.settings.cluster));
            let election = Arc::new(tokio::sync::Mutex::new(election));
            let work = move || {
                let (election, engine, own) = (Arc::clone(&election), engine.clone(), Arc::clone(&own));
                async move {
                    election.lock().await.run(|| default_revision(&engine, &own), pending()).await;
                }
            };
            running.push(keep_running(format!("election {ROOTS_LOCK} of {name}"), work, |_| async {}));
            leadership
        };
        let (api, engine) = (Arc::new(cluster.limited(WRITES)), self.engine.clone());
        let (revisions, observer) = (self.revisions.clone(), Arc::clone(&self.observer));
        let (dry_run, controlled) = (self.dry_run, Arc::clone(name));
        let work = move || {
            let controller = RootConfigMapController { cluster: Arc::clone(&controlled) };
            let applier = Applier {
                controller: Arc::new(controller),
                api: Arc::clone(&api),
                engine: engine.clone(),
                revisions: revisions.clone(),
                leadership: leadership.clone(),
                dry_run,
                observer: Arc::clone(&observer),
            };
            applier.run()
        };
        running.push(keep_running(format!("controller root-config-maps of {name}"), work, |_| async {}));
        running
    }
}
