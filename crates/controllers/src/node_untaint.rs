//! Nodes whose node agent is ready lose the taint that kept pods away from them.

use std::any::Any;
use std::sync::Arc;

use canopus_api::kube::{Node, Pod};
use canopus_api::value::ConditionStatus;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::world::{ObjectIndex, Origin, indexed_objects, object, settings};
use canopus_runtime::flags::{
    PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS, PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Basis, Change, Controller, Plan, Write};

/// The label of the pods of the node agent.
const NODE_AGENT: (&str, &str) = ("k8s-app", "istio-cni-node");

/// Removes the taint of nodes whose node agent is ready.
#[derive(Clone, Debug)]
pub struct NodeUntaintController {
    /// The namespace of the node agents.
    pub namespace: Arc<str>,
}

impl Controller for NodeUntaintController {
    fn name(&self) -> &'static str {
        "node-untaint"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<ReadyTaintedNodes>(&self.namespace)?.to_vec().into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<ReadyTaintedNodes>(world, &self.namespace)
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<ReadyTaintedNodes>(Arc::clone(&self.namespace))))
    }
}

/// The patches of nodes that have the taint and a ready node agent.
struct ReadyTaintedNodes;

impl Query for ReadyTaintedNodes {
    const NAME: &'static str = "ready_tainted_nodes";
    /// The namespace of the node agents.
    type Key = Arc<str>;
    type Value = Vec<Arc<Write>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let settings = settings(ctx);
        let flags = &settings.flags;
        if !flags.get(PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS) {
            return Vec::new();
        }
        let taint = flags.get(PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME);
        let home = (&**namespace).into();
        let pods =
            indexed_objects::<Pod>(ctx, &ObjectIndex::InCluster(Kind::Pod, settings.cluster.clone(), home));
        let ready = pods.iter().filter(|(_, pod)| is_ready_agent(pod));
        let mut writes: Vec<Arc<Write>> = Vec::new();
        for (_, pod) in ready {
            let target = ObjectKey::new(Kind::Node, "", &pod.spec.node_name);
            let node = object::<Node>(ctx, &Origin::new(settings.cluster.clone(), target.clone()));
            let is_planned = writes.iter().any(|write| write.target == target);
            if let Some(operations) = node.filter(|_| !is_planned).and_then(|node| removal(&node, taint)) {
                writes.push(Arc::new(Write { target, change: Change::Patch { operations } }));
            }
        }
        writes
    }
}

fn is_ready_agent(pod: &Pod) -> bool {
    let conditions = &pod.status.conditions;
    pod.meta.label(NODE_AGENT.0) == Some(NODE_AGENT.1)
        && conditions.iter().any(|one| &*one.r#type == "Ready" && one.status == ConditionStatus::True)
}

/// The operations that remove a taint, from the last one on so that places stay what they are; none if it is not there.
fn removal(node: &Node, taint: &str) -> Option<Value> {
    let places = node.spec.taints.iter().enumerate().filter(|(_, one)| &*one.key == taint);
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    let operations = places.iter().rev().flat_map(|place| {
        let test = json!({"op": "test", "path": format!("/spec/taints/{place}/key"), "value": taint});
        [test, json!({"op": "remove", "path": format!("/spec/taints/{place}")})]
    });
    (!places.is_empty()).then(|| operations.collect())
}

#[cfg(test)]
mod tests {
    use canopus_mesh::world::{MeshSettings, Settings};
    use canopus_runtime::flags::Flags;

    use super::*;
    use crate::testing::{objects, plan};

    const WORLD: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {taints: [{key: a, effect: NoSchedule}, {key: cni.istio.io/not-ready, effect: NoSchedule}]}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: istio-system, labels: {k8s-app: istio-cni-node}}
spec: {nodeName: n1}
status: {conditions: [{type: Ready, status: 'True'}]}
";

    fn writes(documents: &str, enabled: &str) -> Vec<Arc<Write>> {
        let flags = Arc::new(Flags::read(&[("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", enabled)]));
        let mut batch = objects(documents);
        batch.set::<Settings>((), MeshSettings { flags, ..MeshSettings::default() });
        let engine = Engine::new();
        engine.apply(batch);
        plan(&NodeUntaintController { namespace: "istio-system".into() }, &engine).writes
    }

    #[test]
    fn taint_goes_when_the_agent_of_the_node_is_ready() {
        let all = writes(WORLD, "true");
        let [write] = all.as_slice() else { panic!("{all:?}") };
        let Change::Patch { operations } = &write.change else { panic!("{write:?}") };
        let expected = json!([
            {"op": "test", "path": "/spec/taints/1/key", "value": "cni.istio.io/not-ready"},
            {"op": "remove", "path": "/spec/taints/1"},
        ]);
        assert_eq!(*operations, expected);
        assert_eq!(writes(WORLD, "false"), []);
        assert_eq!(writes(&WORLD.replace("status: 'True'", "status: 'False'"), "true"), []);
        assert_eq!(writes(&WORLD.replace("cni.istio.io/not-ready", "b"), "true"), []);
    }
}
