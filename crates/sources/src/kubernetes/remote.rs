//! Remote clusters: which there are, and a source for each that runs while it is wanted.
//!
//! What leads to a remote cluster is a kubeconfig in a Secret labelled `istio/multiCluster: "true"` of the control plane's
//! namespace, or in a directory ([`definitions`]). The keys of such a Secret are the names of clusters. [`RemoteClusters`]
//! compares what is defined with what runs:
//!
//! ```text
//! definitions ──► RemoteClusters ──► Kubernetes source ──► feed ──► world
//!                      │  ▲ status of the sources
//!                      └─► RemoteRegistry: who is asked about tokens, what debug endpoints and metrics tell
//! ```
//!
//! Clusters never stand in each other's way. One that cannot be reached is stale and nothing else: what it had stays, unless
//! [`RemoteOptions::drop_after`] says for how long. A kubeconfig that is replaced takes over once the server answers to it, so
//! that a mistake in a new one does not cost the old one; as its source has the same name, only differences reach the mesh.

mod definitions;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::kube::SecretBytes;
use canopus_runtime::tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::kubeconfig::{self, AllowedFields, KubeconfigError};
use super::{Cluster, Kubernetes, Options, RateLimit};
use crate::change::{Change, SourceInfo, SourcePart};
use crate::feed::{Feed, Feeds, Source as _};
use crate::retry::Retry;
use crate::status::SourceStatus;
use definitions::Definitions;

/// Where remote clusters are defined.
#[derive(Clone)]
pub enum RemoteDefinitions {
    /// In the Secrets of a namespace.
    Secrets {
        /// The cluster that has them.
        cluster: Cluster,
        /// The namespace.
        namespace: Box<str>,
    },
    /// In a directory of kubeconfig files.
    Directory(PathBuf),
}

/// How remote clusters are followed.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The name of the control plane's own cluster, which no Secret can redefine.
    pub own: Arc<str>,
    /// What kubeconfigs may have although it reads files or runs programs.
    pub allowed: AllowedFields,
    /// How often each API server is asked.
    pub limit: RateLimit,
    /// What is followed in each.
    pub follow: Options,
    /// How long what a lost cluster had stays in force; for ever if not given.
    pub drop_after: Option<Duration>,
}

/// A remote cluster that is followed.
#[derive(Clone)]
pub struct RemoteCluster {
    /// Namespace and name of the Secret that leads to it, or the file.
    pub definition: Box<str>,
    /// How the remote API server is reached.
    pub cluster: Cluster,
    /// Why its definition is not in force as it is written now; the earlier one stays.
    pub problem: Option<String>,
    /// Whether what it had was dropped because it was lost for too long.
    pub is_dropped: bool,
}

/// How often definitions came, changed and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionEvents {
    /// New definitions.
    pub added: u64,
    /// Definitions that changed.
    pub updated: u64,
    /// Definitions that are gone.
    pub deleted: u64,
}

/// What is known of remote clusters at one time.
#[derive(Clone, Default)]
pub struct RemoteClusterList {
    /// Whether all definitions were read once.
    pub is_complete: bool,
    /// The clusters by name.
    pub clusters: BTreeMap<Arc<str>, RemoteCluster>,
    /// Definitions that lead nowhere, by name of the cluster: why.
    pub refused: BTreeMap<Arc<str>, String>,
    /// What happened to definitions.
    pub events: DefinitionEvents,
}

/// The remote clusters, for whoever needs one of them. Clones share them.
#[derive(Clone)]
pub struct RemoteRegistry(watch::Receiver<Arc<RemoteClusterList>>);

impl Default for RemoteRegistry {
    /// A registry that never has clusters.
    fn default() -> Self {
        let list = RemoteClusterList { is_complete: true, ..RemoteClusterList::default() };
        Self(watch::Sender::new(Arc::new(list)).subscribe())
    }
}

impl RemoteRegistry {
    /// The clusters as they are now.
    pub fn current(&self) -> Arc<RemoteClusterList> {
        Arc::clone(&self.0.borrow())
    }

