//! The metric that tells what became of EnvoyFilters.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_envoy::patch_report::{Outcome, Report};
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

#[cfg(test)]
mod tests {
    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::{Batch, Engine};
    use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};

    use super::*;

    const FILTERS: &str = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: mixed, namespace: default}
spec:
  configPatches:
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: 5s}}
  - applyTo: HTTP_FILTER
    patch: {operation: INSERT_FIRST, value: {name: [no, name]}}
";

    #[test]
    fn patches_are_counted_as_applied_or_failed() {
        let engine = Engine::new();
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        for outcome in decode_documents(FILTERS, &Limits::default(), Options::watch()) {
            let object = outcome.unwrap().value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        engine.apply(batch);
        let dispatcher = Dispatcher::unobserved(engine);
        dispatcher.connect(crate::test_proxy("a"));
        let metrics = Registry::new();
        register(&metrics, &Flags::read(&[("PILOT_ENVOY_FILTER_STATS", "true")]), &dispatcher);
        let text = metrics.encode();
        for (patch, result, value) in
            [("cluster", "applied", 1), ("httpfilter", "applied", 0), ("httpfilter", "error", 1)]
        {
            let labels = format!("{{name=\"default/mixed\",patch=\"{patch}\",result=\"{result}\"}}");
            assert!(text.contains(&format!("pilot_envoy_filter_status{labels} {value}\n")), "{text}");
        }
    }
}
