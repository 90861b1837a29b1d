//! The classes of gateways that the control plane deploys. They are created where they are missing and never changed, so
//! that users may manage them.

use std::any::Any;
use std::sync::Arc;

use canopus_api::{Kind, ObjectKey};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::gateway_api::built_in_classes;
use canopus_mesh::world::{Objects, Origin, settings};
use canopus_runtime::flags::{PILOT_ENABLE_GATEWAY_API, PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER};
use jiff::Timestamp;
use serde_json::json;

use crate::controller::{Basis, Change, Controller, Plan, Write};

/// Creates the built-in GatewayClasses.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayClassController;

impl Controller for GatewayClassController {
    fn name(&self) -> &'static str {
        "gateway-classes"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<MissingClasses>(&())?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<MissingClasses>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<MissingClasses>(())))
    }
}

/// The built-in classes without an object.
struct MissingClasses;

impl Query for MissingClasses {
    const NAME: &'static str = "missing_gateway_classes";
    type Key = ();
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        let flags = &settings.flags;
        if !flags.get(PILOT_ENABLE_GATEWAY_API)
            || !flags.get(PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER)
        {
            return Vec::new();
        }
        let mut missing = Vec::new();
        for class in built_in_classes(flags) {
            let target = ObjectKey::new(Kind::GatewayClass, "", &class.name);
            if ctx.read::<Objects>(&Origin::new(Arc::clone(&settings.cluster), target.clone())).is_some() {
                continue;
            }
            let object = json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "GatewayClass",
                "metadata": {"name": class.name},
                "spec": {"controllerName": class.controller, "description": class.description},
            });
            missing.push(Arc::new(Write { target, change: Change::Create { object } }));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{plan, world};

    #[test]
    fn class_is_created_where_it_is_missing_and_never_touched_otherwise() {
        let names = |documents: &str| -> Vec<String> {
            let plan = plan(&GatewayClassController, &world(documents));
            plan.writes.iter().map(|write| write.target.name.to_string()).collect()
        };
        assert_eq!(names(""), ["istio", "istio-remote"]);
        let own = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: istio}\nspec: {controllerName: a.b/c}";
        assert_eq!(names(own), ["istio-remote"]);
    }
}
