//! The node agent of ambient mode: pods that the mesh's labels select send their traffic through ztunnel.
//!
//! ```text
//!  API server ── pods of the node, namespaces ──► NodeAgent ──► Dataplane
//!  plugin ────── /cmdadd: a pod starts ─────────►              1. rules in the pod's namespace
//!                                                              2. ZDS: ztunnel takes the namespace
//!                                                              3. probes of the kubelet pass
//!                                                              4. annotation `enabled`
//! ```
//!
//! What is to be done for a pod follows from what it is now and from its annotation, not from what happened: events can be
//! missed and the agent can be ended at any step. A pod whose rules are there but that no ztunnel has taken is annotated
//! `pending` and tried again. A pod that starts waits for its enrolment, so it never runs unmeshed.
//!
//! After a restart the agent finds the namespaces of enrolled pods before it lets ztunnel connect: a ztunnel forgets all
//! pods that the snapshot leaves out.

mod address_set;
mod dataplane;
mod namespaces;
mod rules;
mod zds;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_base::labels::Labels;
use canopus_runtime::metrics::{Registry, catalogue};
use canopus_sources::kubernetes::{Cluster, Followable, Followed};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

pub use self::dataplane::{Dataplane, EnrolmentError};
pub use self::namespaces::{Found, NamespaceFinder};
pub use self::rules::{Rules, RulesError};
pub use self::zds::{Workload, ZdsError, ZtunnelServer};
use crate::plugin::{AddEvent, CMD_ADD};
use crate::pod::{Namespace, Pod, Redirection};
use crate::selector::Enablement;
use crate::sockets::{Answer, Handler};

/// How many pods are worked on at once. Making rules is mostly waiting for programs.
const CONCURRENCY: usize = 8;

/// The shortest and longest pause before a pod is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// How long a pod that starts may take to be heard of from the API server.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the agent is told.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The node whose pods are looked at.
    pub node: String,
    /// Which pods are enrolled.
    pub enablement: Enablement,
    /// Namespaces whose pods are not.
    pub excluded_namespaces: BTreeSet<String>,
    /// The namespace of ztunnel.
    pub system_namespace: String,
    /// The socket for ztunnel.
    pub ztunnel_socket: PathBuf,
    /// Whether pods that are enrolled already get this version's rules.
    pub reconciles_rules: bool,
}

#[derive(Default)]
struct Store {
    /// By UID.
    pods: BTreeMap<String, Arc<Pod>>,
    /// By namespace and name.
    uids: BTreeMap<(String, String), String>,
    namespaces: BTreeMap<String, Labels>,
    has_pods: bool,
    has_namespaces: bool,
}

/// What is to be done for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Enrol,
    /// The rules go too.
    Remove,
    /// The pod's network namespace is gone, or soon will be.
    Forget,
    /// The pod's addresses may have changed.
    UpdateAddresses,
}

/// Enrols the pods of a node.
pub struct NodeAgent {
    settings: AgentSettings,
    dataplane: Arc<Dataplane>,
    store: Mutex<Store>,
    /// Wakes those who wait for a pod to be heard of.
    heard: Notify,
    is_ready: watch::Sender<bool>,
    metrics: Registry,
}

impl NodeAgent {
    /// An agent that has not begun.
    pub fn new(settings: AgentSettings, dataplane: Arc<Dataplane>, metrics: Registry) -> Arc<Self> {
        Arc::new(Self {
            settings,
            dataplane,
            store: Mutex::default(),
            heard: Notify::new(),
            is_ready: watch::Sender::new(false),
            metrics,
        })
    }

    /// Whether pods are enrolled.
    pub fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Follows the API server and enrols pods until the future is dropped.
    pub async fn run(&self, cluster: &Cluster) {
        let (sender, mut changed) = mpsc::unbounded_channel();
        let fields = format!("spec.nodeName={}", self.settings.node);
        let pods = Followable { path: "/api/v1/pods".to_owned(), fields, labels: String::new() };
        let namespaces = Followable { path: "/api/v1/namespaces".to_owned(), ..Followable::default() };
        let follow_pods = cluster.follow_at(&pods, async |told| {
            for uid in self.hear_of_pods(told) {
                let _ = sender.send(uid);
            }
        });
        let follow_namespaces = cluster.follow_at(&namespaces, async |told| {
            for uid in self.hear_of_namespaces(told) {
                let _ = sender.send(uid);
            }
        });
        let work = async {
            self.begin(&mut changed).await;
            tokio::join!(self.serve_ztunnel(), self.reconcile(&mut changed))
        };
        tokio::join!(follow_pods, follow_namespaces, work);
    }

    async fn serve_ztunnel(&self) {
        loop {
            let Err(error) = self.dataplane.ztunnel().serve(&self.settings.ztunnel_socket).await;
            tracing::error!("{}: {error}; trying again", self.settings.ztunnel_socket.display());
            tokio::time::sleep(RETRY.1).await;
        }
    }

    fn count(&self, event: &str) {
        self.metrics.family(catalogue::NODEAGENT_RECONCILE_EVENTS_TOTAL).with([event]).inc();
    }

