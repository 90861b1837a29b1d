//! Conditions of objects in an ambient mesh: which waypoint is in front of them, and who enforces policies.
//!
//! Conditions are applied on the server's side by several managers, each with its own types of conditions: a manager that
//! has nothing to say any more applies nothing, which removes what it said before.

use std::any::Any;
use std::sync::Arc;

use canopus_api::registry::Category;
use canopus_api::{Kind, Object};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::waypoint::{AmbientConditions, Observation, WriterConditions};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, settings};
use canopus_runtime::flags::PILOT_ENABLE_AMBIENT;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Basis, Change, Controller, Plan, Write};
use crate::status_write::present;

/// The kinds that have such conditions.
const KINDS: [Kind; 7] = [
    Kind::Service,
    Kind::ServiceEntry,
    Kind::WorkloadEntry,
    Kind::AuthorizationPolicy,
    Kind::RequestAuthentication,
    Kind::Telemetry,
    Kind::WasmPlugin,
];

/// Writes the conditions of objects in an ambient mesh.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmbientConditionController;

impl Controller for AmbientConditionController {
    fn name(&self) -> &'static str {
        "ambient-conditions"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<PendingConditions>(&())?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<PendingConditions>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<PendingConditions>(())))
    }
}

/// The conditions that are not what they should be.
struct PendingConditions;

impl Query for PendingConditions {
    const NAME: &'static str = "pending_ambient_conditions";
    type Key = ();
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        if !settings.flags.get(PILOT_ENABLE_AMBIENT) {
            return Vec::new();
        }
        let of_kind = |kind| ctx.members::<Objects>(&ObjectIndex::Kind(kind)).to_vec();
        let origins: Vec<Origin> =
            KINDS.into_iter().flat_map(of_kind).filter(|origin| origin.cluster == settings.cluster).collect();
        ctx.get_all::<PendingCondition>(&origins).iter().filter_map(|write| write.as_ref().clone()).collect()
    }
}

/// The write that the conditions of an object need. Where two managers have something to write, the second one's turn comes
/// when the first one's write was seen.
struct PendingCondition;

impl Query for PendingCondition {
    const NAME: &'static str = "pending_ambient_condition";
    type Key = Origin;
    type Value = Option<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let writers = ctx.get::<AmbientConditions>(origin);
        let object = ctx.read::<Objects>(origin)?;
        let status = present(&object);
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        writers.iter().find_map(|writer| pending(origin, &object, conditions, writer)).map(Arc::new)
    }
}

fn pending(origin: &Origin, object: &Object, present: &[Value], writer: &WriterConditions) -> Option<Write> {
    let of_type = |kind: &str| present.iter().find(|condition| condition["type"] == kind);
    let is_as_desired = writer.types.iter().all(|kind| {
        let desired = writer.observations.iter().find(|observation| observation.kind == *kind);
        match (desired, of_type(kind)) {
            (None, None) => true,
            (Some(desired), Some(condition)) => says(condition, desired),
            _ => false,
        }
    });
    if is_as_desired {
        return None;
    }
    let info = origin.key.kind.info();
    let conditions: Vec<Value> = writer
        .observations
        .iter()
        .map(|observation| condition(observation, of_type(observation.kind), info.category))
        .collect();
    let mut metadata = json!({"name": object.meta().name});
    if info.is_namespaced() {
        metadata["namespace"] = json!(object.meta().namespace);
    }
    let fields = json!({
        "apiVersion": info.api_version(),
        "kind": info.kind,
        "metadata": metadata,
        "status": {"conditions": conditions},
    });
    let change = Change::ApplyPart { fields, manager: writer.manager.into(), subresource: "status" };
    Some(Write { target: origin.key.clone(), change })
}

fn status_text(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}

/// Whether a condition says what was observed, whenever it said it first.
fn says(condition: &Value, observation: &Observation) -> bool {
    let generation = match &condition["observedGeneration"] {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    };
    condition["status"] == status_text(observation.holds)
        && condition["reason"] == observation.reason
        && condition["message"] == observation.message.as_str()
        && generation == observation.generation
}

fn condition(observation: &Observation, present: Option<&Value>, category: Category) -> Value {
    let status = status_text(observation.holds);
    let mut condition = json!({
        "type": observation.kind,
        "status": status,
        "reason": observation.reason,
        "message": observation.message,
    });
    if observation.generation != 0 {
        // Istio's kinds are protobuf, whose JSON has large numbers as text.
        condition["observedGeneration"] = match category {
            Category::Istio => json!(observation.generation.to_string()),
            _ => json!(observation.generation),
        };
    }
    // Without a time the applier sets that of the write.
    let since =
        present.filter(|present| present["status"] == status).map(|present| &present["lastTransitionTime"]);
    if let Some(since) = since.filter(|since| since.is_string()) {
        condition["lastTransitionTime"] = since.clone();
    }
    condition
}

#[cfg(test)]
mod tests {
    use canopus_mesh::world::{MeshSettings, Settings};
    use canopus_runtime::flags::Flags;

    use super::*;
    use crate::testing::{objects, plan};