    /// The API server of a cluster.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        self.0.borrow().clusters.get(name).map(|remote| remote.cluster.clone())
    }

    /// Waits until something changes; for ever if nothing will.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The name of the source of a cluster.
fn source_name(cluster: &str) -> String {
    format!("kubernetes:{cluster}")
}

/// Runs a source for each remote cluster that is defined.
pub struct RemoteClusters {
    options: RemoteOptions,
    feeds: Feeds,
    statuses: watch::Receiver<Arc<[SourceStatus]>>,
    list: watch::Sender<Arc<RemoteClusterList>>,
    state: RemoteClusterList,
    running: BTreeMap<Arc<str>, Running>,
    /// The definitions that were last seen.
    defined: Definitions,
    proofs: mpsc::Receiver<Proof>,
    prover: mpsc::Sender<Proof>,
}

/// The source of one cluster.
struct Running {
    kubeconfig: SecretBytes,
    feed: Feed,
    _source: tasks::Running,
    /// A kubeconfig that takes over once the server answers to it.
    next: Option<(SecretBytes, tasks::Running)>,
    /// Since when the source is not up to date.
    lost_since: Option<Instant>,
}

/// A server has answered to a new kubeconfig.
struct Proof {
    name: Arc<str>,
    kubeconfig: SecretBytes,
    cluster: Cluster,
}

impl RemoteClusters {
    /// Nothing runs yet. Statuses are those of the world the feeds lead to.
    pub fn new(options: RemoteOptions, feeds: Feeds, statuses: watch::Receiver<Arc<[SourceStatus]>>) -> Self {
        let (prover, proofs) = mpsc::channel(16);
        Self {
            options,
            feeds,
            statuses,
            list: watch::Sender::new(Arc::default()),
            state: RemoteClusterList::default(),
            running: BTreeMap::new(),
            defined: Definitions::default(),
            proofs,
            prover,
        }
    }

    /// What is known of the clusters, now and later.
    pub fn registry(&self) -> RemoteRegistry {
        RemoteRegistry(self.list.subscribe())
    }

    /// Follows what is defined, until nobody takes objects any more.
    ///
    /// `remembered` are clusters of an earlier life whose objects are served from a snapshot: those that are not defined any
    /// more are forgotten as soon as that is known.
    pub async fn run(mut self, definitions: RemoteDefinitions, remembered: Vec<Arc<SourceInfo>>) {
        let (sender, mut defined) = mpsc::channel(4);
        let allowed = self.options.allowed.clone();
        let _following = definitions::follow(definitions, allowed, sender);
        let mut remembered = Some(remembered);
        loop {
            tokio::select! {
                Some(defined) = defined.recv() => {
                    self.define(defined).await;
                    for source in remembered.take().unwrap_or_default() {
                        if !self.running.contains_key(&source.cluster) {
                            info!(cluster = &*source.cluster, "no Secret leads to this cluster any more");
                            self.forget(self.feeds.feed(SourceInfo::clone(&source))).await;
                        }
                    }
                }
                Some(proof) = self.proofs.recv() => self.take_over(proof),
                Ok(()) = self.statuses.changed() => self.note_losses(),
                () = next_drop(&self.running, self.options.drop_after) => self.drop_lost().await,
                else => return,
            }
            self.publish();
        }
    }

