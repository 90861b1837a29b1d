//! Objects from a Kubernetes API server.
//!
//! ```text
//! Watch (one for each kind): list, watch, decode ──► Collector: filter ──► Feed ──► Intake, World
//! ```
//!
//! Every kind is followed by a [`watch`] of its own, so one that fails or is slow does not stop the others. The watch's task
//! decodes each event into an [`Object`](canopus_api::Object). The [`collector`] takes the events of all watches and drops
//! what the mesh may not see: namespaces by `discoverySelectors`, configuration by revision. Dropped objects are not kept.
//! Kinds of a custom resource are followed as soon as the cluster has its definition.
//!
//! Invariant: an object goes only when the API server says so, by a deletion or by a complete listing that lacks it.

mod collector;
mod definitions;
mod dynamic;
mod follow;
mod kubeconfig;
mod limit;
mod lines;
mod managed;
mod object;
mod remote;
mod resource;
mod review;
mod secret;
mod select;
mod server;
mod token;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use canopus_api::Kind;

pub use dynamic::ResourceType;
pub use follow::{Followable, Followed};
pub use kubeconfig::{AllowedFields, KubeconfigError};
pub use limit::RateLimit;
pub use managed::{ApiError, ApplyOptions};
pub use remote::{
    DefinitionEvents, RemoteCluster, RemoteClusterList, RemoteClusters, RemoteDefinitions, RemoteOptions,
    RemoteRegistry,
};
pub use resource::{all_kinds, registry_kinds};
pub use review::ReviewError;
pub use secret::{SecretError, StoredSecret};
pub use select::Selection;
pub use server::{Access, AccessError, Cluster};
pub use token::{TokenError, TokenOwner, TokenPod};
pub use watch::Listing;

/// What a line of a watch of a kind changes.
pub fn changes_in_line(kind: Kind, line: &[u8]) -> Vec<Change> {
    object::events(kind, watch::event_in_line(line).into_iter().collect())
}

use crate::change::Change;
use crate::feed::{Feed, Source};
use collector::Collector;

/// What of a cluster is followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kinds.
    pub kinds: BTreeSet<Kind>,
    /// The one namespace that is looked at; all if none is named.
    pub namespace: Option<Box<str>>,
    /// The revision of this control plane. Configuration labelled for another one is not seen; if empty, all is.
    pub revision: Box<str>,
    /// The namespaces that are seen, and what of that changes.
    pub selection: tokio::sync::watch::Receiver<Selection>,
    /// How listings are asked for.
    pub listing: Listing,
    /// How often what the watch of a kind has reported is compared with a listing of names and versions.
    pub audit_interval: Duration,
}

/// How often audits are made, unless told otherwise.
const AUDIT_INTERVAL: Duration = Duration::from_secs(20 * 60);

impl Options {
    /// All of every kind in `kinds`.
    pub fn new(kinds: BTreeSet<Kind>) -> Self {
        Self {
            kinds,
            namespace: None,
            revision: Box::default(),
            selection: tokio::sync::watch::Sender::new(Selection::default()).subscribe(),
            listing: Listing::default(),
            audit_interval: AUDIT_INTERVAL,
        }
    }
}

/// A cluster as a source.
pub struct Kubernetes {
    cluster: Cluster,
    options: Options,
}

impl Kubernetes {
    /// What `options` say of a cluster.
    pub fn new(cluster: Cluster, options: Options) -> Self {
        Self { cluster, options }
    }
}

impl Source for Kubernetes {
    async fn run(self, feed: Feed) {
        // The only way to end is that nobody listens any more.
        let _ = Collector::new(self.cluster, self.options, feed).run().await;
    }
}