    fn world(documents: &str) -> Engine {
        let flags = Arc::new(Flags::read(&[("PILOT_ENABLE_AMBIENT", "true")]));
        let mut batch = objects(documents);
        batch.set::<Settings>((), MeshSettings { flags, ..MeshSettings::default() });
        let engine = Engine::new();
        engine.apply(batch);
        engine
    }

    const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {istio.io/use-waypoint: waypoint}}
spec: {ports: [{name: http, port: 80}]}
";

    fn conditions(documents: &str) -> Option<(String, Value)> {
        let plan = plan(&AmbientConditionController, &world(documents));
        let write = plan.writes.first()?;
        let Change::ApplyPart { fields, manager, .. } = &write.change else { panic!("{write:?}") };
        Some((manager.to_string(), fields["status"]["conditions"].clone()))
    }

    #[test]
    fn service_says_that_its_waypoint_is_not_ready_and_later_nothing_more() {
        let (manager, said) = conditions(SERVICE).unwrap();
        assert_eq!(manager, "istio-ambient-service");
        let expected = json!([{"type": "istio.io/WaypointBound", "status": "False", "reason": "WaypointIsNotReady",
            "message": "waypoint \"shop/waypoint\" is not ready"}]);
        assert_eq!(said, expected);
        assert_eq!(conditions(&format!("{SERVICE}status: {{conditions: {said}}}")), None);
        let unbound = SERVICE.replace(", labels: {istio.io/use-waypoint: waypoint}", "");
        assert_eq!(conditions(&unbound), None);
        let stale = conditions(&format!("{unbound}status: {{conditions: {said}}}")).unwrap();
        assert_eq!(stale.1, json!([]), "what it said before is taken back");
    }

    #[test]
    fn policy_says_which_of_its_rules_only_a_waypoint_can_enforce() {
        let policy = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: shop, generation: 3}
spec: {action: DENY, rules: [{to: [{operation: {methods: [GET], paths: [/a]}}]}]}
";
        let (manager, said) = conditions(policy).unwrap();
        assert_eq!(manager, "istio-ambient-ztunnel-policy");
        assert_eq!(said[0]["observedGeneration"], "3");
        let message = said[0]["message"].as_str().unwrap();
        assert!(message.contains("(found: methods, paths)") && message.contains("no effect"), "{message}");
    }

    #[test]
    fn policies_of_all_kinds_say_whether_their_waypoint_has_them() {
        for (kind, version) in [
            ("RequestAuthentication", "security.istio.io/v1"),
            ("Telemetry", "telemetry.istio.io/v1"),
            ("WasmPlugin", "extensions.istio.io/v1alpha1"),
        ] {
            let policy = |target: &str| {
                let url = if kind == "WasmPlugin" { "url: oci://registry/filter, " } else { "" };
                format!(
                    "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: p, namespace: shop, generation: 2}}\n\
                     spec: {{{url}targetRefs: [{target}]}}\n"
                )
            };
            let gone = "{kind: Service, group: '', name: gone}";
            let (manager, said) = conditions(&policy(gone)).unwrap();
            assert_eq!(manager, "istio-ambient-waypoint-policy");
            assert_eq!(
                (&said[0]["type"], &said[0]["reason"]),
                (&json!("WaypointAccepted"), &json!("TargetNotFound"))
            );
            let ingress = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\n\
                           spec: {gatewayClassName: istio, listeners: []}\n";
            let of_gateway = policy("{kind: Gateway, group: gateway.networking.k8s.io, name: web}");
            assert_eq!(conditions(&format!("{of_gateway}{ingress}")), None, "{kind} of an ordinary gateway");
            assert_eq!(conditions(&policy("")), None);
        }
    }

    #[test]
    fn service_entry_says_how_far_the_mesh_lets_it_be_seen() {
        let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop}\n\
                     spec: {hosts: [a.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n";
        assert_eq!(conditions(entry), None, "the mesh says nothing");
        let flags = Arc::new(Flags::read(&[("PILOT_ENABLE_AMBIENT", "true")]));
        let mut settings = MeshSettings { flags, ..MeshSettings::default() };
        let visibility = "serviceEntryVisibility: {defaultVisibility: NAMESPACE}";
        settings.mesh = canopus_api::mesh_config::apply(visibility, &settings.mesh).unwrap().value;
        let mut batch = objects(entry);
        batch.set::<Settings>((), settings);
        let engine = Engine::new();
        engine.apply(batch);
        let writes = plan(&AmbientConditionController, &engine).writes;
        let Change::ApplyPart { fields, manager, .. } = &writes[0].change else { panic!("{writes:?}") };
        assert_eq!(&**manager, "istio-ambient-service");
        let condition = &fields["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"], &condition["reason"]),
            (&json!("istio.io/VisibilityApplied"), &json!("True"), &json!("Namespace"))
        );
    }

    #[test]
    fn time_of_a_condition_stays_while_its_status_does() {
        let said = json!([{"type": "istio.io/WaypointBound", "status": "False", "reason": "AttachmentDenied", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let (_, now) = conditions(&format!("{SERVICE}status: {{conditions: {said}}}")).unwrap();
        assert_eq!(now[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
