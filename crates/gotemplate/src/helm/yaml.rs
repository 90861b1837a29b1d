//! YAML as Kubernetes' Go library writes and reads it: through JSON.

use canopus_base::tree::{Entry, Limits, Map as TreeMap, Node, Number, Pos, Value as Tree};
use canopus_base::yaml;

use crate::error::CallError;
use crate::gofmt::float;
use crate::limits::{Budget, LimitError, MAX_VALUE_DEPTH};
use crate::value::{Str, Value};

/// Writes a value, without the line break at the end.
pub(crate) fn encode(budget: &Budget, value: &Value) -> Result<Vec<u8>, CallError> {
    let node = node(budget, value, 0)?;
    let mut text = yaml::node_to_string(&node);
    if text.ends_with('\n') {
        text.pop();
    }
    budget.charge_bytes(text.len())?;
    Ok(text.into_bytes())
}

/// Reads the first document of a text; every number is a `float64`.
pub(crate) fn decode(text: &Str) -> Result<Value, CallError> {
    let limits = Limits::default();
    match yaml::parse_all(text.as_bytes(), &limits).into_iter().next() {
        None => Ok(Value::Nil),
        Some(Ok(document)) => Ok(Value::from(&document.node)),
        Some(Err(error)) => Err(format!("error converting YAML to JSON: yaml: {error}").into()),
    }
}

/// The document a value stands for.
fn node(budget: &Budget, value: &Value, depth: u32) -> Result<Node, CallError> {
    budget.charge_steps(1)?;
    if depth > MAX_VALUE_DEPTH {
        return Err(LimitError::ValueDepth.into());
    }
    let tree = match value {
        Value::Nil => Tree::Null,
        Value::Bool(truth) => Tree::Bool(*truth),
        Value::Int(int, _) => Tree::Number(Number::Int(*int)),
        Value::Uint(int, _) => Tree::Number((*int).into()),
        Value::Float(number) if number.is_finite() => Tree::Number(document_number(*number)),
        Value::Float(number) => {
            return Err(format!("json: unsupported value: {}", float::shortest(*number)).into());
        }
        Value::Complex(..) => return Err("json: unsupported type: complex128".into()),
        Value::String(text) => {
            budget.charge_bytes(text.len())?;
            Tree::String(text.to_text().into())
        }
        Value::Bytes(bytes) => {
            let text = crate::sprig::base64(bytes.as_bytes());
            budget.charge_bytes(text.len())?;
            Tree::String(String::from_utf8_lossy(&text).into())
        }
        Value::List(list) if list.is_nil() => Tree::Null,
        Value::Map(map) if map.is_nil() => Tree::Null,
        Value::List(list) => {
            let items = list.items().iter().map(|item| node(budget, item, depth + 1));
            Tree::List(items.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entry = |(key, value): (Str, Value)| {
                budget.charge_bytes(key.len())?;
                let node = node(budget, &value, depth + 1)?;
                Ok(Entry { key: key.to_text().into(), key_at: Pos::default(), node })
            };
            let entries = map.entries().into_iter().map(entry).collect::<Result<_, CallError>>()?;
            Tree::Map(TreeMap::from_entries(entries).map_err(|error| CallError::from(error.to_string()))?)
        }
        Value::Object(object) => return node(budget, &object.encode(), depth + 1),
    };
    Ok(tree.into())
}

/// A number as it comes back from JSON, which writes integers without a fraction.
fn document_number(float: f64) -> Number {
    if float.fract() != 0.0 {
        return Number::Float(float);
    }
    if float.abs() < 9.2e18 {
        return Number::Int(float as i64);
    }
    if (0.0..1.8e19).contains(&float) { Number::UInt(float as u64) } else { Number::Float(float) }
}
