//! What comes from sources.

use canopus_api::kube::EndpointSlice;
use canopus_api::{Kind, Object, ObjectKey};
use canopus_engine::Engine;
use canopus_mesh::world::{Objects, Origin};
use canopus_sources::Update;
use canopus_sources::status::{Phase, SourceStatus};

use super::Metrics;
use crate::served_config::is_configuration;

impl Metrics {
    /// Counts what an update is about to change in the world.
    pub fn updated(&self, engine: &Engine, update: &Update) {
        for ((cluster, key), object) in &update.changes {
            let known = engine.read::<Objects>(&Origin::new(cluster.clone(), key.clone())).is_some();
            let event = match (known, object) {
                (false, Some(_)) => "add",
                (true, Some(_)) => "update",
                (_, None) => "delete",
            };
            self.event(key.kind, event);
            if let Some(Object::EndpointSlice(slice)) = object {
                let knows = |pod: &ObjectKey| {
                    let with_it =
                        update.changes.get(&(cluster.clone(), pod.clone())).is_some_and(Option::is_some);
                    with_it || engine.read::<Objects>(&Origin::new(cluster.clone(), pod.clone())).is_some()
                };
                let missing = pods_behind(slice).filter(|pod| !knows(pod)).count();
                if missing > 0 {
                    self.endpoints_before_pods.with([]).inc_by(missing as u64);
                }
            }
        }
    }

    /// Counts the parts of sources that cannot be followed, each time the reason is another than before.
    pub(crate) fn followed(&self, before: &[SourceStatus], now: &[SourceStatus]) {
        for status in now {
            let known = before.iter().find(|known| known.source.name == status.source.name);
            for part in &status.parts {
                let same = known.is_some_and(|known| known.parts.contains(part));
                if is_lost(&part.phase) && !same {
                    self.sync_errors.with([&status.source.cluster]).inc();
                }
            }
        }
    }

    fn event(&self, kind: Kind, event: &str) {
        let kinds = registry_names(kind);
        for name in kinds {
            self.registry_events.with([event, name]).inc();
        }
        if kinds.is_empty() && is_configuration(kind) {
            self.configuration_events.with([event, kind.info().kind]).inc();
        }
        if let Some(update) = update_name(kind, event) {
            self.updates.with([update]).inc();
        }
    }
}

/// Whether a part was looked for and could not be read.
fn is_lost(phase: &Phase) -> bool {
    matches!(phase, Phase::Waiting { reason: Some(_) } | Phase::Stale { .. })
}

/// The pods that a slice says are behind its endpoints.
pub(super) fn pods_behind(slice: &EndpointSlice) -> impl Iterator<Item = ObjectKey> {
    let pods = slice.spec.endpoints.iter().filter_map(|endpoint| endpoint.target_ref.as_ref());
    pods.filter(|target| &*target.kind == "Pod").map(|target| {
        let namespace = if target.namespace.is_empty() { &slice.meta.namespace } else { &target.namespace };
        ObjectKey::new(Kind::Pod, namespace, &target.name)
    })
}

/// What events of a kind are called where they say which services and workloads there are. Namespaces are watched twice.
fn registry_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::EndpointSlice => &["EndpointSlice"],
        Kind::Namespace => &["Namespaces", "Namespaces-TrafficDistribution"],
        Kind::Node => &["Nodes"],
        Kind::Pod => &["Pods"],
        Kind::Service => &["Services"],
        _ => &[],
    }
}

fn update_name(kind: Kind, event: &str) -> Option<&'static str> {
    match kind {
        Kind::EndpointSlice => Some("eds"),
        Kind::Service if event == "delete" => Some("svcdelete"),
        Kind::Service => Some("svc"),
        Kind::Namespace => Some("config"),
        kind if is_configuration(kind) => Some("config"),
        _ => None,
    }
}
