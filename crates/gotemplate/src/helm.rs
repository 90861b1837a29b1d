//! What Helm adds to sprig.
//!
//! [`add_to`] gives templates `include`, `tpl`, `required`, `fail`, `lookup`, the YAML and JSON functions and the duration
//! helpers; [`Files`] and [`Capabilities`] are the objects that charts reach as `.Files` and `.Capabilities`.
//!
//! Differences from Helm: `lookup` finds nothing and `getHostByName` gives no address, as in `helm template`, unless the
//! caller adds other ones. YAML with a key given twice is refused by `fromYaml`. `toYamlPretty`, `toToml`, `mustToToml` and
//! `fromToml` fail with an error that says so.

mod capabilities;
mod duration;
mod files;
mod glob;
pub(crate) mod yaml;

pub use capabilities::{Capabilities, HelmVersion, KubeVersion};
pub use files::Files;

use crate::error::CallError;
use crate::limits::Budget;
use crate::sprig::{self, json};
use crate::value::{Function, FunctionBody, Functions, Map, MapKind, Str, Type, Value, Variadic};

/// Adds all functions of sprig and of Helm.
pub fn add_to(functions: &mut Functions, options: &sprig::Options) {
    sprig::add_to(functions, options);
    functions.remove("env");
    functions.remove("expandenv");
    duration::add_to(functions);
    let params = || vec![Type::String, Type::Any];
    functions.insert("include", Function { params: params(), variadic: false, body: FunctionBody::Include });
    functions.insert("tpl", Function { params: params(), variadic: false, body: FunctionBody::Tpl });
    functions
        .add("required", |message: String, value: Value| match &value {
            Value::Nil => Err(CallError::Raised(message)),
            Value::String(text) if text.is_empty() => Err(CallError::Raised(message)),
            _ => Ok(value),
        })
        .add("fail", |message: String| Err::<Value, _>(CallError::Raised(message)))
        .add("lookup", |_: Str, _: Str, _: Str, _: Str| Map::new())
        .add("getHostByName", |_: Str| "")
        .add("toYaml", |budget: &Budget, value: Value| json::lenient(yaml::encode(budget, &value)))
        .add("mustToYaml", |budget: &Budget, value: Value| yaml::encode(budget, &value))
        .add("fromYaml", |text: Str| match yaml::decode(&text) {
            // Parity: a null leaves the result as it was made, empty.
            Ok(Value::Nil) => Map::new(),
            decoded => map_or_error(decoded),
        })
        .add("fromYamlArray", |text: Str| match yaml::decode(&text) {
            Ok(Value::Nil) => Value::list([]),
            decoded => list_or_error(decoded),
        })
        .add("toJson", |budget: &Budget, value: Value| json::lenient(json::encode(budget, &value, true)))
        .add("mustToJson", |budget: &Budget, value: Value| json::encode(budget, &value, true))
        .add("fromJson", |text: Str| map_or_error(json::parse(&text)))
        .add("fromJsonArray", |text: Str| list_or_error(json::parse(&text)));
    for name in ["toYamlPretty", "toToml", "mustToToml", "fromToml"] {
        functions.add(name, move |_: Variadic<Value>| {
            Err::<Value, _>(CallError::from(format!("{name} is not supported")))
        });
    }
}

/// A map, or one that holds nothing but the error.
fn map_or_error(decoded: Result<Value, CallError>) -> Map {
    let message = match decoded {
        Ok(Value::Map(map)) => return map,
        Ok(Value::Nil) => return Map::nil(MapKind::Any),
        Ok(other) => cannot_unmarshal(&other, "map[string]interface {}"),
        Err(error) => error.to_string(),
    };
    [("Error", message)].into_iter().collect()
}

/// A list, or one that holds nothing but the error.
fn list_or_error(decoded: Result<Value, CallError>) -> Value {
    match decoded {
        Ok(list @ Value::List(_)) => list,
        Ok(Value::Nil) => Value::List(crate::value::List::nil(crate::value::Elem::Any)),
        Ok(other) => Value::list([Value::string(cannot_unmarshal(&other, "[]interface {}"))]),
        Err(error) => Value::list([Value::string(error.to_string())]),
    }
}

fn cannot_unmarshal(value: &Value, into: &str) -> String {
    let kind = match value {
        Value::Bool(_) => "bool",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        _ => "object",
    };
    format!("json: cannot unmarshal {kind} into Go value of type {into}")
}
