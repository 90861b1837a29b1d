//! What Istio's reader of protobuf JSON says of a document it cannot read.
//!
//! Our own reader says more: everything that is wrong, with its place. But clients of the admission webhook know the
//! words of Istio's, which stops at the first thing it does not like, and words differ between what is refused and what
//! is only unknown. So a document that was found wanting is looked at once more, for the words.

use canopus_base::duration::Duration;
use canopus_base::tree::{Entry, Node, Number, Value};
use canopus_proto::descriptors::{self, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use canopus_proto::istio::extensions::v1alpha1 as extensions;
use canopus_proto::istio::networking::{v1alpha3 as networking, v1beta1};
use canopus_proto::istio::security::v1beta1 as security;
use canopus_proto::istio::telemetry::v1alpha1 as telemetry;

use crate::Kind as ObjectKind;
use crate::text::quoted;

const LIST: &str = "[]json.RawMessage";
const OBJECT: &str = "map[string]json.RawMessage";
const AT_TYPE: &str = "@type";

/// Why Istio could not read a message; if it could, which field it did not know.
pub fn read(descriptor: &MessageDescriptor, node: &Node) -> Result<Option<String>, String> {
    let mut reader = Reader { unknown: None };
    reader.message(descriptor, node)?;
    Ok(reader.unknown)
}

/// Like [`read`], for the spec of an object. Kinds that are not protobuf messages are skipped.
pub fn read_spec(kind: ObjectKind, spec: &Node) -> Result<Option<String>, String> {
    match spec_of(kind) {
        Some(descriptor) => read(&descriptor, spec),
        None => Ok(None),
    }
}

fn spec_of(kind: ObjectKind) -> Option<MessageDescriptor> {
    Some(match kind {
        ObjectKind::VirtualService => descriptors::message_descriptor::<networking::VirtualService>(),
        ObjectKind::Gateway => descriptors::message_descriptor::<networking::Gateway>(),
        ObjectKind::ServiceEntry => descriptors::message_descriptor::<networking::ServiceEntry>(),
        ObjectKind::WorkloadEntry => descriptors::message_descriptor::<networking::WorkloadEntry>(),
        ObjectKind::WorkloadGroup => descriptors::message_descriptor::<networking::WorkloadGroup>(),
        ObjectKind::DestinationRule => descriptors::message_descriptor::<networking::DestinationRule>(),
        ObjectKind::Sidecar => descriptors::message_descriptor::<networking::Sidecar>(),
        ObjectKind::EnvoyFilter => descriptors::message_descriptor::<networking::EnvoyFilter>(),
        ObjectKind::ProxyConfig => descriptors::message_descriptor::<v1beta1::ProxyConfig>(),
        ObjectKind::AuthorizationPolicy => descriptors::message_descriptor::<security::AuthorizationPolicy>(),
        ObjectKind::RequestAuthentication => {
            descriptors::message_descriptor::<security::RequestAuthentication>()
        }
        ObjectKind::PeerAuthentication => descriptors::message_descriptor::<security::PeerAuthentication>(),
        ObjectKind::Telemetry => descriptors::message_descriptor::<telemetry::Telemetry>(),
        ObjectKind::WasmPlugin => descriptors::message_descriptor::<extensions::WasmPlugin>(),
        ObjectKind::TrafficExtension => descriptors::message_descriptor::<extensions::TrafficExtension>(),
        _ => return None,
    })
}

struct Reader {
    /// What is said of the first field that the schema does not have.
    unknown: Option<String>,
}

impl Reader {
    fn message(&mut self, descriptor: &MessageDescriptor, node: &Node) -> Result<(), String> {
        let name = descriptor.full_name().strip_prefix("google.protobuf.");
        if node.is_null() {
            return Ok(());
        }
        match name {
            Some("Any") => self.any(node),
            Some("Duration") => {
                let duration = text(node)?.parse::<Duration>();
                duration.map(drop).map_err(|error| format!("bad Duration: {error}"))
            }
            Some("Timestamp") => {
                let time = text(node)?.parse::<jiff::Timestamp>();
                time.map(drop).map_err(|error| format!("bad Timestamp: {error}"))
            }
            Some("Value") => Ok(()),
            Some("ListValue") if node.as_list().is_none() => {
                Err(format!("bad ListValue: {}", mismatch(node, LIST)))
            }
            Some("Struct") if node.as_map().is_none() => {
                Err(format!("bad StructValue: {}", mismatch(node, OBJECT)))
            }
            Some("ListValue" | "Struct") => Ok(()),
            Some(name) if name.ends_with("Value") => {
                let inner = descriptor.get_field(1).ok_or("a wrapper has a value")?;
                self.singular(&inner.kind(), node)
            }
            _ => self.object(descriptor, node, None),
        }
    }

    /// An ordinary message; `skip` is the key that belongs to an `Any` around it.
    fn object(
        &mut self,
        descriptor: &MessageDescriptor,
        node: &Node,
        skip: Option<&str>,
    ) -> Result<(), String> {
        let map = node.as_map().ok_or_else(|| mismatch(node, OBJECT))?;
        let mut known = Vec::with_capacity(map.len());
        let mut unknown: Option<&Entry> = None;
        for entry in map.iter().filter(|entry| Some(&*entry.key) != skip) {
            match field(descriptor, &entry.key) {
                Some(field) => known.push((field, &entry.node)),
                None if unknown.is_none_or(|first| entry.key < first.key) => unknown = Some(entry),
                None => {}
            }
        }
        known.sort_by_key(|(field, _)| field.number());
        for (field, value) in known {
            if !value.is_null() {
                self.field(&field, value)?;
            }
        }
        if let Some(entry) = unknown {
            let name = descriptor.full_name();
            self.unknown.get_or_insert_with(|| format!("unknown field {} in {name}", quoted(&entry.key)));
        }
        Ok(())
    }

    fn field(&mut self, field: &FieldDescriptor, node: &Node) -> Result<(), String> {
        let kind = field.kind();
        if field.is_list() {
            let items = node.as_list().ok_or_else(|| mismatch(node, LIST))?;
            return items.iter().try_for_each(|item| self.singular(&kind, item));
        }
        if let (true, Kind::Message(entry)) = (field.is_map(), &kind) {
            let map = node.as_map().ok_or_else(|| mismatch(node, OBJECT))?;
            let (key_kind, value_kind) =
                (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
            return map.iter().try_for_each(|entry| {
                key(&key_kind, &entry.key)?;
                self.singular(&value_kind, &entry.node)
            });
        }
        self.singular(&kind, node)
    }

    fn singular(&mut self, kind: &Kind, node: &Node) -> Result<(), String> {
        match kind {
            Kind::Message(descriptor) => self.message(descriptor, node),
            Kind::Enum(descriptor) => enumerated(descriptor, node),
            _ => scalar(kind, node),
        }
    }

    fn any(&mut self, node: &Node) -> Result<(), String> {
        let map = node.as_map().ok_or_else(|| mismatch(node, OBJECT))?;
        let Some(url) = map.get(AT_TYPE) else { return Err("Any JSON doesn't have '@type'".into()) };
        let Some(url) = url.as_str() else {
            return Err(format!("can't unmarshal Any's '@type': {}", quoted(&url.to_json().to_string())));
        };
        let name = url.rsplit('/').next().unwrap_or_default();
        let descriptor =
            descriptors::message(name).ok_or_else(|| format!("could not resolve Any message type: {url}"))?;
        let knew_all = self.unknown.is_none();
        let inner = if has_own_form(name) {
            let value = map.get("value").ok_or("Any JSON doesn't have 'value'")?;
            self.message(&descriptor, value)
        } else {
            self.object(&descriptor, node, Some(AT_TYPE))
        };
        let nested = |said: String| format!("can't unmarshal Any nested proto {url}: {said}");
        if knew_all {
            self.unknown = self.unknown.take().map(nested);
        }
        inner.map_err(nested)
    }
}

fn field(descriptor: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_json_name(key).or_else(|| descriptor.get_field_by_name(key))
}

/// Types whose JSON is not an object of their fields.
fn has_own_form(name: &str) -> bool {
    name.strip_prefix("google.protobuf.").is_some_and(|name| {
        matches!(name, "Any" | "Duration" | "Timestamp" | "Struct") || name.ends_with("Value")
    })
}

fn mismatch(node: &Node, wanted: &str) -> String {
    let found = match node.value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

fn text(node: &Node) -> Result<&str, String> {
    node.as_str().ok_or_else(|| mismatch(node, "string"))
}

fn enumerated(descriptor: &EnumDescriptor, node: &Node) -> Result<(), String> {
    match &node.value {
        Value::String(name) if descriptor.get_value_by_name(name).is_none() => {
            let (raw, name) = (quoted(&quoted(name)), descriptor.full_name());
            Err(format!("unknown value {raw} for enum {name}"))
        }
        Value::String(_) | Value::Null => Ok(()),
        _ => integer::<i32>(node, "protoreflect.EnumNumber"),
    }
}

fn key(kind: &Kind, key: &str) -> Result<(), String> {
    if matches!(kind, Kind::String) {
        return Ok(());
    }
    scalar(kind, &Value::from(key).into())
}

fn scalar(kind: &Kind, node: &Node) -> Result<(), String> {
    if node.is_null() {
        return Ok(());
    }
    match kind {
        Kind::Bool if node.as_bool().is_none() => Err(mismatch(node, "bool")),
        Kind::String => text(node).map(drop),
        Kind::Bytes if node.as_str().is_none() => Err(mismatch(node, "[]uint8")),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => integer::<i32>(node, "int32"),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => integer::<i64>(node, "int64"),
        Kind::Uint32 | Kind::Fixed32 => integer::<u32>(node, "uint32"),
        Kind::Uint64 | Kind::Fixed64 => integer::<u64>(node, "uint64"),
        Kind::Float => float(node, "float32"),
        Kind::Double => float(node, "float64"),
        _ => Ok(()),
    }
}

fn integer<T: TryFrom<i128>>(node: &Node, wanted: &str) -> Result<(), String> {
    let number = match &node.value {
        Value::Number(number) => *number,
        Value::String(text) => number_in(text)?,
        _ => return Err(mismatch(node, wanted)),
    };
    let exact = match number {
        Number::Int(int) => Some(i128::from(int)),
        Number::UInt(int) => Some(i128::from(int)),
        Number::Float(_) => None,
    };
    match exact.and_then(|int| T::try_from(int).ok()) {
        Some(_) => Ok(()),
        None => Err(format!("json: cannot unmarshal number {number} into Go value of type {wanted}")),
    }
}

fn float(node: &Node, wanted: &str) -> Result<(), String> {
    match &node.value {
        Value::Number(_) => Ok(()),
        Value::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => Ok(()),
        Value::String(text) => number_in(text).map(drop),
        _ => Err(mismatch(node, wanted)),
    }
}

/// A number in quotes.
fn number_in(text: &str) -> Result<Number, String> {
    let first = text.chars().next().ok_or("unexpected end of JSON input")?;
    if let Ok(int) = text.parse::<i64>() {
        return Ok(Number::Int(int));
    }
    if let Ok(int) = text.parse::<u64>() {
        return Ok(Number::UInt(int));
    }
    let float = text.parse::<f64>().ok().filter(|_| first.is_ascii_digit() || first == '-');
    float
        .map(Number::Float)
        .ok_or_else(|| format!("invalid character '{first}' looking for beginning of value"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_base::json;
    use canopus_base::tree::Limits;
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_proto::istio::networking::v1alpha3::VirtualService;
    use canopus_proto::istio::security::v1beta1::PeerAuthentication;

    #[track_caller]
    fn check<M: canopus_proto::Name>(text: &str, expected: Result<Option<&str>, &str>) {
        let node = json::parse(text.as_bytes(), &Limits::default()).unwrap();
        let said = read(&descriptors::message_descriptor::<M>(), &node);
        assert_eq!(said.as_ref().map(Option::as_deref).map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn wrong_types_are_said_in_go_words() {
        check::<VirtualService>(r#"{"hosts":["a"],"http":[{"timeout":"1m"}]}"#, Ok(None));
        let list = "json: cannot unmarshal string into Go value of type []json.RawMessage";
        check::<VirtualService>(r#"{"hosts":"a"}"#, Err(list));
        let text = "json: cannot unmarshal number into Go value of type string";
        check::<VirtualService>(r#"{"http":[{"timeout":5}]}"#, Err(text));
        let duration = r#"bad Duration: time: missing unit in duration "5""#;
        check::<VirtualService>(r#"{"http":[{"timeout":"5"}]}"#, Err(duration));
        let number = "json: cannot unmarshal number 1.5 into Go value of type int32";
        check::<VirtualService>(r#"{"http":[{"route":[{"weight":1.5}]}]}"#, Err(number));
        let quoted = "invalid character 'x' looking for beginning of value";
        check::<VirtualService>(r#"{"http":[{"route":[{"weight":"x"}]}]}"#, Err(quoted));
        let object = "json: cannot unmarshal array into Go value of type map[string]json.RawMessage";
        check::<VirtualService>("[]", Err(object));
    }

    #[test]
    fn unknown_enum_name_is_refused_and_unknown_field_is_not() {
        let mode = r#"unknown value "\"SOMETIMES\"" for enum istio.security.v1beta1.PeerAuthentication.MutualTLS.Mode"#;
        check::<PeerAuthentication>(r#"{"mtls":{"mode":"SOMETIMES"},"x":1}"#, Err(mode));
        let field = r#"unknown field "x" in istio.security.v1beta1.PeerAuthentication.MutualTLS"#;
        check::<PeerAuthentication>(r#"{"y":1,"mtls":{"x":1}}"#, Ok(Some(field)));
    }

    #[test]
    fn null_and_two_members_of_a_oneof_are_taken() {
        check::<VirtualService>(r#"{"hosts":[null],"http":[null],"tcp":null}"#, Ok(None));
        check::<VirtualService>(r#"{"http":[{"match":[{"uri":{"exact":"/","prefix":"/"}}]}]}"#, Ok(None));
    }

    #[test]
    fn what_is_inside_an_any_is_said_to_be() {
        let at = |inner: &str| format!(r#"{{"typed_extension_protocol_options":{{"x":{inner}}}}}"#);
        check::<Cluster>(&at("{}"), Err("Any JSON doesn't have '@type'"));
        let unknown = "could not resolve Any message type: type.googleapis.com/no.Such";
        check::<Cluster>(&at(r#"{"@type":"type.googleapis.com/no.Such"}"#), Err(unknown));
        let node = "type.googleapis.com/envoy.config.core.v3.Node";
        let refused = format!(
            "can't unmarshal Any nested proto {node}: json: cannot unmarshal bool into Go value of type string"
        );
        check::<Cluster>(&at(&format!(r#"{{"@type":"{node}","id":true}}"#)), Err(&refused));
        let field = format!(
            r#"can't unmarshal Any nested proto {node}: unknown field "ids" in envoy.config.core.v3.Node"#
        );
        check::<Cluster>(&at(&format!(r#"{{"@type":"{node}","ids":1}}"#)), Ok(Some(&field)));
    }
}
