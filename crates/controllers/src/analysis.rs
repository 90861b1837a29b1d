//! What analysis finds, in the statuses of the objects it is about (`PILOT_ENABLE_ANALYSIS`).
//!
//! Each plan analyzes the whole world, so plans are an interval apart and nothing is kept between them. An object gets a status when
//! there are messages about it, and loses them when there are none any more; objects nobody has found anything about are never
//! written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_analysis::world::HOME_CLUSTER;
use canopus_analysis::{Message, Resource, Selection, World, analyze, analyzer};
use canopus_api::registry::Category;
use canopus_api::{Kind, Object};
use canopus_engine::{QueryError, Snapshot};
use canopus_mesh::world::{MeshSettings, ObjectIndex, Objects, Origin, Settings};
use canopus_runtime::flags::PILOT_ENABLE_ANALYSIS;
use canopus_sources::kubernetes::all_kinds;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Controller, Plan, Write};
use crate::status_write::{present, status_write};

/// The kinds of which a control plane follows those objects alone that it made itself. What reads them would report the others as
/// missing.
const PARTIAL: [Kind; 4] =
    [Kind::Deployment, Kind::ServiceAccount, Kind::HorizontalPodAutoscaler, Kind::PodDisruptionBudget];

/// Writes the messages of analysis into statuses.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisController {
    /// How far analyses are apart.
    pub interval: Duration,
}

impl Controller for AnalysisController {
    fn name(&self) -> &'static str {
        "analysis"
    }

    fn pace(&self) -> Duration {
        self.interval
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        let settings = world.read::<Settings>(&()).unwrap_or_default();
        if !settings.flags.get(PILOT_ENABLE_ANALYSIS) {
            return Ok(Plan::default());
        }
        let followed = all_kinds();
        let counts = |kind: Kind| followed.contains(&kind) && !PARTIAL.contains(&kind);
        let outcome = analyze(&analyzed(world, &settings, counts), &Selection::default(), counts);
        let mut messages: BTreeMap<(&str, &str, &str), Vec<&Message>> = BTreeMap::new();
        for message in &outcome.messages {
            if let Some(origin) = &message.origin {
                let object = (origin.kind, &*origin.namespace, &*origin.name);
                messages.entry(object).or_default().push(message);
            }
        }
        let mut writes = Vec::new();
        for kind in Kind::ALL.iter().copied().filter(|kind| kind.info().category == Category::Istio) {
            for (origin, object) in objects(world, &settings, kind) {
                let about = (kind.info().kind, origin.namespace(), &*origin.key.name);
                let found = messages.get(&about).map_or(&[][..], Vec::as_slice);
                writes.extend(pending(&origin, object, found));
            }
        }
        Ok(writes.into())
    }
}

/// The objects of the control plane's own cluster.
fn objects(
    world: &Snapshot,
    settings: &MeshSettings,
    kind: Kind,
) -> impl Iterator<Item = (Origin, Arc<Object>)> {
    let origins = world.members::<Objects>(&ObjectIndex::Kind(kind)).to_vec();
    let here = origins.into_iter().filter(|origin| origin.cluster == settings.cluster);
    here.filter_map(|origin| world.read::<Objects>(&origin).map(|object| (origin, object)))
}

fn analyzed(world: &Snapshot, settings: &MeshSettings, counts: impl Fn(Kind) -> bool) -> World {
    let mut analyzed =
        World::new(settings.mesh.clone(), settings.networks.clone(), &settings.system_namespace);
    let cluster: Arc<str> = HOME_CLUSTER.into();
    for kind in Kind::ALL.iter().copied().filter(|kind| counts(*kind)) {
        if analyzer::reads(kind) || kind.info().category == Category::Istio {
            for (_, object) in objects(world, settings, kind) {
                analyzed.insert(Resource::from_object(object.as_ref().clone(), &cluster));
            }
        }
    }
    analyzed
}

/// The write that makes the status of an object say these messages.
fn pending(origin: &Origin, object: Arc<Object>, messages: &[&Message]) -> Option<Arc<Write>> {
    let mut status = present(&object);
    let said = status["validationMessages"].as_array().is_some_and(|said| !said.is_empty());
    if messages.is_empty() && !said {
        return None;
    }
    if !status.is_object() {
        status = json!({});
    }
    // Istio's kinds are protobuf, whose JSON has large numbers as text.
    status["observedGeneration"] = json!(object.meta().generation.to_string());
    status["validationMessages"] = messages.iter().map(|message| validation_message(message)).collect();
    status_write(origin, object, status)
}

/// A message as statuses have it. Parity: without its text, which `analyze` prints.
fn validation_message(message: &Message) -> Value {
    json!({
        "type": {"code": message.code},
        "level": message.level.name().to_ascii_uppercase(),
        "documentationUrl": message.documentation_page(),
    })
}

#[cfg(test)]
mod tests {
    use canopus_engine::Engine;
    use canopus_runtime::flags::Flags;

    use super::*;
    use crate::controller::Change;
    use crate::testing;

    const CONTROLLER: AnalysisController = AnalysisController { interval: Duration::from_secs(10) };

    const RULE: &str = "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop, generation: 3}
spec: {host: nope}
";

    fn statuses(documents: &str, enabled: &str) -> Vec<Value> {
        let flags = Arc::new(Flags::read(&[("PILOT_ENABLE_ANALYSIS", enabled)]));
        let mut batch = testing::objects(documents);
        batch.set::<Settings>((), MeshSettings { flags, ..MeshSettings::default() });
        let engine = Engine::new();
        engine.apply(batch);
        let plan = testing::plan(&CONTROLLER, &engine);
        let status = |write: &Arc<Write>| match &write.change {
            Change::Status { status, .. } => status.clone(),
            other => panic!("{:?}", std::mem::discriminant(other)),
        };
        plan.writes.iter().map(status).collect()
    }

    #[test]
    fn status_says_what_is_wrong_and_later_that_nothing_is() {
        let said = json!({"observedGeneration": "3", "validationMessages": [{
            "type": {"code": "IST0174"}, "level": "WARNING",
            "documentationUrl": "https://istio.io/v1.30/docs/reference/config/analysis/ist0174/"}]});
        assert_eq!(statuses(RULE, "true"), std::slice::from_ref(&said));
        assert_eq!(statuses(RULE, "false"), [] as [Value; 0]);
        let with_status = format!("{RULE}status: {said}\n");
        assert_eq!(statuses(&with_status, "true"), [] as [Value; 0], "nothing is written twice");
        let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: nope, namespace: shop}\nspec: {ports: [{port: 80, name: http}]}\n";
        let repaired = json!({"observedGeneration": "3", "validationMessages": []});
        assert_eq!(statuses(&format!("{with_status}{service}"), "true"), [repaired]);
    }

    #[test]
    fn what_an_object_suppresses_is_not_written() {
        let suppressed = RULE.replace(
            "generation: 3",
            "generation: 3, annotations: {galley.istio.io/analyze-suppress: IST0174}",
        );
        assert_eq!(statuses(&suppressed, "true"), [] as [Value; 0]);
    }
}
