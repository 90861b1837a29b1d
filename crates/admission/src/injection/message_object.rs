//! Protobuf messages as templates see them: pointers to Go structs, with getters that work on nil too.

use std::borrow::Cow;

use canopus_base::tree::{Node, Value as Tree};
use canopus_gotemplate::{
    Elem, Function, IntKind, List, Map, MapKind, Object, ObjectData, Str, UintKind, Value,
};
use canopus_proto::descriptors::{
    self, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage,
    ReflectValue,
};
use canopus_proto::{Message, Name, json};

/// A message, or a nil pointer to one.
#[derive(Clone, Debug)]
pub struct MessageObject {
    descriptor: MessageDescriptor,
    message: Option<DynamicMessage>,
}

impl MessageObject {
    /// The view of a message.
    pub fn new<M: Message + Name>(message: &M) -> Self {
        Self {
            descriptor: descriptors::message_descriptor::<M>(),
            message: Some(descriptors::to_dynamic(message)),
        }
    }

    fn nested(descriptor: MessageDescriptor, message: Option<DynamicMessage>) -> Value {
        Value::object(Self { descriptor, message })
    }

    /// A field by its Go name.
    fn find(&self, go_name: &str) -> Option<FieldDescriptor> {
        self.descriptor.fields().find(|field| is_go_name(field.name(), go_name))
    }

    /// JSON with the fields in the order they are declared in, which is Go's, not that of their numbers.
    fn declared_order(&self, mut node: Node) -> String {
        if let Tree::Map(map) = &mut node.value {
            let place = |name: &str| {
                self.descriptor.get_field_by_json_name(name).and_then(|field| field.path().last().copied())
            };
            let mut entries = std::mem::take(map).into_entries();
            entries.sort_by_key(|entry| place(&entry.key));
            *map = entries.into_iter().map(|entry| (entry.key, entry.node)).collect();
        }
        serde_json::to_string(&node).unwrap_or_default()
    }

    fn get(&self, field: &FieldDescriptor) -> Value {
        match &self.message {
            Some(message) if field.supports_presence() && !message.has_field(field) => absent(field),
            Some(message) => convert(field, &message.get_field(field)),
            None => absent(field),
        }
    }
}

/// Whether a protobuf name becomes this Go name: `proxy_metadata`, `ProxyMetadata`.
fn is_go_name(proto_name: &str, go_name: &str) -> bool {
    let mut go = go_name.chars();
    let mut upper = true;
    for c in proto_name.chars() {
        if c == '_' {
            upper = true;
            continue;
        }
        let c = if upper { c.to_ascii_uppercase() } else { c };
        upper = c.is_ascii_digit();
        if go.next() != Some(c) {
            return false;
        }
    }
    go.next().is_none()
}

/// What a field that is not set gives.
fn absent(field: &FieldDescriptor) -> Value {
    if field.is_list() {
        return Value::List(List::nil(if field.kind() == Kind::String { Elem::String } else { Elem::Any }));
    }
    if field.is_map() {
        return Value::Map(Map::nil(map_kind(field)));
    }
    match field.kind() {
        Kind::Message(descriptor) => MessageObject::nested(descriptor, None),
        _ => convert(field, &ReflectValue::default_value_for_field(field)),
    }
}

fn map_kind(field: &FieldDescriptor) -> MapKind {
    match field.kind() {
        Kind::Message(entry) if entry.map_entry_value_field().kind() == Kind::String => MapKind::String,
        _ => MapKind::Any,
    }
}

fn convert(field: &FieldDescriptor, value: &ReflectValue) -> Value {
    match value {
        ReflectValue::List(items) => {
            let elem = if field.kind() == Kind::String { Elem::String } else { Elem::Any };
            Value::List(List::typed(
                elem,
                items.iter().map(|item| convert_scalar(&field.kind(), item)).collect(),
            ))
        }
        ReflectValue::Map(entries) => {
            let Kind::Message(entry) = field.kind() else { return Value::Nil };
            let kind = entry.map_entry_value_field().kind();
            let entries = entries.iter().map(|(key, value)| (key_text(key), convert_scalar(&kind, value)));
            Value::Map(Map::typed(map_kind(field), entries.collect()))
        }
        scalar => convert_scalar(&field.kind(), scalar),
    }
}

