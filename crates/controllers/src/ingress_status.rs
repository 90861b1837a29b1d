//! The addresses in the statuses of Ingresses.

use std::any::Any;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::ingress::IngressStatusOf;
use canopus_mesh::world::{ObjectIndex, Objects, settings};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::IngressControllerMode as Mode;
use jiff::Timestamp;

use crate::controller::{Basis, Controller, Plan, Write};
use crate::status_write::status_write;

/// Writes the statuses of Ingresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct IngressStatusController;

impl Controller for IngressStatusController {
    fn name(&self) -> &'static str {
        "ingress-status"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<PendingIngressStatuses>(&())?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<PendingIngressStatuses>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<PendingIngressStatuses>(())))
    }
}

/// The statuses of Ingresses that are not what they should be.
struct PendingIngressStatuses;

impl Query for PendingIngressStatuses {
    const NAME: &'static str = "pending_ingress_statuses";
    type Key = ();
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        if settings(ctx).mesh.ingress_controller_mode() == Mode::Off {
            return Vec::new();
        }
        let mut writes = Vec::new();
        for origin in ctx.members::<Objects>(&ObjectIndex::Kind(Kind::Ingress)).iter() {
            let status = ctx.get::<IngressStatusOf>(origin);
            let desired = status.as_deref().and_then(|status| serde_json::to_value(status).ok());
            if let Some((desired, seen)) = desired.zip(ctx.read::<Objects>(origin)) {
                writes.extend(status_write(origin, seen, desired));
            }
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::Change;
    use crate::testing::{plan, world};

    const WORLD: &str = "
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: istio}
spec: {controller: istio.io/ingress-controller}
---
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec: {ingressClassName: istio}
";

    #[test]
    fn ingress_gets_the_address_of_the_gateway_and_those_of_others_are_left_alone() {
        let writes = plan(&IngressStatusController, &world(WORLD)).writes;
        let [write] = writes.as_slice() else { panic!("{writes:?}") };
        let Change::Status { status, .. } = &write.change else { panic!("{write:?}") };
        assert_eq!(*status, json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}));
        let given = format!("{WORLD}status: {status}");
        assert_eq!(plan(&IngressStatusController, &world(&given)).writes, []);
        let other = WORLD.replace("istio.io/ingress-controller", "example.com/other");
        assert_eq!(plan(&IngressStatusController, &world(&other)).writes, []);
    }
}
