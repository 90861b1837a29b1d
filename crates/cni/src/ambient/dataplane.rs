//! What enrolment does to a pod, in its order.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use canopus_sources::kubernetes::{ApiError, Cluster};
use parking_lot::Mutex;
use serde_json::json;

use super::namespaces::NamespaceFinder;
use super::rules::{Rules, RulesError};
use super::zds::{Workload, ZdsError, ZtunnelServer};
use crate::files::{FileError, open_namespace};
use crate::pod::{Pod, REDIRECTION, Redirection};

/// Why a pod could not be enrolled or removed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// The pod's network namespace was not found.
    #[error("pod {pod}: no process of it is found, so its network namespace is not known")]
    NoNamespace {
        /// The pod.
        pod: String,
    },
    /// The namespace cannot be opened.
    #[error("pod {pod}: its network namespace: {source}")]
    Namespace {
        /// The pod.
        pod: String,
        /// Why not.
        source: FileError,
    },
    /// Processes cannot be looked at.
    #[error("cannot look at the node's processes: {0}")]
    Processes(std::io::Error),
    /// Rules.
    #[error("pod {pod}: {source}")]
    Rules {
        /// The pod.
        pod: String,
        /// Why not.
        source: RulesError,
    },
    /// ztunnel.
    #[error("pod {pod}: {source}")]
    Ztunnel {
        /// The pod.
        pod: String,
        /// Why not.
        source: ZdsError,
    },
    /// The annotation.
    #[error("pod {pod}: annotation {REDIRECTION}: {source}")]
    Annotation {
        /// The pod.
        pod: String,
        /// Why not.
        source: ApiError,
    },
    /// Work was cut short.
    #[error("the work was cut short: {0}")]
    Panicked(String),
}

/// Changes pods, the node and ztunnel.
pub struct Dataplane {
    rules: Arc<Rules>,
    ztunnel: ZtunnelServer,
    finder: NamespaceFinder,
    cluster: Cluster,
    /// Where the host's files are.
    host_root: PathBuf,
    /// The addresses that probes may reach, by UID.
    probed: Mutex<BTreeMap<String, Vec<IpAddr>>>,
    /// Serialises work on each pod: the plugin and the API server may report one at once.
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Dataplane {
    /// Prepares to change.
    pub fn new(
        rules: Rules,
        ztunnel: ZtunnelServer,
        finder: NamespaceFinder,
        cluster: Cluster,
        host_root: &Path,
    ) -> Self {
        Self {
            rules: Arc::new(rules),
            ztunnel,
            finder,
            cluster,
            host_root: host_root.to_owned(),
            probed: Mutex::default(),
            locks: Mutex::default(),
        }
    }

    /// The server for ztunnel.
    pub fn ztunnel(&self) -> &ZtunnelServer {
        &self.ztunnel
    }

    fn lock(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        // A lock that only the table holds has no waiters.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(uid.to_owned()).or_default())
    }

    /// Does work that blocks.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Rules) -> T + Send + 'static,
    ) -> Result<T, EnrolmentError> {
        let rules = Arc::clone(&self.rules);
        let done = tokio::task::spawn_blocking(move || work(&rules)).await;
        done.map_err(|error| EnrolmentError::Panicked(error.to_string()))
    }

    async fn find(
        &self,
        pods: BTreeMap<String, Vec<IpAddr>>,
    ) -> Result<BTreeMap<String, OwnedFd>, EnrolmentError> {
        let finder = self.finder.clone();
        let found = self.blocking(move |_| finder.find(&pods)).await?.map_err(EnrolmentError::Processes)?;
        Ok(found.into_iter().map(|(uid, found)| (uid, found.namespace)).collect())
    }

    /// Makes the node's rules and takes up pods that are enrolled already.
    pub async fn take_up(&self, pods: &[Arc<Pod>], reconciles_rules: bool) -> Result<(), EnrolmentError> {
        let addresses: BTreeMap<String, Vec<IpAddr>> =
            pods.iter().map(|pod| (pod.metadata.uid.clone(), pod.addresses())).collect();
        let all: Vec<IpAddr> = addresses.values().flatten().copied().collect();
        let rules_of = |pod: &str| {
            let pod = pod.to_owned();
            move |source| EnrolmentError::Rules { pod, source }
        };
        self.blocking(move |rules| rules.prepare_host(&all)).await?.map_err(rules_of("(the node)"))?;
        let mut found = self.find(addresses.clone()).await?;
        for pod in pods {
            let namespace = found.remove(&pod.metadata.uid).map(Arc::new);
            if namespace.is_none() {
                tracing::warn!(
                    "pod {}: its network namespace is not found; ztunnel keeps what it has",
                    pod.key()
                );
            }
            self.ztunnel.remember(&pod.metadata.uid, Workload::new(pod, namespace.clone()));
            let Some(namespace) = namespace.filter(|_| reconciles_rules) else { continue };
            let overrides = pod.ambient_overrides();
            if let Err(error) = self.blocking(move |rules| rules.capture(&namespace, &overrides)).await? {
                tracing::error!("pod {}: its rules stay as they are: {error}", pod.key());
            }
        }
        *self.probed.lock() = addresses;
        Ok(())
    }