    /// Takes in what is told of pods, and gives the UIDs of those it concerns.
    fn hear_of_pods(&self, told: Followed<Pod>) -> Vec<String> {
        let mut store = self.store.lock();
        let changed = match told {
            Followed::Listed(pods) => {
                let listed: BTreeSet<String> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
                let gone: Vec<String> =
                    store.pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| store.remove(uid));
                pods.into_iter().for_each(|pod| store.insert(pod));
                store.has_pods = true;
                listed.into_iter().chain(gone).collect()
            }
            Followed::Present(pod) => {
                self.count("update");
                let uid = pod.metadata.uid.clone();
                store.insert(pod);
                vec![uid]
            }
            Followed::Gone(pod) => {
                self.count("delete");
                store.remove(&pod.metadata.uid);
                vec![pod.metadata.uid]
            }
        };
        drop(store);
        self.heard.notify_waiters();
        changed
    }

    fn hear_of_namespaces(&self, told: Followed<Namespace>) -> Vec<String> {
        let mut store = self.store.lock();
        let changed: BTreeSet<String> = match told {
            Followed::Listed(namespaces) => {
                store.namespaces.clear();
                let labels = namespaces
                    .into_iter()
                    .map(|namespace| (namespace.metadata.name, namespace.metadata.labels));
                store.namespaces.extend(labels);
                store.has_namespaces = true;
                store.namespaces.keys().cloned().collect()
            }
            Followed::Present(namespace) => {
                let name = namespace.metadata.name;
                let before = store.namespaces.insert(name.clone(), namespace.metadata.labels.clone());
                if before.as_ref() == Some(&namespace.metadata.labels) {
                    BTreeSet::new()
                } else {
                    [name].into()
                }
            }
            Followed::Gone(namespace) => {
                store.namespaces.remove(&namespace.metadata.name);
                [namespace.metadata.name].into()
            }
        };
        let is_concerned = |pod: &&Arc<Pod>| changed.contains(&pod.metadata.namespace);
        let uids = store.pods.values().filter(is_concerned).map(|pod| pod.metadata.uid.clone()).collect();
        drop(store);
        self.heard.notify_waiters();
        uids
    }

    /// Whether the API server has told of all pods and namespaces once.
    fn has_listed(&self) -> bool {
        let store = self.store.lock();
        store.has_pods && store.has_namespaces
    }

    /// Takes up the pods that were enrolled before this process, as soon as the API server has told of all.
    async fn begin(&self, changed: &mut mpsc::UnboundedReceiver<String>) {
        let mut waiting = Vec::new();
        while !self.has_listed() {
            tokio::select! {
                uid = changed.recv() => waiting.extend(uid),
                () = self.heard.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
        let enrolled: Vec<Arc<Pod>> = {
            let store = self.store.lock();
            let is_enrolled = |pod: &&Arc<Pod>| {
                pod.redirection() == Redirection::Enabled
                    && !pod.is_terminal()
                    && !pod.is_ztunnel(&self.settings.system_namespace)
            };
            store.pods.values().filter(is_enrolled).cloned().collect()
        };
        let mut pause = RETRY.0;
        while let Err(error) = self.dataplane.take_up(&enrolled, self.settings.reconciles_rules).await {
            tracing::error!("cannot take up enrolled pods, trying again in {pause:?}: {error}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
        tracing::info!("{} pods were enrolled already", enrolled.len());
        self.is_ready.send_replace(true);
    }

    /// Brings pods to what they should be, several at once but never one pod twice.
    async fn reconcile(&self, changed: &mut mpsc::UnboundedReceiver<String>) {
        let mut due: BTreeSet<String> = self.store.lock().pods.keys().cloned().collect();
        let mut failures: BTreeMap<String, u32> = BTreeMap::new();
        let mut busy = BTreeSet::new();
        let mut work = FuturesUnordered::new();
        let mut pauses = FuturesUnordered::new();
        loop {
            while work.len() < CONCURRENCY
                && let Some(uid) = due.iter().find(|uid| !busy.contains(*uid)).cloned()
            {
                due.remove(&uid);
                busy.insert(uid.clone());
                work.push(async move {
                    let result = self.bring_up_to_date(&uid).await;
                    (uid, result)
                });
            }
            tokio::select! {
                uid = changed.recv() => match uid {
                    Some(uid) => { due.insert(uid); }
                    None => return,
                },
                Some((uid, result)) = work.next(), if !work.is_empty() => {
                    busy.remove(&uid);
                    match result {
                        Ok(()) => { failures.remove(&uid); }
                        Err(error) => {
                            let count = failures.entry(uid.clone()).or_default();
                            let pause = (RETRY.0 * 2u32.saturating_pow(*count)).min(RETRY.1);
                            *count = (*count + 1).min(16);
                            tracing::warn!("{error}; trying again in {pause:?}");
                            pauses.push(async move {
                                tokio::time::sleep(pause).await;
                                uid
                            });
                        }
                    }
                }
                Some(uid) = pauses.next(), if !pauses.is_empty() => { due.insert(uid); }
            }
        }
    }

    fn decide(&self, pod: &Pod, namespace: Option<&Labels>) -> Action {
        if pod.is_ztunnel(&self.settings.system_namespace) {
            return Action::Nothing;
        }
        let redirection = pod.redirection();
        let uid = &pod.metadata.uid;
        if pod.is_terminal() {
            let is_known = redirection != Redirection::None || self.dataplane.ztunnel().knows(uid);
            return if is_known { Action::Forget } else { Action::Nothing };
        }
        let Some(namespace) = namespace else { return Action::Nothing };
        let is_wanted = self.settings.enablement.selects(pod, namespace)
            && !self.settings.excluded_namespaces.contains(&pod.metadata.namespace);
        match (is_wanted, redirection) {
            (true, Redirection::Enabled) => Action::UpdateAddresses,
            // A starting pod is enrolled by the plugin's event.
            (true, _) if pod.addresses().is_empty() => Action::Nothing,
            (true, _) => Action::Enrol,
            (false, Redirection::None) => Action::Nothing,
            (false, _) => Action::Remove,
        }
    }

    async fn bring_up_to_date(&self, uid: &str) -> Result<(), EnrolmentError> {
        let (pod, action) = {
            let store = self.store.lock();
            match store.pods.get(uid) {
                Some(pod) => {
                    let action = self.decide(pod, store.namespaces.get(&pod.metadata.namespace));
                    (Some(Arc::clone(pod)), action)
                }
                None => (None, Action::Forget),
            }
        };
        match (pod, action) {
            (_, Action::Nothing) => Ok(()),
            (Some(pod), Action::Enrol) => self.dataplane.enrol(&pod, &pod.addresses(), None).await,
            (Some(pod), Action::UpdateAddresses) => self.dataplane.update_addresses(&pod).await,
            (Some(pod), Action::Remove) => self.dataplane.remove(&pod).await,
            _ => self.dataplane.forget(uid).await,
        }
    }

    /// Enrols a pod that starts.
    async fn enrol_starting(&self, event: &AddEvent) -> Result<(), String> {
        let mut ready = self.is_ready.subscribe();
        let pod = tokio::time::timeout(PATIENCE, async {
            // The sender lives as long as the agent.
            let _ = ready.wait_for(|is_ready| *is_ready).await;
            self.hear_of(event).await
        });
        let name = format!("pod {}/{}", event.pod_namespace, event.pod_name);
        let (pod, is_wanted) = pod.await.map_err(|_| {
            format!("{name}: the API server has not told of it in {PATIENCE:?}, or the agent has just begun")
        })?;
        if !is_wanted {
            return Err(format!(
                "{name}: its labels, or those of its namespace, do not select it for ambient mode"
            ));
        }
        let addresses: Vec<IpAddr> = event.ips.iter().map(|entry| entry.address.ip.to_canonical()).collect();
        let namespace = Some(PathBuf::from(&event.netns));
        self.dataplane.enrol(&pod, &addresses, namespace).await.map_err(|error| error.to_string())
    }

    async fn hear_of(&self, event: &AddEvent) -> (Arc<Pod>, bool) {
        loop {
            let heard = self.heard.notified();
            {
                let store = self.store.lock();
                let key = (event.pod_namespace.clone(), event.pod_name.clone());
                let pod = store.uids.get(&key).and_then(|uid| store.pods.get(uid));
                if let (Some(pod), Some(labels)) = (pod, store.namespaces.get(&event.pod_namespace)) {
                    let is_wanted = self.settings.enablement.selects(pod, labels)
                        && !self.settings.excluded_namespaces.contains(&event.pod_namespace);
                    return (Arc::clone(pod), is_wanted);
                }
            }
            tokio::select! {
                () = heard => {}
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    }
}

impl Store {
    fn insert(&mut self, pod: Pod) {
        let metadata = &pod.metadata;
        self.uids.insert((metadata.namespace.clone(), metadata.name.clone()), metadata.uid.clone());
        self.pods.insert(metadata.uid.clone(), Arc::new(pod));
    }

    fn remove(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        let key = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        // A pod of the same name may have come already.
        if self.uids.get(&key).is_some_and(|current| current == uid) {
            self.uids.remove(&key);
        }
    }
}

impl Handler for NodeAgent {
    async fn handle(&self, path: &str, body: Bytes) -> Answer {
        let answer = if path != CMD_ADD {
            (StatusCode::NOT_FOUND, "not found".to_owned())
        } else {
            match serde_json::from_slice::<AddEvent>(&body) {
                Err(error) => (StatusCode::BAD_REQUEST, format!("the event cannot be read: {error}")),
                Ok(event) => match self.enrol_starting(&event).await {
                    Ok(()) => (StatusCode::OK, String::new()),
                    Err(reason) => {
                        tracing::error!("{reason}");
                        (StatusCode::INTERNAL_SERVER_ERROR, reason)
                    }
                },
            }
        };
        let code = answer.0.as_u16().to_string();
        self.metrics.family(catalogue::ISTIO_CNI_PLUGIN_REQUESTS_TOTAL).with([code.as_str()]).inc();
        answer
    }
}
