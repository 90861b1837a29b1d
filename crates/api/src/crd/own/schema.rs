//! From the descriptor of a protobuf message to the schema of its JSON.

use canopus_base::tree::{Map, Node, Value};
use canopus_proto::descriptors::{self, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use super::kinds::Definition;
use super::limits::{self, Limit};
use super::{int, list, map, text, words};

/// The message of every status.
const STATUS: &str = "istio.meta.v1alpha1.IstioStatus";
/// The shortest duration that means anything to a proxy.
const DURATION_RULE: (&str, &str) =
    ("duration(self) >= duration('1ms')", "must be a valid duration greater than 1ms");

/// The schema of a whole object.
pub(super) fn object(definition: &Definition) -> Node {
    let spec = Draft::message(&known(definition.message));
    let mut status = Draft::message(&known(STATUS));
    status.set("x-kubernetes-preserve-unknown-fields", Value::Bool(true));
    let mut object = Draft::with_type("object");
    object.set_node("properties", map([("spec", spec.node()), ("status", status.node())]));
    if definition.needs_spec {
        object.set_node("required", list([text("spec")]));
    }
    object.node()
}

fn known(name: &str) -> MessageDescriptor {
    descriptors::message(name).expect("the messages of Istio's kinds are in the descriptor set")
}

/// A schema in the making.
#[derive(Default)]
struct Draft(Map);

impl Draft {
    fn with_type(name: &str) -> Self {
        let mut draft = Self::default();
        draft.set("type", name);
        draft
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.set_node(key, value.into().into());
    }

    fn set_node(&mut self, key: &str, node: Node) {
        self.0.insert(key, node);
    }

    fn with(mut self, key: &str, node: Node) -> Self {
        self.set_node(key, node);
        self
    }

    fn node(self) -> Node {
        Value::Map(self.0).into()
    }

    /// The schema of a message, with what is said about messages of its type.
    fn message(message: &MessageDescriptor) -> Self {
        let mut draft = match message.full_name() {
            "google.protobuf.Struct" => return Self::anything(),
            "google.protobuf.Duration" => return Self::with_type("string"),
            "google.protobuf.Timestamp" => {
                return Self::with_type("string").with("format", text("date-time"));
            }
            "google.protobuf.BoolValue" => return Self::nullable("boolean"),
            "google.protobuf.StringValue" => return Self::nullable("string"),
            "google.protobuf.DoubleValue" => return Self::nullable("number").with("format", text("double")),
            "google.protobuf.Int32Value" => return Self::nullable("integer").with("format", text("int32")),
            "google.protobuf.UInt32Value" => return Self::nullable("integer").unsigned(),
            "google.protobuf.UInt64Value" => return Self::nullable("integer").at_least_zero(),
            _ => Self::with_type("object"),
        };
        let properties: Map = message.fields().flat_map(|field| properties(&field)).collect();
        if !properties.is_empty() {
            draft.set("properties", Value::Map(properties));
        }
        let required = message.fields().filter(is_required);
        let required: Vec<Node> = required.map(|field| text(field.json_name())).collect();
        if !required.is_empty() {
            draft.set_node("required", list(required));
        }
        draft.alternatives(message);
        draft.limit(limits::limits_for(message.full_name()));
        draft.describe(words::about(message.full_name()));
        draft
    }

    fn anything() -> Self {
        Self::with_type("object").with("x-kubernetes-preserve-unknown-fields", Value::Bool(true).into())
    }

    fn nullable(kind: &str) -> Self {
        Self::with_type(kind).with("nullable", Value::Bool(true).into())
    }

    fn at_least_zero(self) -> Self {
        self.with("minimum", int(0))
    }

    fn unsigned(self) -> Self {
        self.at_least_zero().with("maximum", int(u32::MAX.into()))
    }

    /// At most one field of each `oneof` may be set.
    fn alternatives(&mut self, message: &MessageDescriptor) {
        let groups = message.oneofs().filter(|oneof| !oneof.is_synthetic());
        let mut groups: Vec<Node> = groups
            .map(|oneof| {
                let required: Vec<Node> = oneof.fields().map(|field| required([field.json_name()])).collect();
                let none = map([("not", map([("anyOf", list(required.clone()))]))]);
                list([none].into_iter().chain(required))
            })
            .collect();
        match groups.len() {
            0 => {}
            1 => self.set_node("oneOf", groups.remove(0)),
            _ => self.set_node("allOf", list(groups.into_iter().map(|group| map([("oneOf", group)])))),
        }
    }

    /// The schema of one value of a field: an item, if the field is a list.
    fn value(field: &FieldDescriptor) -> Self {
        match field.kind() {
            Kind::Bool => Self::with_type("boolean"),
            Kind::String => Self::with_type("string"),
            Kind::Bytes => Self::with_type("string").with("format", text("byte")),
            Kind::Double => Self::with_type("number").with("format", text("double")),
            Kind::Float => Self::with_type("number").with("format", text("float")),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                Self::with_type("integer").with("format", text("int32"))
            }
            Kind::Uint32 | Kind::Fixed32 => Self::with_type("integer").unsigned(),
            Kind::Uint64 | Kind::Fixed64 => Self::with_type("integer").at_least_zero(),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Self::int_or_string(),
            Kind::Enum(kind) => Self::with_type("string").with("enum", list(names(&kind))),
            Kind::Message(message) => Self::message(&message),
        }
    }

    /// What JSON writes as a text because not every reader keeps it exact as a number.
    fn int_or_string() -> Self {
        let kinds = ["integer", "string"].map(|kind| map([("type", text(kind))]));
        Self::default()
            .with("anyOf", list(kinds))
            .with("x-kubernetes-int-or-string", Value::Bool(true).into())
    }

    /// The schema of a field, with what is said about it.
    fn field(field: &FieldDescriptor) -> Self {
        let limits = limits::limits_for(field.full_name());
        let mut draft = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let values = Self::value(&entry.map_entry_value_field()).each(limits);
                Self::with_type("object").with("additionalProperties", values.node())
            }
            _ if field.is_list() => {
                Self::with_type("array").with("items", Self::value(field).each(limits).node())
            }
            _ => Self::value(field),
        };
        let is_duration = matches!(field.kind(), Kind::Message(message) if message.full_name() == "google.protobuf.Duration");
        if is_duration && !limits.iter().any(|limit| matches!(limit, Limit::AnyDuration)) {
            draft.rule(DURATION_RULE.0, DURATION_RULE.1);
        }
        draft.limit(limits);
        draft.describe(words::about_field(field.parent_message().full_name(), field.name()));
        draft
    }

    /// Adds what is said about each item of a list or each value of a map.
    fn each(mut self, limits: &[Limit]) -> Self {
        for limit in limits {
            if let Limit::Each(limits) = limit {
                self.limit(limits);
            }
        }
        self
    }

    fn limit(&mut self, limits: &[Limit]) {
        for limit in limits {
            match limit {
                Limit::Required | Limit::Each(_) | Limit::AnyDuration | Limit::Also(_) => {}
                Limit::Minimum(minimum) => self.set_node("minimum", int(*minimum)),
                Limit::Maximum(maximum) => self.set_node("maximum", int(*maximum)),
                Limit::MinLength(length) => self.set_node("minLength", int(*length)),
                Limit::MaxLength(length) => self.set_node("maxLength", int(*length)),
                Limit::Pattern(pattern) => self.set("pattern", *pattern),
                Limit::MinItems(count) => self.set_node("minItems", int(*count)),
                Limit::MaxItems(count) => self.set_node("maxItems", int(*count)),
                Limit::MinProperties(count) => self.set_node("minProperties", int(*count)),
                Limit::MaxProperties(count) => self.set_node("maxProperties", int(*count)),
                Limit::Keyed(key) => {
                    self.set("x-kubernetes-list-type", "map");
                    self.set_node("x-kubernetes-list-map-keys", list([text(key)]));
                }
                Limit::Rule { rule, message } => self.rule(rule, message),
                Limit::AtMostOne { of, message } => {
                    let counts: Vec<_> =
                        of.iter().map(|field| format!("(has(self.{field}) ? 1 : 0)")).collect();
                    self.rule(&format!("{} <= 1", counts.join(" + ")), message);
                }
                Limit::Without(message) => self.drop_rule(message),
            }
        }
    }

    fn rule(&mut self, rule: &str, message: &str) {
        let rule = map([("message", text(message)), ("rule", text(rule))]);
        let mut rules = self.rules();
        rules.push(rule);
        self.set("x-kubernetes-validations", Value::List(rules));
    }

    fn drop_rule(&mut self, message: &str) {
        let mut rules = self.rules();
        rules.retain(|rule| rule.get("message").and_then(Node::as_str) != Some(message));
        self.set("x-kubernetes-validations", Value::List(rules));
    }

    /// Takes out the rules so far.
    fn rules(&mut self) -> Vec<Node> {
        match self.0.remove("x-kubernetes-validations").map(|rules| rules.value) {
            Some(Value::List(rules)) => rules,
            _ => Vec::new(),
        }
    }

    fn describe(&mut self, words: Option<&str>) {
        if let Some(words) = words {
            self.set("description", words);
        }
    }
}

/// A field under its name, and under its other name if it has one.
fn properties(field: &FieldDescriptor) -> Vec<(String, Node)> {
    let schema = Draft::field(field).node();
    let other = limits::limits_for(field.full_name()).iter().find_map(|limit| match limit {
        Limit::Also(name) => Some((*name).to_owned()),
        _ => None,
    });
    let mut properties = vec![(field.json_name().to_owned(), schema.clone())];
    properties.extend(other.map(|name| (name, schema)));
    properties
}

fn is_required(field: &FieldDescriptor) -> bool {
    limits::limits_for(field.full_name()).iter().any(|limit| matches!(limit, Limit::Required))
}

fn required<'a>(names: impl IntoIterator<Item = &'a str>) -> Node {
    map([("required", list(names.into_iter().map(text)))])
}

fn names(kind: &EnumDescriptor) -> Vec<Node> {
    kind.values().map(|value| text(value.name())).collect()
}
