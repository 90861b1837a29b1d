//! The settings of a proxy as its environment carries them: without what is default.

use std::sync::LazyLock;

use canopus_api::mesh_config;
use canopus_gotemplate::{CallError, Value};
use canopus_proto::json;
use serde_json::{Map, Value as Json};

/// Fields that are left out where they have their default, so that pods stay small.
const CLEANED: [&str; 14] = [
    "configPath",
    "binaryPath",
    "controlPlaneAuthPolicy",
    "serviceCluster",
    "drainDuration",
    "terminationDrainDuration",
    "discoveryAddress",
    "envoyMetricsService",
    "envoyAccessLogService",
    "tracing",
    "proxyAdminPort",
    "statNameLength",
    "statusPort",
    "concurrency",
];

static DEFAULTS: LazyLock<Map<String, Json>> =
    LazyLock::new(|| match json::write(&mesh_config::default_proxy_config()).to_json() {
        Json::Object(map) => map,
        _ => Map::new(),
    });

/// The JSON of a message; of a proxy's settings, what is not default.
pub(super) fn to_json(message: Value) -> Result<Vec<u8>, CallError> {
    let Value::Object(object) = &message else {
        return if message.is_nil() { Ok(b"{}".to_vec()) } else { Err(refused(&message)) };
    };
    if object.is_nil() {
        return Ok(b"{}".to_vec());
    }
    let text = object.print();
    if object.type_name() != "*v1alpha1.ProxyConfig" {
        return Ok(text.into_bytes());
    }
    let fields: Vec<(String, Box<serde_json::value::RawValue>)> =
        raw_fields(&text).ok_or_else(|| refused(&message))?;
    let kept = fields.iter().filter(|(name, value)| {
        let is_default = || {
            let value = serde_json::from_str::<Json>(value.get()).ok();
            value.as_ref() == DEFAULTS.get(name)
        };
        !(CLEANED.contains(&name.as_str()) && is_default())
    });
    let kept = kept.map(|(name, value)| format!("\"{name}\":{}", value.get()));
    Ok(format!("{{{}}}", kept.collect::<Vec<_>>().join(",")).into_bytes())
}

/// The fields of a JSON object in the order they are written in.
fn raw_fields(text: &str) -> Option<Vec<(String, Box<serde_json::value::RawValue>)>> {
    struct Fields(Vec<(String, Box<serde_json::value::RawValue>)>);

    impl<'de> serde::Deserialize<'de> for Fields {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;

            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Fields;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                    let mut fields = Vec::new();
                    while let Some(entry) = map.next_entry()? {
                        fields.push(entry);
                    }
                    Ok(Fields(fields))
                }
            }

            deserializer.deserialize_map(Visitor)
        }
    }

    serde_json::from_str::<Fields>(text).ok().map(|fields| fields.0)
}

fn refused(value: &Value) -> CallError {
    format!("wrong type for value; expected protoreflect.ProtoMessage; got {}", value.type_name()).into()
}
