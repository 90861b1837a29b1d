//! Remote clusters as sources: what leads to them, and how long the start waits for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use canopus_api::Kind;
use canopus_runtime::flags::{
    CANOPUS_REMOTE_CLUSTER_DROP_AFTER, EXTERNAL_ISTIOD, ISTIO_WATCH_NAMESPACE, LOCAL_CLUSTER_SECRET_WATCHER,
    PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS, PILOT_MULTICLUSTER_KUBECONFIG_PATH,
    PILOT_REMOTE_CLUSTER_TIMEOUT,
};
use canopus_runtime::ready::ReadyGuard;
use canopus_sources::SourceInfo;
use canopus_sources::kubernetes::{
    Access, Cluster, Options, RateLimit, RemoteClusters, RemoteDefinitions, RemoteOptions, RemoteRegistry,
    registry_kinds,
};
use canopus_sources::snapshot::Store;
use canopus_sources::status::SourceStatus;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::{Opened, Opener, kubernetes_source_name};

/// How long the Secrets may take to be listed where the own cluster is served from a snapshot: it is away, and what leads to
/// the others is in it.
const GRACE: Duration = Duration::from_secs(1);

impl Opener<'_> {
    /// Follows the remote clusters that Secrets of the own cluster, or files, lead to.
    pub(super) async fn follow_remote_clusters(
        &self,
        own: &Cluster,
        store: Option<&Store>,
        opened: &mut Opened,
    ) -> anyhow::Result<()> {
        let definitions = self.remote_definitions(own).await?;
        let remembered = self.restore_remote_clusters(store, opened);
        let statuses = opened.intake.status();
        let clusters = RemoteClusters::new(self.remote_options(), opened.intake.feeds(), statuses.clone());
        opened.remote = clusters.registry();
        let waiting = Waiting {
            guard: self.readiness.register("remote clusters"),
            own: kubernetes_source_name(self.cluster),
            registry: opened.remote.clone(),
            statuses,
            longest: self.flags.get(PILOT_REMOTE_CLUSTER_TIMEOUT),
        };
        self.tasks.spawn("start with remote clusters", waiting.run());
        self.tasks.spawn("remote clusters", clusters.run(definitions, remembered));
        Ok(())
    }

    async fn remote_definitions(&self, own: &Cluster) -> anyhow::Result<RemoteDefinitions> {
        let directory = self.flags.get(PILOT_MULTICLUSTER_KUBECONFIG_PATH);
        if !directory.is_empty() {
            return Ok(RemoteDefinitions::Directory(PathBuf::from(directory)));
        }
        let is_outside = self.flags.get(EXTERNAL_ISTIOD) && self.flags.get(LOCAL_CLUSTER_SECRET_WATCHER);
        let cluster = match is_outside {
            // Parity: a control plane outside of its mesh may have the Secrets in the cluster it runs in.
            true => self.connect(&Access::Pod).await.context("LOCAL_CLUSTER_SECRET_WATCHER")?,
            false => own.clone(),
        };
        let namespace = self.args.cluster_registries_namespace.as_deref().filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or(self.system_namespace).into();
        Ok(RemoteDefinitions::Secrets { cluster, namespace })
    }

    fn remote_options(&self) -> RemoteOptions {
        // Configuration is that of the own cluster. What a gateway of a remote cluster stands for is read for its address.
        let mut kinds = registry_kinds();
        kinds.insert(Kind::KubernetesGateway);
        let namespace = Some(self.flags.get(ISTIO_WATCH_NAMESPACE)).filter(|namespace| !namespace.is_empty());
        let drop_after = self.flags.get(CANOPUS_REMOTE_CLUSTER_DROP_AFTER);
        RemoteOptions {
            own: self.cluster.into(),
            allowed: self
                .flags
                .get(PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS)
                .iter()
                .map(|option| option.trim().to_owned())
                .collect(),
            limit: RateLimit { qps: self.args.kubernetes_api_qps, burst: self.args.kubernetes_api_burst },
            follow: Options {
                namespace: namespace.map(Box::from),
                selection: self.selection.clone(),
                ..Options::new(kinds)
            },
            drop_after: (!drop_after.is_zero()).then_some(drop_after),
        }
    }

    /// Serves what remote clusters had in an earlier life until it is known whether they are still defined.
    fn restore_remote_clusters(&self, store: Option<&Store>, opened: &mut Opened) -> Vec<Arc<SourceInfo>> {
        let Some(store) = store else { return Vec::new() };
        let is_remote = |source: &SourceInfo| {
            *source.cluster != *self.cluster && *source.name == kubernetes_source_name(&source.cluster)
        };
        let mut remembered = Vec::new();
        for source in store.sources().into_iter().filter(is_remote) {
            let source = Arc::new(source);
            match store.load(&source) {
                Ok(Some(saved)) => {
                    info!(
                        source = &*source.name,
                        objects = saved.objects.len(),
                        "restored from the snapshot"
                    );
                    opened.restored.push(opened.intake.restore(&source, saved));
                    remembered.push(source);
                }
                Ok(None) => {}
                Err(error) => warn!(source = &*source.name, %error, "the snapshot cannot be used"),
            }
        }
        remembered
    }
}

/// Holds up readiness while remote clusters are read for the first time, for a bounded time.
struct Waiting {
    guard: ReadyGuard,
    own: String,
    registry: RemoteRegistry,
    statuses: watch::Receiver<Arc<[SourceStatus]>>,
    longest: Duration,
}

impl Waiting {
    async fn run(mut self) {
        let start = Instant::now();
        // Parity: zero waits for ever.
        let deadline = (!self.longest.is_zero()).then(|| start + self.longest);
        loop {
            let missing = self.missing();
            let is_away = self.is_own_cluster_away();
            let deadline = if is_away { Some(start + GRACE) } else { deadline };
            if missing.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
            tokio::select! {
                () = self.registry.changed() => {}
                Ok(()) = self.statuses.changed() => {}
                () = until(deadline) => {
                    match missing {
                        Some(missing) => warn!(
                            clusters = missing.join(", "),
                            "remote clusters have not been read in {:?}: serving without them until they are", self.longest
                        ),
                        None => warn!("it is not known which remote clusters there are: serving those of the snapshot"),
                    }
                    break;
                }
            }
        }
        self.guard.ready();
    }

    /// The clusters of which nothing is known; `None` if it is not even known which clusters there are.
    fn missing(&self) -> Option<Vec<String>> {
        let list = self.registry.current();
        let statuses = self.statuses.borrow();
        let is_known = |name: &str| {
            let source = kubernetes_source_name(name);
            statuses.iter().any(|status| *status.source.name == *source && status.is_known())
        };
        let missing = list.clusters.keys().filter(|name| !is_known(name));
        list.is_complete.then(|| missing.map(ToString::to_string).collect())
    }

    /// Whether the own cluster is served from a snapshot because it does not answer.
    fn is_own_cluster_away(&self) -> bool {
        let statuses = self.statuses.borrow();
        let own = statuses.iter().find(|status| *status.source.name == *self.own);
        own.is_some_and(|status| status.is_known() && !status.is_live())
    }
}

/// Waits until a time; for ever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