fn key_text(key: &MapKey) -> Str {
    match key {
        MapKey::String(text) => Str::from(text.as_str()),
        MapKey::Bool(truth) => Str::from(truth.to_string()),
        MapKey::I32(int) => Str::from(int.to_string()),
        MapKey::I64(int) => Str::from(int.to_string()),
        MapKey::U32(int) => Str::from(int.to_string()),
        MapKey::U64(int) => Str::from(int.to_string()),
    }
}

fn convert_scalar(kind: &Kind, value: &ReflectValue) -> Value {
    match value {
        ReflectValue::Bool(truth) => Value::Bool(*truth),
        ReflectValue::I32(int) => Value::Int((*int).into(), IntKind::Int32),
        ReflectValue::I64(int) => Value::int64(*int),
        ReflectValue::U32(int) => Value::Uint((*int).into(), UintKind::Uint32),
        ReflectValue::U64(int) => Value::Uint(*int, UintKind::Uint64),
        ReflectValue::F32(float) => Value::Float((*float).into()),
        ReflectValue::F64(float) => Value::Float(*float),
        ReflectValue::String(text) => Value::string(text.as_str()),
        ReflectValue::Bytes(bytes) => Value::Bytes(Str::from(&bytes[..])),
        ReflectValue::EnumNumber(number) => match kind {
            Kind::Enum(descriptor) => {
                Value::object(EnumObject { descriptor: descriptor.clone(), number: *number })
            }
            _ => Value::Int((*number).into(), IntKind::Int32),
        },
        ReflectValue::Message(message) => MessageObject::nested(message.descriptor(), Some(message.clone())),
        ReflectValue::List(_) | ReflectValue::Map(_) => Value::Nil,
    }
}

/// The name of the Go type, with the last part of its package.
fn go_type(full_name: &str, package: &str) -> String {
    let short = full_name.strip_prefix(package).unwrap_or(full_name).trim_start_matches('.');
    let package = package.rsplit('.').next().unwrap_or(package);
    format!("{package}.{}", short.replace('.', "_"))
}

impl Object for MessageObject {
    fn type_name(&self) -> Cow<'static, str> {
        let descriptor = &self.descriptor;
        format!("*{}", go_type(descriptor.full_name(), descriptor.package_name())).into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        // Members of a oneof have getters only.
        let field = self.find(name)?;
        let in_oneof = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
        (!in_oneof).then(|| self.get(&field))
    }

    fn method(&self, name: &str) -> Option<Function> {
        if name == "String" {
            let text = self.print();
            return Some(Function::new(move || text.clone()));
        }
        let value = self.get(&self.find(name.strip_prefix("Get")?)?);
        Some(Function::new(move || value.clone()))
    }

    fn is_nil(&self) -> bool {
        self.message.is_none()
    }

    fn print(&self) -> String {
        match &self.message {
            None => "<nil>".to_owned(),
            Some(message) => self.declared_order(json::write_dynamic(message)),
        }
    }

    fn encode(&self) -> Value {
        match &self.message {
            None => Value::Nil,
            Some(message) => Value::from(&json::write_dynamic(message)),
        }
    }
}

/// A value of an enum: prints its name, counts as its number.
#[derive(Debug)]
struct EnumObject {
    descriptor: EnumDescriptor,
    number: i32,
}

impl Object for EnumObject {
    fn type_name(&self) -> Cow<'static, str> {
        let descriptor = &self.descriptor;
        go_type(descriptor.full_name(), descriptor.package_name()).into()
    }

    fn method(&self, name: &str) -> Option<Function> {
        match name {
            "String" => {
                let text = self.print();
                Some(Function::new(move || text.clone()))
            }
            "Number" => {
                let number = self.number;
                Some(Function::new(move || Value::Int(number.into(), IntKind::Int32)))
            }
            _ => None,
        }
    }

    fn data(&self) -> ObjectData {
        ObjectData::Int(self.number.into())
    }

    fn print(&self) -> String {
        let value = self.descriptor.get_value(self.number);
        value.map_or_else(|| self.number.to_string(), |value| value.name().to_owned())
    }

    fn encode(&self) -> Value {
        Value::Int(self.number.into(), IntKind::Int32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_names_follow_protobuf_names() {
        assert!(is_go_name("proxy_metadata", "ProxyMetadata"));
        assert!(is_go_name("hold_application_until_proxy_starts", "HoldApplicationUntilProxyStarts"));
        assert!(!is_go_name("proxy_metadata", "ProxyMetadat"));
        assert!(!is_go_name("proxy_metadata", "ProxyMetadataX"));
    }
}