    /// Starts, changes and stops sources so that they are those that are defined.
    async fn define(&mut self, defined: Definitions) {
        self.count_events(&defined);
        self.defined = defined;
        self.state.is_complete = true;
        self.state.refused.clear();
        let wanted = self.wanted();
        let gone: Vec<Arc<str>> =
            self.running.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                info!(cluster = &*name, "a remote cluster was removed");
                self.forget(running.feed.clone()).await;
            }
            self.state.clusters.remove(&name);
        }
        for (name, (definition, kubeconfig)) in wanted {
            self.want(name, definition, kubeconfig).await;
        }
    }

    /// The definition that counts for each cluster. The one that is in force stays so while it is there; else the first by
    /// name counts.
    fn wanted(&mut self) -> BTreeMap<Arc<str>, (Box<str>, SecretBytes)> {
        let mut wanted: BTreeMap<Arc<str>, (Box<str>, SecretBytes)> = BTreeMap::new();
        for (definition, clusters) in &self.defined.by_name {
            for (name, kubeconfig) in clusters {
                let name: Arc<str> = (&**name).into();
                if name == self.options.own {
                    // Parity: the cluster of the control plane itself is never taken from a Secret.
                    continue;
                }
                let in_force =
                    self.state.clusters.get(&name).is_some_and(|one| one.definition == *definition);
                if in_force || !wanted.contains_key(&name) {
                    wanted.insert(name, (definition.clone(), kubeconfig.clone()));
                }
            }
        }
        self.state
            .refused
            .extend(self.defined.problems.iter().map(|(name, why)| ((&**name).into(), why.clone())));
        wanted
    }

    async fn want(&mut self, name: Arc<str>, definition: Box<str>, kubeconfig: SecretBytes) {
        if let Some(running) = self.running.get_mut(&name) {
            if running.kubeconfig == kubeconfig {
                running.next = None;
                if let Some(remote) = self.state.clusters.get_mut(&name) {
                    (remote.definition, remote.problem) = (definition, None);
                }
                return;
            }
            if running.next.as_ref().is_some_and(|(next, _)| *next == kubeconfig) {
                return;
            }
        }
        let is_running = self.running.contains_key(&name);
        let cluster = match self.connect(&kubeconfig).await {
            Ok(cluster) => cluster,
            Err(error) => {
                let what =
                    if is_running { "the earlier one stays in force" } else { "the cluster is not followed" };
                warn!(cluster = &*name, definition = &*definition, "kubeconfig refused, {what}: {error}");
                match self.state.clusters.get_mut(&name) {
                    Some(remote) => remote.problem = Some(error.to_string()),
                    None => drop(self.state.refused.insert(name, format!("{definition}: {error}"))),
                }
                return;
            }
        };
        match self.running.get_mut(&name) {
            // What works is not given up before the new one is known to work.
            Some(running) if running.lost_since.is_none() => {
                let proving = prove(Arc::clone(&name), kubeconfig.clone(), cluster, self.prover.clone());
                running.next = Some((kubeconfig, proving));
            }
            _ => self.start(name, definition, kubeconfig, cluster),
        }
    }

    async fn connect(&self, kubeconfig: &SecretBytes) -> Result<Cluster, KubeconfigError> {
        let parsed = kubeconfig::parse(kubeconfig.expose(), &self.options.allowed)?;
        Cluster::connect_remote(parsed, self.options.limit).await
    }

    fn start(&mut self, name: Arc<str>, definition: Box<str>, kubeconfig: SecretBytes, cluster: Cluster) {
        let verb = if self.running.contains_key(&name) { "has other credentials" } else { "was added" };
        info!(cluster = &*name, definition = &*definition, "a remote cluster {verb}");
        let feed = self.feeds.feed(SourceInfo::new(source_name(&name), Arc::clone(&name), 0));
        let running = Running {
            kubeconfig,
            _source: self.source(&cluster, &feed),
            feed,
            next: None,
            lost_since: Some(Instant::now()),
        };
        self.running.insert(Arc::clone(&name), running);
        let remote = RemoteCluster { definition, cluster, problem: None, is_dropped: false };
        self.state.clusters.insert(name, remote);
    }

    fn source(&self, cluster: &Cluster, feed: &Feed) -> tasks::Running {
        let (cluster, follow) = (cluster.clone(), self.options.follow.clone());
        let (source, teller) = (feed.clone(), feed.clone());
        tasks::keep_running(
            feed.source().name.to_string(),
            move || Kubernetes::new(cluster.clone(), follow.clone()).run(source.clone()),
            move |reason| {
                let feed = teller.clone();
                async move {
                    // If nobody listens, there is nobody to tell.
                    let _ = feed.send(vec![Change::Lost(SourcePart::Whole, reason)]).await;
                }
            },
        )
    }

    /// Puts a kubeconfig in force that the server has answered to, unless another was written since.
    fn take_over(&mut self, proof: Proof) {
        let Proof { name, kubeconfig, cluster } = proof;
        let is_next = |running: &Running| running.next.as_ref().is_some_and(|(next, _)| *next == kubeconfig);
        if !self.running.get(&name).is_some_and(is_next) {
            return;
        }
        let Some(definition) = self.state.clusters.get(&name).map(|remote| remote.definition.clone()) else {
            return;
        };
        self.start(name, definition, kubeconfig, cluster);
    }

    /// Notes since when each source is not up to date.
    fn note_losses(&mut self) {
        let statuses = Arc::clone(&self.statuses.borrow_and_update());
        for (name, running) in &mut self.running {
            let source = statuses.iter().find(|status| status.source.name == running.feed.source().name);
            if source.is_some_and(SourceStatus::is_live) {
                running.lost_since = None;
                if let Some(remote) = self.state.clusters.get_mut(name) {
                    remote.is_dropped = false;
                }
            } else if source.is_some() {
                running.lost_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Drops what clusters had that were lost for too long, and begins to follow them as if they were new.
    async fn drop_lost(&mut self) {
        let Some(longest) = self.options.drop_after else { return };
        let is_due = |running: &Running| running.lost_since.is_some_and(|since| since.elapsed() >= longest);
        let due = self.running.iter().filter(|(_, running)| is_due(running));
        let due: Vec<Arc<str>> = due.map(|(name, _)| Arc::clone(name)).collect();
        for name in due {
            let (Some(running), Some(remote)) = (self.running.get(&name), self.state.clusters.get_mut(&name))
            else {
                continue;
            };
            if !std::mem::replace(&mut remote.is_dropped, true) {
                warn!(cluster = &*name, "lost for {longest:?}: what it had is dropped until it is back");
                let (cluster, feed) = (remote.cluster.clone(), running.feed.clone());
                self.forget(feed.clone()).await;
                let source = self.source(&cluster, &feed);
                if let Some(running) = self.running.get_mut(&name) {
                    running._source = source;
                }
            }
            if let Some(running) = self.running.get_mut(&name) {
                // The cluster counts as new, and has as long again to answer.
                running.lost_since = Some(Instant::now());
            }
        }
    }

    async fn forget(&self, feed: Feed) {
        // If nobody listens, nobody has anything of it.
        let _ = feed.forget().await;
    }

    fn count_events(&mut self, defined: &Definitions) {
        let (before, now) = (&self.defined.by_name, &defined.by_name);
        let events = &mut self.state.events;
        events.added += now.keys().filter(|name| !before.contains_key(*name)).count() as u64;
        events.deleted += before.keys().filter(|name| !now.contains_key(*name)).count() as u64;
        let changed = now.iter().filter(|(name, one)| before.get(*name).is_some_and(|before| before != *one));
        events.updated += changed.count() as u64;
    }

    fn publish(&self) {
        self.list.send_replace(Arc::new(self.state.clone()));
    }
}

/// Asks a server until it answers to a kubeconfig.
fn prove(
    name: Arc<str>,
    kubeconfig: SecretBytes,
    cluster: Cluster,
    prover: mpsc::Sender<Proof>,
) -> tasks::Running {
    let proving = move || {
        let (name, kubeconfig, cluster, prover) =
            (Arc::clone(&name), kubeconfig.clone(), cluster.clone(), prover.clone());
        async move {
            let mut retry = Retry::default();
            while let Err(error) = cluster.can_list_services().await {
                warn!(cluster = &*name, %error, "the new kubeconfig does not work yet; the earlier one stays in force");
                sleep(retry.pause()).await;
            }
            // If nobody listens, nothing is followed any more.
            let _ = prover.send(Proof { name, kubeconfig, cluster }).await;
        }
    };
    tasks::keep_running("new kubeconfig of a remote cluster", proving, |_| std::future::ready(()))
}

/// Waits until what some cluster had is to be dropped; for ever if nothing is.
async fn next_drop(running: &BTreeMap<Arc<str>, Running>, drop_after: Option<Duration>) {
    let first = running.values().filter_map(|running| running.lost_since).min();
    match first.zip(drop_after) {
        Some((since, longest)) => sleep_until(since + longest).await,
        None => std::future::pending().await,
    }
}
