//! Make before break: the order in which resources change that others refer to by name.
//!
//! A proxy fails the requests of a route that names a cluster it does not have, and a ztunnel passes over a policy that a
//! workload names and that it does not have, which lets in whom the policy keeps out. Two waits keep that from happening:
//!
//! ```text
//! new cluster ──► acknowledged ──► its endpoints acknowledged ──► routes and listeners that name it
//! routes and listeners that name it no longer ──► acknowledged ──► removal of the cluster
//!
//! new policy ──► acknowledged ──► workloads that name it
//! workloads that name it no longer ──► acknowledged ──► removal of the policy
//! ```
//!
//! Only what names such a resource waits, which is looked up in the bytes of what changes. Only clients that want all clusters
//! or policies are waited for: others (gRPC) ask for a cluster after they have seen its name. A delta client that returns keeps
//! what is gone until it has settled what may refer to it. A state-of-the-world client says no more of its clusters than whose
//! endpoints it wants. Where one of these is gone, it gets its listeners and routes first, unless they name a cluster that it does
//! not have: then the new clusters come first, and with them the old ones go. And waiting is bounded: whoever drives the
//! session calls [`Session::stop_waiting`] after a while, as a client that never acknowledges must not keep its old routes.

use std::sync::Arc;

use canopus_proto::fields::{cluster, eds_cluster_config};

use super::watch::Watch;
use super::{Protocol, Session, State, resources};
use crate::bounds::Fields;
use crate::names::Names;
use crate::resource::{Resource, ResourceSet};
use crate::source::{Refusal, Source};
use crate::types::{ADDRESS, AUTHORIZATION, CLUSTER, ENDPOINT, LISTENER, ROUTE, WORKLOAD};

/// Resources of one type that resources of others name.
struct Reference {
    /// The type whose resources are named.
    named: &'static str,
    /// The types whose resources name them. A client has asked for the first of these before it uses any of them.
    naming: [&'static str; 2],
    /// Whether a client can serve without any resource of the type that is named.
    is_optional: bool,
}

static REFERENCES: [Reference; 2] = [
    Reference { named: CLUSTER, naming: [LISTENER, ROUTE], is_optional: false },
    Reference { named: AUTHORIZATION, naming: [ADDRESS, WORKLOAD], is_optional: true },
];

impl Reference {
    /// What resources of this type are named by.
    fn to(type_url: &str) -> Option<&'static Self> {
        REFERENCES.iter().find(|reference| reference.named == type_url)
    }

    /// What resources of this type name.
    fn from(type_url: &str) -> Option<&'static Self> {
        REFERENCES.iter().find(|reference| reference.naming.contains(&type_url))
    }
}

/// State that a session keeps for the order of references.
#[derive(Default)]
pub(super) struct ReferenceOrder {
    /// Clusters the client got while it had others, and whose endpoints it has not acknowledged yet.
    warming: Vec<Arc<str>>,
    /// The named types of which the client came with the state of an earlier stream, while it is not settled yet what that
    /// is named by.
    resumed: Vec<&'static str>,
    is_waiting: bool,
    /// The wait has lasted long enough.
    is_overdue: bool,
}

impl Session {
    /// Whether something is held back until the client has other resources in use.
    pub fn is_waiting(&self) -> bool {
        self.order.is_waiting
    }

    /// Sends what is held back, whatever the client has.
    pub fn stop_waiting(&mut self) {
        self.order = ReferenceOrder { is_overdue: true, ..ReferenceOrder::default() };
    }

    /// Takes note of whether anything had to wait, once everything else is sent. True if what waited no longer has to.
    pub(super) fn note_waiting(&mut self, is_waiting: bool) -> bool {
        self.order.is_waiting = is_waiting;
        if !self.watches.iter().any(Watch::is_due) {
            self.order.is_overdue = false;
        }
        let before = self.order.resumed.len();
        let mut resumed = std::mem::take(&mut self.order.resumed);
        resumed.retain(|named| Reference::to(named).is_some_and(|reference| self.is_resuming(reference)));
        self.order.resumed = resumed;
        self.order.resumed.len() < before && is_waiting
    }

