//! Laying what a user wrote over a message.

use canopus_base::tree::{Map, Node, Value};
use canopus_proto::{Message, Name, descriptors, json};

use super::MeshConfigError;
use crate::decode::{Decoded, Problem, Unknown, path};

/// `base` with each field that `overlay` mentions in place of its own. Unknown fields are left out and listed.
pub(super) fn lay_over<M: Message + Name + Default>(
    base: &M,
    overlay: &Node,
) -> Result<Decoded<M>, MeshConfigError> {
    let mut fields = match json::write(base).value {
        Value::Map(fields) => fields,
        _ => Map::new(),
    };
    match &overlay.value {
        Value::Null => {}
        Value::Map(mentioned) => take_places::<M>(&mut fields, mentioned),
        _ => {
            let message = format!("expected a map, found a {}", overlay.kind_name());
            return Err(MeshConfigError::Invalid(vec![Problem::new("", overlay.at, message)]));
        }
    }
    read(&Node::new(Value::Map(fields), overlay.at))
}

/// The value of a field in a document, under either of its names, unless it is null.
pub(super) fn given<'a, M: Name>(node: &'a Node, json_name: &str) -> Option<&'a Node> {
    let descriptor = descriptors::message_descriptor::<M>();
    let field = descriptor.get_field_by_json_name(json_name)?;
    let found = node.get(json_name).or_else(|| node.get(field.name()))?;
    (!found.is_null()).then_some(found)
}

fn take_places<M: Name>(fields: &mut Map, mentioned: &Map) {
    let descriptor = descriptors::message_descriptor::<M>();
    for entry in mentioned.iter().filter(|entry| !entry.node.is_null()) {
        let field = descriptor
            .get_field_by_json_name(&entry.key)
            .or_else(|| descriptor.get_field_by_name(&entry.key));
        if let Some(field) = field {
            fields.remove(field.json_name());
            if let Some(oneof) = field.containing_oneof() {
                for other in oneof.fields() {
                    fields.remove(other.json_name());
                }
            }
        }
        fields.insert(&entry.key, entry.node.clone());
    }
}

fn read<M: Message + Name + Default>(node: &Node) -> Result<Decoded<M>, MeshConfigError> {
    let invalid = |problems: Vec<json::Problem>| {
        MeshConfigError::Invalid(problems.into_iter().map(Problem::from).collect())
    };
    let decoded = json::read::<M>(node, Unknown::Report).map_err(|problems| invalid(problems.0))?;
    // A mode that nobody knows is no wish for the first mode of the enum, so it is refused.
    let is_value = |problem: &json::Problem| {
        path::get(node, &problem.path).is_some_and(|found| found.as_str().is_some())
    };
    let (values, unknown): (Vec<_>, Vec<_>) = decoded.ignored.into_iter().partition(is_value);
    if !values.is_empty() {
        return Err(invalid(values));
    }
    Ok(Decoded { value: decoded.value, ignored: unknown.into_iter().map(Problem::from).collect() })
}
