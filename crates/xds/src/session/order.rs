//! Make before break: the order in which clusters change and what leads to them.
//!
//! A proxy fails the requests of a route that names a cluster it does not have. Two waits keep that from happening:
//!
//! ```text
//! new cluster ──► acknowledged ──► its endpoints acknowledged ──► routes and listeners that name it
//! routes and listeners that name it no longer ──► acknowledged ──► removal of the cluster
//! ```
//!
//! Only what names such a cluster waits, which is looked up in the bytes of what changes. Only clients that want all clusters
//! are waited for: others (gRPC) ask for a cluster after they have seen its name. A delta client that returns keeps the
//! clusters that are gone until it has settled its listeners and routes; a state-of-the-world client cannot, as it does not
//! say which clusters it has. And waiting is bounded: whoever drives the
//! session calls [`Session::stop_waiting`] after a while, as a client that never acknowledges must not keep its old routes.

use std::sync::Arc;

use canopus_proto::fields::{cluster, eds_cluster_config};

use super::watch::Watch;
use super::{Protocol, Session, State, resources};
use crate::bounds::Fields;
use crate::names::Names;
use crate::resource::{Resource, ResourceSet};
use crate::source::{Refusal, Source};
use crate::types::{CLUSTER, ENDPOINT, LISTENER, ROUTE};

/// The types whose resources name clusters.
const REFERRING: [&str; 2] = [LISTENER, ROUTE];

/// What a session bears in mind for the order of clusters.
#[derive(Default)]
pub(super) struct ClusterOrder {
    /// Clusters the client got while it had others, and whose endpoints it has not acknowledged yet.
    warming: Vec<Arc<str>>,
    /// The client came with the state of an earlier stream, and it is not settled yet what that names.
    is_resumed: bool,
    is_waiting: bool,
    /// It has been waited long enough.
    is_overdue: bool,
}

impl Session {
    /// Whether something is held back until the client has other clusters in use.
    pub fn is_waiting(&self) -> bool {
        self.order.is_waiting
    }

    /// Sends what is held back, whatever clusters the client has.
    pub fn stop_waiting(&mut self) {
        self.order = ClusterOrder { is_overdue: true, ..ClusterOrder::default() };
    }

    /// Takes note of whether anything had to wait, once everything else is sent. True if what waited no longer has to.
    pub(super) fn note_waiting(&mut self, is_waiting: bool) -> bool {
        self.order.is_waiting = is_waiting;
        if !self.watches.iter().any(Watch::is_due) {
            self.order.is_overdue = false;
        }
        let is_settled = self.order.is_resumed && !self.is_resuming();
        self.order.is_resumed &= !is_settled;
        is_settled && is_waiting
    }

    /// The client of a new stream says that it has clusters.
    pub(super) fn note_resumption(&mut self, at: usize) {
        if *self.watches[at].type_url == *CLUSTER && self.watches[at].has_claims() {
            self.order.is_resumed = true;
        }
    }

    /// Takes note of the clusters that were just sent to a client that was sent these before.
    pub(super) fn note_added_clusters(&mut self, at: usize, before: &ResourceSet) {
        let watch = &self.watches[at];
        if *watch.type_url != *CLUSTER {
            return;
        }
        let held = &watch.held().set;
        self.order.warming.retain(|name| held.get(name).is_some());
        // What a client has from an earlier stream is known once it is answered.
        let before = if before.is_empty() { watch.accepted_before() } else { before };
        let asks_for_endpoints = self.order.is_resumed || self.position(ENDPOINT).is_some();
        // A client that had no clusters has nothing to serve yet.
        if before.is_empty() || !asks_for_endpoints {
            return;
        }
        let added = held.added_since(before).filter_map(|name| held.get(name));
        let added =
            added.filter(|cluster| awaits_endpoints(cluster)).map(|cluster| Arc::clone(&cluster.name));
        self.order.warming.extend(added);
        self.order.warming.sort_unstable();
        self.order.warming.dedup();
    }

    /// The client has settled a response: clusters whose endpoints it was about are in use.
    pub(super) fn note_settled(&mut self, at: usize, refused: bool) {
        if self.order.warming.is_empty() {
            return;
        }
        let watch = &self.watches[at];
        match &*watch.type_url {
            // It may have taken some of the clusters; which ones, it does not say.
            CLUSTER if refused => self.order.warming.clear(),
            ENDPOINT if !watch.owes_answer() => {
                self.order.warming.retain(|name| !watch.interest.covers(name));
            }
            _ => {}
        }
    }

