//! The Services that stand for InferencePools.

use std::any::Any;
use std::sync::Arc;

use canopus_api::{Kind, ObjectKey};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::gateway_api::{POOL_NAME, ShadowService, ShadowServiceOf};
use canopus_mesh::world::{ObjectIndex, Objects, Origin};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Basis, Change, Controller, Observed, Plan, Write};

/// Istio's field manager, so that either control plane takes over what the other made.
const MANAGER: &str = "istio.io/inference-pool-controller";

/// Makes the Services that stand for InferencePools. They belong to their pool, and go when it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct InferencePoolController;

impl Controller for InferencePoolController {
    fn name(&self) -> &'static str {
        "inference-pools"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<ShadowServices>(&())?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<ShadowServices>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<ShadowServices>(())))
    }
}

/// The Services of all pools.
struct ShadowServices;

impl Query for ShadowServices {
    const NAME: &'static str = "shadow_services";
    type Key = ();
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let pools = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::InferencePool)).to_vec();
        let mut writes = Vec::new();
        for (origin, service) in pools.iter().zip(ctx.get_all::<ShadowServiceOf>(&pools)) {
            let Some(service) = service.as_ref() else { continue };
            let target = ObjectKey::new(Kind::Service, origin.namespace(), &service.name);
            let seen = ctx.read::<Objects>(&Origin::new(Arc::clone(&origin.cluster), target.clone()));
            let seen = seen.filter(|object| object.meta().label(POOL_NAME).is_some());
            let change = Change::Manage {
                fields: fields(service),
                manager: MANAGER.into(),
                mark: POOL_NAME,
                seen: seen.map(|object| Observed::new(object.meta())),
            };
            writes.push(Arc::new(Write { target, change }));
        }
        writes
    }
}

fn fields(service: &ShadowService) -> Value {
    let pool = &service.pool;
    let ports = service.ports.iter().enumerate().map(|(at, (number, target))| {
        let mut port =
            json!({"name": format!("http-{at}"), "protocol": "TCP", "port": number, "targetPort": target});
        if !pool.spec.app_protocol.is_empty() {
            port["appProtocol"] = json!(pool.spec.app_protocol);
        }
        port
    });
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service.name,
            "namespace": pool.meta.namespace,
            "labels": service.labels,
            "ownerReferences": [{
                "apiVersion": Kind::InferencePool.info().api_version(),
                "kind": "InferencePool",
                "name": pool.meta.name,
                "uid": pool.meta.uid,
            }],
        },
        "spec": {
            "selector": pool.spec.selector.match_labels,
            "type": "ClusterIP",
            "clusterIP": "None",
            "ports": ports.collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use canopus_mesh::world::{MeshSettings, Settings};
    use canopus_runtime::flags::Flags;

    use super::*;
    use crate::gateway_status::GatewayStatusController;
    use crate::testing::{objects, plan};

    const WORLD: &str = "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llm, namespace: shop, uid: u1, generation: 2}
spec:
  selector: {matchLabels: {app: llm}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: picker, port: {number: 9002}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: shop}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llm}]}]
";

    fn world(documents: &str, enabled: &str) -> Engine {
        let flags = Arc::new(Flags::read(&[("ENABLE_GATEWAY_API_INFERENCE_EXTENSION", enabled)]));
        let mut batch = objects(documents);
        batch.set::<Settings>((), MeshSettings { flags, ..MeshSettings::default() });
        let engine = Engine::new();
        engine.apply(batch);
        engine
    }

    #[test]
    fn pool_with_a_route_gets_a_headless_service_that_names_its_picker() {
        let writes = plan(&InferencePoolController, &world(WORLD, "true")).writes;
        let [write] = writes.as_slice() else { panic!("{writes:?}") };
        let Change::Manage { fields, manager, .. } = &write.change else { panic!("{write:?}") };
        assert_eq!(&**manager, MANAGER);
        assert_eq!(fields["metadata"]["labels"]["istio.io/inferencepool-extension-service"], "picker");
        assert_eq!(
            fields["metadata"]["labels"]["istio.io/inferencepool-extension-failure-mode"],
            "FailClose"
        );
        assert_eq!(fields["spec"]["ports"][0]["port"], 54321);
        assert_eq!(fields["spec"]["ports"][0]["targetPort"], 8000);
        let unused = WORLD.replace("name: llm}]}]", "name: other}]}]");
        assert_eq!(plan(&InferencePoolController, &world(&unused, "true")).writes, []);
        assert_eq!(plan(&InferencePoolController, &world(WORLD, "false")).writes, []);
    }

    #[test]
    fn pool_says_that_its_picker_is_missing() {
        let writes = plan(&GatewayStatusController, &world(WORLD, "true")).writes;
        let write = writes.iter().find(|write| write.target.kind == Kind::InferencePool).unwrap();
        let Change::Status { status, .. } = &write.change else { panic!("{write:?}") };
        let parent = &status["parents"][0];
        assert_eq!(parent["parentRef"]["name"], "web");
        let resolved = parent["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["type"] == "ResolvedRefs")
            .unwrap();
        assert_eq!((&resolved["status"], &resolved["observedGeneration"]), (&json!("False"), &json!(2)));
        assert_eq!(resolved["message"], "Referenced ExtensionRef not found picker");
    }
}