    /// Makes a pod part of the mesh. `namespace` is the file of its network namespace as the host names it, if it is known.
    pub async fn enrol(
        &self,
        pod: &Pod,
        addresses: &[IpAddr],
        namespace: Option<PathBuf>,
    ) -> Result<(), EnrolmentError> {
        let uid = &pod.metadata.uid;
        let lock = self.lock(uid);
        let _turn = lock.lock().await;
        let network = self.network(pod, addresses, namespace).await?;
        let (within, overrides) = (Arc::clone(&network), pod.ambient_overrides());
        let made = self.blocking(move |rules| rules.capture(&within, &overrides)).await?;
        made.map_err(|source| EnrolmentError::Rules { pod: pod.key(), source })?;
        if let Err(source) = self.ztunnel.add(uid, Workload::new(pod, Some(network))).await {
            // The rules already redirect, so the pod's traffic goes nowhere; the annotation shows why.
            if pod.redirection() != Redirection::Pending {
                self.annotate(pod, json!("pending")).await?;
            }
            return Err(EnrolmentError::Ztunnel { pod: pod.key(), source });
        }
        self.probe(pod, addresses).await?;
        self.annotate(pod, json!("enabled")).await?;
        tracing::info!("pod {}: enrolled", pod.key());
        Ok(())
    }

    async fn network(
        &self,
        pod: &Pod,
        addresses: &[IpAddr],
        namespace: Option<PathBuf>,
    ) -> Result<Arc<OwnedFd>, EnrolmentError> {
        let uid = &pod.metadata.uid;
        if let Some(path) = namespace {
            let opened: Result<File, FileError> = open_namespace(&self.host_root, &path);
            let file = opened.map_err(|source| EnrolmentError::Namespace { pod: pod.key(), source })?;
            return Ok(Arc::new(file.into()));
        }
        if let Some(known) = self.ztunnel.network(uid) {
            return Ok(known);
        }
        let mut found = self.find([(uid.clone(), addresses.to_vec())].into()).await?;
        let namespace = found.remove(uid).ok_or_else(|| EnrolmentError::NoNamespace { pod: pod.key() })?;
        Ok(Arc::new(namespace))
    }

    async fn probe(&self, pod: &Pod, addresses: &[IpAddr]) -> Result<(), EnrolmentError> {
        let wanted = addresses.to_vec();
        let known = self.probed.lock().insert(pod.metadata.uid.clone(), wanted.clone()).unwrap_or_default();
        if known == wanted {
            return Ok(());
        }
        let changed = self.blocking(move |rules| rules.set_probed(&wanted, true)).await?;
        changed.map_err(|source| {
            self.probed.lock().remove(&pod.metadata.uid);
            EnrolmentError::Rules { pod: pod.key(), source }
        })
    }

    /// Lets probes reach the addresses that an enrolled pod has now.
    pub async fn update_addresses(&self, pod: &Pod) -> Result<(), EnrolmentError> {
        let addresses = pod.addresses();
        if addresses.is_empty() {
            return Ok(());
        }
        self.probe(pod, &addresses).await
    }

    /// Takes a pod that goes on running out of the mesh.
    pub async fn remove(&self, pod: &Pod) -> Result<(), EnrolmentError> {
        let uid = &pod.metadata.uid;
        let lock = self.lock(uid);
        let _turn = lock.lock().await;
        self.stop_probes(uid, &pod.key()).await?;
        match self.network(pod, &pod.addresses(), None).await {
            Ok(network) => {
                let released = self.blocking(move |rules| rules.release(&network)).await?;
                released.map_err(|source| EnrolmentError::Rules { pod: pod.key(), source })?;
            }
            Err(error) => tracing::warn!("{error}; its rules are left to go with it"),
        }
        self.ztunnel
            .remove(uid)
            .await
            .map_err(|source| EnrolmentError::Ztunnel { pod: pod.key(), source })?;
        match self.annotate(pod, json!(null)).await {
            Err(EnrolmentError::Annotation { source, .. }) if source.is_not_found() => {}
            result => result?,
        }
        tracing::info!("pod {}: removed from the mesh", pod.key());
        Ok(())
    }

    /// Forgets a pod that has ended.
    pub async fn forget(&self, uid: &str) -> Result<(), EnrolmentError> {
        let lock = self.lock(uid);
        let _turn = lock.lock().await;
        self.stop_probes(uid, uid).await?;
        if !self.ztunnel.knows(uid) {
            return Ok(());
        }
        let removed = self.ztunnel.remove(uid).await;
        removed.map_err(|source| EnrolmentError::Ztunnel { pod: uid.to_owned(), source })
    }

    async fn stop_probes(&self, uid: &str, pod: &str) -> Result<(), EnrolmentError> {
        let addresses = {
            let mut probed = self.probed.lock();
            let Some(addresses) = probed.remove(uid) else { return Ok(()) };
            // Addresses are given to other pods soon after.
            let is_free = |address: &IpAddr| !probed.values().flatten().any(|other| other == address);
            addresses.into_iter().filter(is_free).collect::<Vec<_>>()
        };
        let changed = self.blocking(move |rules| rules.set_probed(&addresses, false)).await?;
        changed.map_err(|source| EnrolmentError::Rules { pod: pod.to_owned(), source })
    }

    async fn annotate(&self, pod: &Pod, value: serde_json::Value) -> Result<(), EnrolmentError> {
        let metadata = &pod.metadata;
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", metadata.namespace, metadata.name);
        let patch = json!({"metadata": {"annotations": {REDIRECTION: value}}});
        let patched = self.cluster.merge_patch_at(&path, &patch).await;
        patched.map_err(|source| EnrolmentError::Annotation { pod: pod.key(), source })
    }

    /// Removes the node's rules.
    pub async fn release_host(&self) -> Result<(), EnrolmentError> {
        let released = self.blocking(Rules::release_host).await?;
        released.map_err(|source| EnrolmentError::Rules { pod: "(the node)".to_owned(), source })
    }
}
