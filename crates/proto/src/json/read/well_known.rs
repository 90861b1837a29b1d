//! Well-known types, whose JSON is not an object of their fields.

use canopus_base::duration::{Duration as GoDuration, ProtoDuration};
use canopus_base::tree::{Entry, Node, Value};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::MessageDescriptor;

use super::{Reader, Step, sign_extended};
use crate::descriptors;
use crate::google::protobuf::Timestamp;

const AT_TYPE: &str = "@type";

/// Types whose JSON is not an object of their fields; inside an `Any` they stand under `value`.
pub(in crate::json) fn has_own_json(full_name: &str) -> bool {
    full_name.strip_prefix("google.protobuf.").is_some_and(|name| {
        matches!(
            name,
            "Any"
                | "Duration"
                | "Timestamp"
                | "Struct"
                | "ListValue"
                | "Value"
                | "FieldMask"
                | "Empty"
                | "BoolValue"
                | "StringValue"
                | "BytesValue"
                | "Int32Value"
                | "Int64Value"
                | "UInt32Value"
                | "UInt64Value"
                | "FloatValue"
                | "DoubleValue"
        )
    })
}

impl<'a> Reader<'a> {
    pub(super) fn well_known(&mut self, name: &str, descriptor: &MessageDescriptor, node: &'a Node) {
        match name {
            "Any" => self.any(node),
            "Duration" => self.text(node, "a duration such as \"1.5s\"", |text| {
                duration(text).map(|d| (d.seconds(), d.nanos()))
            }),
            "Timestamp" => self.text(node, "an RFC 3339 time", |text| {
                Timestamp::from_json(text).map(|t| (t.seconds, t.nanos))
            }),
            "Struct" => self.structure(node),
            "ListValue" => self.list_value(node),
            "Value" => self.value(node),
            "FieldMask" => self.field_mask(node),
            "BoolValue" | "StringValue" | "BytesValue" | "Int32Value" | "Int64Value" | "UInt32Value"
            | "UInt64Value" | "FloatValue" | "DoubleValue" => {
                let inner = descriptor.get_field(1).expect("a wrapper has a value");
                self.tagged(&inner, node, false);
            }
            _ => self.object(descriptor, node, None),
        }
    }

    /// `Duration` and `Timestamp`: text of two numbers.
    fn text(&mut self, node: &'a Node, expected: &str, parse: impl Fn(&str) -> Option<(i64, i32)>) {
        let Value::String(text) = &node.value else {
            return self.mismatch(expected, node);
        };
        let Some((seconds, nanos)) = parse(text) else {
            return self.problem(node, format!("{text:?} is not {expected}"));
        };
        self.varint_field(1, seconds.cast_unsigned());
        self.varint_field(2, sign_extended(nanos));
    }

    fn varint_field(&mut self, number: u32, value: u64) {
        if value != 0 {
            encode_key(number, WireType::Varint, &mut self.out);
            encode_varint(value, &mut self.out);
        }
    }

    fn any(&mut self, node: &'a Node) {
        let Some(map) = self.expect_map(node) else { return };
        if map.is_empty() {
            return;
        }
        let Some(type_url) = map.get(AT_TYPE).and_then(Node::as_str) else {
            return self.problem(node, format!("{AT_TYPE:?} is missing: it names the type of the object"));
        };
        let name = type_url.rsplit('/').next().unwrap_or_default();
        let Some(descriptor) = descriptors::message(name) else {
            return self.problem(node, format!("no message type is named {name:?}"));
        };
        encode_key(1, WireType::LengthDelimited, &mut self.out);
        self.delimited(type_url.as_bytes());
        let start = self.out.len();
        if has_own_json(name) {
            match map.get("value") {
                Some(value) => {
                    self.path.push(Step::Field("value"));
                    self.message(&descriptor, value);
                    self.path.pop();
                }
                None => self.problem(node, format!("\"value\" is missing: it holds the {name}")),
            }
        } else {
            self.object(&descriptor, node, Some(AT_TYPE));
        }
        if self.out.len() > start {
            self.enclose(2, start);
        }
    }

    fn structure(&mut self, node: &'a Node) {
        let Some(map) = self.expect_map(node) else { return };
        let mut entries: Vec<&Entry> = map.iter().collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        for entry in entries {
            self.path.push(Step::Field(&entry.key));
            let start = self.out.len();
            if !entry.key.is_empty() {
                encode_key(1, WireType::LengthDelimited, &mut self.out);
                self.delimited(entry.key.as_bytes());
            }
            let value = self.out.len();
            self.value(&entry.node);
            self.enclose(2, value);
            self.enclose(1, start);
            self.path.pop();
        }
    }

    fn list_value(&mut self, node: &'a Node) {
        let Value::List(items) = &node.value else {
            return self.mismatch("a list", node);
        };
        self.items(items, |reader, item| {
            let start = reader.out.len();
            reader.value(item);
            reader.enclose(1, start);
        });
    }

    /// `google.protobuf.Value`: any JSON at all. The field number is the kind.
    fn value(&mut self, node: &'a Node) {
        match &node.value {
            Value::Null => {
                encode_key(1, WireType::Varint, &mut self.out);
                self.out.push(0);
            }
            Value::Number(n) => {
                encode_key(2, WireType::SixtyFourBit, &mut self.out);
                self.out.extend_from_slice(&n.as_f64().to_le_bytes());
            }
            Value::String(text) => {
                encode_key(3, WireType::LengthDelimited, &mut self.out);
                self.delimited(text.as_bytes());
            }
            Value::Bool(b) => {
                encode_key(4, WireType::Varint, &mut self.out);
                self.out.push(u8::from(*b));
            }
            Value::Map(_) => {
                let start = self.out.len();
                self.structure(node);
                self.enclose(5, start);
            }
            Value::List(_) => {
                let start = self.out.len();
                self.list_value(node);
                self.enclose(6, start);
            }
        }
    }

    fn field_mask(&mut self, node: &'a Node) {
        let Value::String(text) = &node.value else {
            return self.mismatch("a comma-separated list of fields", node);
        };
        for path in text.split(',').filter(|p| !p.is_empty()) {
            encode_key(1, WireType::LengthDelimited, &mut self.out);
            self.delimited(snake_case(path).as_bytes());
        }
    }
}

/// A duration in protobuf's spelling. Parity: Istio's reader takes Go's (`5m`, `1h30m`) as well.
fn duration(text: &str) -> Option<ProtoDuration> {
    text.parse().ok().or_else(|| text.parse::<GoDuration>().ok().map(ProtoDuration::from))
}

fn snake_case(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