    /// Whether a step towards `target` has to wait for clusters.
    pub(super) fn must_wait(&self, at: usize, target: &State, source: &impl Source) -> Result<bool, Refusal> {
        let watch = &self.watches[at];
        let is_referring = REFERRING.contains(&&*watch.type_url);
        if self.order.is_overdue || !is_referring || target.set == watch.held().set {
            return Ok(false);
        }
        let Some(clusters) = self.all_clusters() else { return Ok(false) };
        if self.order.is_resumed && self.protocol == Protocol::Sotw {
            // What it has is known by one version alone, so it waits for all clusters and all endpoints.
            let is_open = |watch: &Watch| watch.is_unsettled() || watch.owes_answer();
            let endpoints = self.position(ENDPOINT).map(|at| &self.watches[at]);
            return Ok(is_open(clusters) || endpoints.is_some_and(is_open));
        }
        let pending = self.pending_clusters(clusters, source)?;
        Ok(!target.set.mentions_beyond(&watch.held().set, &pending).is_empty())
    }

    /// The clusters that the client is to have and may not have in use yet.
    fn pending_clusters(&self, clusters: &Watch, source: &impl Source) -> Result<Names, Refusal> {
        let now = resources(source, clusters, &clusters.interest)?;
        let held = &clusters.held().set;
        let mut pending = self.order.warming.clone();
        if !held.is_empty() && now != *held {
            pending.extend(now.added_since(held).cloned());
        }
        let before = clusters.accepted_before();
        if clusters.is_unsettled() && !before.is_empty() {
            pending.extend(held.added_since(before).cloned());
        }
        Ok(Names::new(pending))
    }

    /// The clusters the client is to have, with those it may still need; the second says whether there are any.
    pub(super) fn with_clusters_in_use(
        &self,
        at: usize,
        target: State,
        source: &impl Source,
    ) -> Result<(State, bool), Refusal> {
        let watch = &self.watches[at];
        if self.order.is_overdue || *watch.type_url != *CLUSTER || !watch.interest.is_wildcard() {
            return Ok((target, false));
        }
        let leaving = target.set.since(&watch.held().set);
        if leaving.removed.is_empty() {
            return Ok((target, false));
        }
        let in_use = self.clusters_in_use(Names::new(leaving.removed.iter().cloned()), source)?;
        let is_retained = !in_use.is_empty();
        let set = watch.with_held(target.set, &in_use);
        Ok((State { set, ..target }, is_retained))
    }

    /// Those of these clusters that are named by something the client has and is to replace.
    fn clusters_in_use(&self, leaving: Names, source: &impl Source) -> Result<Vec<Arc<str>>, Refusal> {
        if self.order.is_resumed && self.is_resuming() {
            // What the client's routes and listeners of an earlier stream name is not known: it has only said their versions.
            return Ok(leaving.to_vec());
        }
        let mut in_use = Vec::new();
        for watch in self.watches.iter().filter(|watch| REFERRING.contains(&&*watch.type_url)) {
            if watch.is_uncertain() {
                return Ok(leaving.to_vec());
            }
            let now = resources(source, watch, &watch.interest)?;
            let (held, before) = (&watch.held().set, watch.accepted_before());
            in_use.extend(held.mentions_beyond(&now, &leaving).iter().cloned());
            in_use.extend(before.mentions_beyond(held, &leaving).iter().cloned());
        }
        Ok(in_use)
    }

    /// Whether a client with the state of an earlier stream has not settled yet what leads to its clusters.
    fn is_resuming(&self) -> bool {
        let is_busy = |at: usize| self.watches[at].is_busy();
        self.position(LISTENER).is_none_or(is_busy) || self.position(ROUTE).is_some_and(is_busy)
    }

    /// The clusters of a client that wants all of them.
    fn all_clusters(&self) -> Option<&Watch> {
        let clusters = &self.watches[self.position(CLUSTER)?];
        clusters.interest.is_wildcard().then_some(clusters)
    }
}

/// Whether a proxy has to ask for the endpoints of a cluster, by its name, before it uses it.
fn awaits_endpoints(cluster: &Resource) -> bool {
    let config = cluster::EDS_CLUSTER_CONFIG.tag();
    let Some((_, config)) = Fields(&cluster.body).find(|(tag, _)| *tag == config) else { return false };
    let service = eds_cluster_config::SERVICE_NAME.tag();
    Fields(config).filter(|(tag, _)| *tag == service).all(|(_, name)| *name == *cluster.name.as_bytes())
}
