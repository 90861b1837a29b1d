//! The write that makes a status what it should be.

use std::sync::Arc;

use canopus_api::Object;
use canopus_base::tree::Node;
use canopus_mesh::world::Origin;
use serde_json::Value;

use crate::controller::{Change, Write};

/// The status of an object as it is now; null if there is none.
pub(crate) fn present(object: &Object) -> Value {
    object.to_node().get("status").map(Node::to_json).unwrap_or_default()
}

/// The write that gives an object a status; none if it has it.
pub(crate) fn status_write(origin: &Origin, seen: Arc<Object>, desired: Value) -> Option<Arc<Write>> {
    let present = present(&seen);
    // An object nobody has said anything about has no status, which is what an empty one amounts to.
    if present == desired || is_empty(&present) && is_empty(&desired) {
        return None;
    }
    let change = Change::Status { seen, status: desired };
    Some(Arc::new(Write { target: origin.key.clone(), change }))
}

fn is_empty(status: &Value) -> bool {
    match status {
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    }
}
