//! The metric that tells what became of EnvoyFilters.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_envoy::envoy_filter::{Outcome, Report};
use canopus_runtime::flags::{Flags, PILOT_ENVOY_FILTER_STATS};
use canopus_runtime::metrics::{Registry, catalogue};

use crate::push::Dispatcher;

/// Registers the metric, if it is wanted. It is computed when it is asked for.
pub(crate) fn register(metrics: &Registry, flags: &Flags, dispatcher: &Arc<Dispatcher>) {
    if !flags.get(PILOT_ENVOY_FILTER_STATS) {
        return;
    }
    let dispatcher = Arc::clone(dispatcher);
    metrics.collect(move |collected| {
        for ((name, patch), status) in statuses(&dispatcher) {
            let applied = if status.applied { 1.0 } else { 0.0 };
            collected.push(catalogue::PILOT_ENVOY_FILTER_STATUS, [&name, patch, "applied"], applied);
            if status.failed {
                collected.push(catalogue::PILOT_ENVOY_FILTER_STATUS, [&name, patch, "error"], 1.0);
            }
        }
    });
}

/// What became of the patches of one kind of an EnvoyFilter, at whatever proxy.
#[derive(Default)]
struct Status {
    applied: bool,
    failed: bool,
}

/// By the name of the EnvoyFilter and the kind of its patches.
fn statuses(dispatcher: &Dispatcher) -> BTreeMap<(String, &'static str), Status> {
    let mut statuses: BTreeMap<_, Status> = BTreeMap::new();
    for connection in dispatcher.connections().all() {
        let Ok(report) = dispatcher.engine().get::<Report>(&connection.proxy) else { continue };
        for patch in report.iter() {
            let filter = &patch.patch.filter;
            let name = format!("{}/{}", filter.namespace(), filter.name());
            let status = statuses.entry((name, kind(patch.apply_to))).or_default();
            status.applied |= patch.outcome == Outcome::Applied;
            status.failed |= matches!(patch.outcome, Outcome::Unreadable(_) | Outcome::Refused);
        }
    }
    statuses
}

/// The metric's word for what patches apply to.
fn kind(apply_to: &'static str) -> &'static str {
    match apply_to {
        "CLUSTER" => "cluster",
        "LISTENER" => "listener",
        "LISTENER_FILTER" => "listenerfilter",
        "FILTER_CHAIN" => "filterchain",
        "NETWORK_FILTER" => "networkfilter",
        "HTTP_FILTER" => "httpfilter",
        "ROUTE_CONFIGURATION" | "HTTP_ROUTE" => "route",
        "VIRTUAL_HOST" => "vhost",
        other => other,
    }
}
