//! Statuses of Gateway API objects, as the mesh computes them.

use std::any::Any;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::gateway_api::{GatewayClassStatus, SupportedFeature};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::gateway_api::{SUPPORTED_FEATURES, Status, StatusOf};
use canopus_mesh::revision::is_for_this_revision;
use canopus_mesh::world::{ObjectIndex, Objects, Origin, settings};
use canopus_runtime::flags::PILOT_ENABLE_GATEWAY_API_STATUS;
use jiff::Timestamp;
use serde_json::Value;

use crate::controller::{Basis, Controller, Plan, Write};
use crate::gateway_deployment::DeploymentFault;
use crate::status_write::status_write;

/// The longest message of a condition, in bytes.
const LONGEST_MESSAGE: usize = 32768;

/// The kinds whose status is computed.
const KINDS: [Kind; 12] = [
    Kind::GatewayClass,
    Kind::KubernetesGateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::UdpRoute,
    Kind::BackendTlsPolicy,
    Kind::BackendTrafficPolicy,
    Kind::ExternalBackend,
    Kind::InferencePool,
];

/// Writes the statuses of Gateway API objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayStatusController;

impl Controller for GatewayStatusController {
    fn name(&self) -> &'static str {
        "gateway-status"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<PendingStatuses>(&())?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<PendingStatuses>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<PendingStatuses>(())))
    }
}

/// The statuses that are not what they should be.
struct PendingStatuses;

impl Query for PendingStatuses {
    const NAME: &'static str = "pending_gateway_statuses";
    type Key = ();
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        if !settings.flags.get(PILOT_ENABLE_GATEWAY_API_STATUS) {
            return Vec::new();
        }
        let of_kind = |kind| ctx.members::<Objects>(&ObjectIndex::Kind(kind)).to_vec();
        let origins: Vec<Origin> = KINDS.into_iter().flat_map(of_kind).collect();
        ctx.get_all::<PendingStatus>(&origins).iter().filter_map(|write| write.as_ref().clone()).collect()
    }
}

/// The write that an object's status needs.
struct PendingStatus;

impl Query for PendingStatus {
    const NAME: &'static str = "pending_gateway_status";
    type Key = Origin;
    type Value = Option<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let desired = ctx.get::<StatusOf>(origin);
        let mut desired = json(desired.as_deref()?)?;
        if origin.key.kind == Kind::KubernetesGateway
            && let Some(fault) = ctx.get::<DeploymentFault>(origin).as_ref()
        {
            add_deployment_fault(&mut desired, fault);
        }
        let seen = ctx.read::<Objects>(origin)?;
        // Every revision serves an object, and one of them says what became of it.
        if !is_for_this_revision(ctx, seen.meta()) {
            return None;
        }
        status_write(origin, seen, desired)
    }
}

/// Says in the condition `Programmed` why the proxies are not deployed as they should be. Whether those there are serve is what the
/// condition itself tells, so that stays. A gateway that is not accepted has said enough.
fn add_deployment_fault(status: &mut Value, fault: &str) {
    let is_told = |condition: &Value| condition["type"] == "Accepted" && condition["status"] == "False";
    if status["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(is_told)) {
        return;
    }
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == "Programmed") {
        let message = condition["message"].as_str().unwrap_or_default();
        let mut message = format!("{message}; the proxies cannot be deployed: {fault}");
        // The definition of the kind takes no longer ones.
        while message.len() > LONGEST_MESSAGE {
            message.pop();
        }
        condition["message"] = message.into();
    }
}

fn json(status: &Status) -> Option<Value> {
    let value = match status {
        Status::Class(status) => serde_json::to_value(with_features(status)),
        Status::Gateway(status) => serde_json::to_value(status),
        Status::ListenerSet(status) => serde_json::to_value(status),
        Status::Route(status) => serde_json::to_value(status),
        Status::Policy(status) => serde_json::to_value(status),
        Status::Pool(status) => serde_json::to_value(status),
    };
    value.ok()
}

/// A class that is ours tells what its gateways can do.
fn with_features(status: &GatewayClassStatus) -> GatewayClassStatus {
    let features = SUPPORTED_FEATURES.iter().map(|&name| SupportedFeature { name: name.into() });
    GatewayClassStatus { supported_features: features.collect(), ..status.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Change;
    use crate::testing::{plan, world};

    const WORLD: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: foreign}
spec: {controllerName: example.com/other}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: unattached, namespace: shop}
spec: {}
";

    #[test]
    fn class_is_accepted_and_what_is_not_ours_is_left_alone() {
        let engine = world(WORLD);
        let writes = plan(&GatewayStatusController, &engine).writes;
        let [write] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!(&*write.target.name, "istio");
        let Change::Status { status, .. } = &write.change else { panic!("{write:?}") };
        assert_eq!(status["conditions"][0]["type"], "Accepted");
        assert_eq!(status["supportedFeatures"][0]["name"], "BackendTLSPolicy");
        assert!(status["conditions"][0].get("lastTransitionTime").is_none());
    }

    #[test]
    fn nothing_is_planned_when_the_status_is_as_it_should_be() {
        let features: Vec<String> =
            SUPPORTED_FEATURES.iter().map(|name| format!("{{name: {name}}}")).collect();
        let accepted = WORLD.replace(
            "spec: {controllerName: istio.io/gateway-controller}",
            &format!(
                "spec: {{controllerName: istio.io/gateway-controller}}\nstatus: {{conditions: [{{type: Accepted, status: 'True', \
                 reason: Accepted, message: Handled by Istio controller, lastTransitionTime: '2026-01-01T00:00:00Z'}}], \
                 supportedFeatures: [{}]}}",
                features.join(", ")
            ),
        );
        assert_eq!(plan(&GatewayStatusController, &world(&accepted)).writes, []);
        let turned = accepted.replace("'True'", "'False'");
        assert_eq!(plan(&GatewayStatusController, &world(&turned)).writes.len(), 1);
    }
}
