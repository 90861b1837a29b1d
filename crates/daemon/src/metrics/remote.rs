//! Remote clusters, looked at when somebody asks.

use std::sync::Arc;

use canopus_runtime::metrics::Registry;
use canopus_runtime::metrics::catalogue::{
    ISTIOD_REMOTE_CLUSTER_SYNC_STATUS, REMOTE_CLUSTER_SECRET_EVENTS_TOTAL,
};
use canopus_sources::kubernetes::RemoteRegistry;

use crate::source_statuses::SourceStatuses;

/// The states that Istio knows of a remote cluster.
const STATES: [&str; 4] = ["synced", "syncing", "timeout", "closed"];

/// Registers a metric for the state of each remote cluster.
pub(crate) fn collect_remote_clusters(
    registry: &Registry,
    remote: RemoteRegistry,
    statuses: Arc<SourceStatuses>,
) {
    registry.collect(move |collected| {
        let list = remote.current();
        let statuses = statuses.current();
        for name in list.clusters.keys() {
            let source = statuses.iter().find(|status| status.source.cluster == *name);
            let now = match source {
                Some(source) if source.is_live() => "synced",
                // The cluster was followed once, or before a restart, and is not up to date now.
                Some(source) if source.is_known() => "timeout",
                _ => "syncing",
            };
            for state in STATES {
                let value = if state == now { 1.0 } else { 0.0 };
                collected.push(ISTIOD_REMOTE_CLUSTER_SYNC_STATUS, [&**name, "remote", state], value);
            }
        }
        let events = list.events;
        for (event, count) in [("add", events.added), ("update", events.updated), ("delete", events.deleted)]
        {
            if count > 0 {
                collected.push(REMOTE_CLUSTER_SECRET_EVENTS_TOTAL, [event], count as f64);
            }
        }
    });
}