    /// The client of a new stream says that it has resources which others name.
    pub(super) fn note_resumption(&mut self, at: usize) {
        let watch = &self.watches[at];
        if let Some(reference) = Reference::to(&watch.type_url).filter(|_| watch.has_claims()) {
            self.order.resumed.push(reference.named);
        }
    }

    /// Whether the client came with resources of this type, and it is not settled yet what names them.
    fn is_resumed(&self, named: &str) -> bool {
        self.order.resumed.contains(&named)
    }

    /// Takes note of the clusters that were just sent to a client that was sent these before.
    pub(super) fn note_added_clusters(&mut self, at: usize, before: &ResourceSet) {
        let watch = &self.watches[at];
        let held = &watch.held().set;
        self.order.warming.retain(|name| held.get(name).is_some());
        // What a client has from an earlier stream is known once it is answered.
        let before = if before.is_empty() { watch.accepted_before() } else { before };
        let asks_for_endpoints = self.is_resumed(CLUSTER) || self.position(ENDPOINT).is_some();
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
            // The client may have taken some of the clusters; it does not say which.
            CLUSTER if refused => self.order.warming.clear(),
            ENDPOINT if !watch.owes_answer() => {
                self.order.warming.retain(|name| !watch.interest.covers(name));
            }
            _ => {}
        }
    }

    /// Whether a step towards `target` has to wait for what it names.
    pub(super) fn must_wait(&self, at: usize, target: &State, source: &impl Source) -> Result<bool, Refusal> {
        let watch = &self.watches[at];
        let held = &watch.held().set;
        if [CLUSTER, ENDPOINT].contains(&&*watch.type_url) {
            return self.keeps_clusters(source);
        }
        let Some(reference) = Reference::from(&watch.type_url) else { return Ok(false) };
        if self.order.is_overdue || target.set == *held || (reference.is_optional && held.is_empty()) {
            return Ok(false);
        }
        let Some(named) = self.everything_of(reference.named) else { return Ok(false) };
        if self.is_resumed(CLUSTER) && reference.named == CLUSTER && self.protocol == Protocol::Sotw {
            // What it has is known by one version alone, so it waits for all clusters and all endpoints, or they for it.
            let is_open = |watch: &Watch| watch.is_unsettled() || watch.owes_answer();
            let endpoints = self.position(ENDPOINT).map(|at| &self.watches[at]);
            let is_open = is_open(named) || endpoints.is_some_and(is_open);
            return Ok(is_open && !self.keeps_clusters(source)?);
        }
        let pending = self.pending(reference, named, source)?;
        Ok(!target.set.mentions_beyond(held, &pending).is_empty())
    }

    /// Whether a state-of-the-world client that returns keeps its clusters for now, because its routes may lead to some of them
    /// that are gone.
    fn keeps_clusters(&self, source: &impl Source) -> Result<bool, Refusal> {
        let is_returning = self.protocol == Protocol::Sotw && self.is_resumed(CLUSTER);
        let Some(clusters) = self.everything_of(CLUSTER).filter(|_| is_returning && !self.order.is_overdue)
        else {
            return Ok(false);
        };
        let now = resources(source, clusters, &clusters.interest)?;
        if !clusters.has_claims() || clusters.claims(now.digest()) {
            return Ok(false);
        }
        let kept = self.position(ENDPOINT).and_then(|at| self.watches[at].interest.names());
        if kept.is_some_and(|kept| kept.iter().all(|name| now.get(name).is_some())) {
            return Ok(false);
        }
        if self.position(LISTENER).is_none() {
            // It asks for endpoints before it asks for listeners.
            return Ok(true);
        }
        let Some(kept) = kept else { return Ok(false) };
        let lacking = now.iter().filter(|cluster| !kept.contains(&cluster.name) && awaits_endpoints(cluster));
        let lacking = Names::new(lacking.map(|cluster| Arc::clone(&cluster.name)));
        let mut is_unsettled = false;
        for at in [LISTENER, ROUTE].into_iter().filter_map(|naming| self.position(naming)) {
            let watch = &self.watches[at];
            let naming = resources(source, watch, &watch.interest)?;
            if !naming.mentions_beyond(&ResourceSet::default(), &lacking).is_empty() {
                return Ok(false);
            }
            is_unsettled |= watch.is_busy();
        }
        Ok(is_unsettled)
    }

    /// The resources of a type that the client is to have and may not have in use yet.
    fn pending(&self, reference: &Reference, named: &Watch, source: &impl Source) -> Result<Names, Refusal> {
        let now = resources(source, named, &named.interest)?;
        let held = &named.held().set;
        let is_serving = |had: &ResourceSet| reference.is_optional || !had.is_empty();
        let mut pending = Vec::new();
        if reference.named == CLUSTER {
            pending.extend(self.order.warming.iter().cloned());
        }
        if is_serving(held) && now != *held {
            pending.extend(now.added_since(held).cloned());
        }
        let before = named.accepted_before();
        if named.is_unsettled() && is_serving(before) {
            pending.extend(held.added_since(before).cloned());
        }
        Ok(Names::new(pending))
    }

    /// What the client is to have of a type, with what it may still need; the second says whether there is any such thing.
    pub(super) fn with_named_in_use(
        &self,
        at: usize,
        target: State,
        source: &impl Source,
    ) -> Result<(State, bool), Refusal> {
        let watch = &self.watches[at];
        let Some(reference) = Reference::to(&watch.type_url) else { return Ok((target, false)) };
        if self.order.is_overdue || !watch.interest.is_wildcard() {
            return Ok((target, false));
        }
        let leaving = target.set.since(&watch.held().set);
        if leaving.removed.is_empty() {
            return Ok((target, false));
        }
        let leaving = Names::new(leaving.removed.iter().cloned());
        let mut in_use = self.in_use(reference, leaving.clone(), source)?;
        let is_retained = !in_use.is_empty();
        if is_retained && self.protocol == Protocol::Sotw {
            // Each removal would send all the others again, so what leaves does so at once.
            in_use = leaving.to_vec();
        }
        let set = watch.with_held(target.set, &in_use);
        Ok((State { set, ..target }, is_retained))
    }

    /// The members of `leaving` that are named by a resource the client has and is to replace.
    fn in_use(
        &self,
        reference: &Reference,
        leaving: Names,
        source: &impl Source,
    ) -> Result<Vec<Arc<str>>, Refusal> {
        if self.is_resumed(reference.named) && self.is_resuming(reference) {
            // What the resources of an earlier stream name is not known: it has only said their versions.
            return Ok(leaving.to_vec());
        }
        let mut in_use = Vec::new();
        for watch in self.watches.iter().filter(|watch| reference.naming.contains(&&*watch.type_url)) {
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

    /// Whether a client with the state of an earlier stream has not settled yet what names resources of a type.
    fn is_resuming(&self, reference: &Reference) -> bool {
        let [first, second] = reference.naming;
        let is_busy = |at: usize| self.watches[at].is_busy();
        self.position(first).is_none_or(is_busy) || self.position(second).is_some_and(is_busy)
    }

    /// The resources of a type for a client that wants all of them.
    fn everything_of(&self, type_url: &str) -> Option<&Watch> {
        let watch = &self.watches[self.position(type_url)?];
        watch.interest.is_wildcard().then_some(watch)
    }
}

/// Whether a watch is one of clusters.
pub(super) fn is_of_clusters(watch: &Watch) -> bool {
    *watch.type_url == *CLUSTER
}

/// Whether a proxy has to ask for the endpoints of a cluster, by its name, before it uses it.
fn awaits_endpoints(cluster: &Resource) -> bool {
    let config = cluster::EDS_CLUSTER_CONFIG.tag();
    let Some((_, config)) = Fields(&cluster.body).find(|(tag, _)| *tag == config) else { return false };
    let service = eds_cluster_config::SERVICE_NAME.tag();
    Fields(config).filter(|(tag, _)| *tag == service).all(|(_, name)| *name == *cluster.name.as_bytes())
}
