//! JSON to wire bytes.
//!
//! Performance-critical path: every watched Istio object passes here (bench `codec`).
//!
//! Fields are written in the order of their numbers and defaults are left out, so the result is what the typed encoder
//! would write for the same message.

mod well_known;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use canopus_base::tree::{Entry, Map, Node, Number, Pos, Value};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use super::{Decoded, Problem, Problems, Unknown};
pub(super) use well_known::has_own_json;

/// What stands between the message and a value inside it.
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

struct Reader<'a> {
    unknown: Unknown,
    path: Vec<Step<'a>>,
    out: Vec<u8>,
    problems: Vec<Problem>,
    ignored: Vec<Problem>,
}

pub(super) fn wire(
    descriptor: &MessageDescriptor,
    node: &Node,
    unknown: Unknown,
) -> Result<Decoded<Vec<u8>>, Problems> {
    let mut reader = Reader {
        unknown,
        path: Vec::new(),
        out: Vec::with_capacity(256),
        problems: Vec::new(),
        ignored: Vec::new(),
    };
    reader.message(descriptor, node);
    if reader.problems.is_empty() {
        Ok(Decoded { value: reader.out, ignored: reader.ignored })
    } else {
        Err(Problems(reader.problems))
    }
}

impl<'a> Reader<'a> {
    // === messages ===

    fn message(&mut self, descriptor: &MessageDescriptor, node: &'a Node) {
        match descriptor.full_name().strip_prefix("google.protobuf.") {
            Some(name) => self.well_known(name, descriptor, node),
            None => self.object(descriptor, node, None),
        }
    }

    /// An ordinary message; `skip` is the key that belongs to an enclosing `Any`.
    fn object(&mut self, descriptor: &MessageDescriptor, node: &'a Node, skip: Option<&str>) {
        let Some(map) = self.expect_map(node) else { return };
        let mut fields = Vec::with_capacity(map.len());
        for entry in map {
            if skip == Some(&*entry.key) {
                continue;
            }
            let Some(field) = find(descriptor, &entry.key) else {
                self.unknown_field(descriptor, entry);
                continue;
            };
            // Parity: null means "not set", except where null is a value.
            if entry.node.is_null() && !takes_null(&field) {
                continue;
            }
            fields.push((field, entry));
        }
        fields.sort_by_key(|(field, _)| field.number());
        self.check_clashes(&fields);
        for (field, entry) in &fields {
            self.path.push(Step::Field(&entry.key));
            self.field(field, &entry.node);
            self.path.pop();
        }
    }

    fn check_clashes(&mut self, fields: &[(FieldDescriptor, &'a Entry)]) {
        for pair in fields.windows(2) {
            if pair[0].0.number() == pair[1].0.number() {
                let (first, second) = (pair[0].1, pair[1].1);
                self.problem_at(second.key_at, format!("{:?} is already set as {:?}", second.key, first.key));
            }
        }
        let mut chosen: Vec<(&str, &'a Entry)> = Vec::new();
        let oneofs: Vec<_> = fields
            .iter()
            .filter_map(|(field, entry)| Some((field.containing_oneof()?, *entry)))
            .filter(|(oneof, _)| !oneof.is_synthetic())
            .collect();
        for (oneof, entry) in &oneofs {
            match chosen.iter().find(|(name, _)| *name == oneof.name()) {
                Some((_, first)) => {
                    let message = format!(
                        "only one of {:?} and {:?} may be set ({})",
                        first.key,
                        entry.key,
                        oneof.name()
                    );
                    // Parity: Istio's reader takes the later field.
                    self.unknown(entry.key_at, message);
                }
                None => chosen.push((oneof.name(), entry)),
            }
        }
    }

    fn unknown_field(&mut self, descriptor: &MessageDescriptor, entry: &Entry) {
        let message = format!("unknown field {:?} in {}", entry.key, descriptor.name());
        self.unknown(entry.key_at, message);
    }

    fn field(&mut self, field: &FieldDescriptor, node: &'a Node) {
        if field.is_list() {
            self.list(field, node);
        } else if field.is_map() {
            self.map(field, node);
        } else {
            self.tagged(field, node, field.supports_presence());
        }
    }

    fn list(&mut self, field: &FieldDescriptor, node: &'a Node) {
        let Value::List(items) = &node.value else {
            return self.mismatch("a list", node);
        };
        if field.is_packed() {
            let start = self.out.len();
            self.items(items, |reader, item| {
                if !reader.is_missing(field, item) {
                    reader.scalar(&field.kind(), item);
                } else {
                    reader.out.extend_from_slice(zero(&field.kind()));
                }
            });
            if self.out.len() > start {
                self.enclose(field.number(), start);
            }
        } else {
            self.items(items, |reader, item| reader.item(field, item));
        }
    }

    /// An item of a list or the value of a map entry.
    fn item(&mut self, field: &FieldDescriptor, node: &'a Node) {
        if self.is_missing(field, node) {
            let kind = field.kind();
            encode_key(field.number(), wire_type(&kind), &mut self.out);
            self.out.extend_from_slice(zero(&kind));
        } else {
            self.tagged(field, node, true);
        }
    }

    /// Whether null stands where an item should. Parity: Istio's reader takes it for an empty item.
    fn is_missing(&mut self, field: &FieldDescriptor, node: &Node) -> bool {
        let missing = node.is_null() && !is_null_a_value(&field.kind());
        if missing {
            self.unknown(node.at, format!("expected {}, found null", name_of(&field.kind())));
        }
        missing
    }

    fn items(&mut self, items: &'a [Node], mut read: impl FnMut(&mut Self, &'a Node)) {
        for (index, item) in items.iter().enumerate() {
            self.path.push(Step::Index(index));
            read(self, item);
            self.path.pop();
        }
    }

    fn map(&mut self, field: &FieldDescriptor, node: &'a Node) {
        let Some(map) = self.expect_map(node) else { return };
        let kind = field.kind();
        let entry_type = kind.as_message().expect("a map field holds entries");
        let (key, value) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let mut entries: Vec<_> = map.iter().filter_map(|e| Some((self.map_key(&key, e)?, e))).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (map_key, entry) in entries {
            self.path.push(Step::Key(&entry.key));
            let start = self.out.len();
            map_key.write(&key.kind(), &mut self.out);
            let (before, problems, ignored) = (self.out.len(), self.problems.len(), self.ignored.len());
            self.item(&value, &entry.node);
            let dropped =
                self.out.len() == before && self.ignored.len() > ignored && self.problems.len() == problems;
            if is_empty_message(&value, &self.out[before..]) {
                self.out.truncate(before);
            }
            if dropped {
                // An enum name nobody knows: the whole entry is left out, as its value would otherwise read as zero.
                self.out.truncate(start);
            } else {
                self.enclose(field.number(), start);
            }
            self.path.pop();
        }
    }

    fn map_key(&mut self, field: &FieldDescriptor, entry: &'a Entry) -> Option<MapKey<'a>> {
        let text = &*entry.key;
        let key = match field.kind() {
            Kind::String => Some(MapKey::Text(text)),
            Kind::Bool => text.parse().ok().map(|b: bool| MapKey::Int(i64::from(b))),
            Kind::Uint32 | Kind::Fixed32 => text.parse().ok().map(|n: u32| MapKey::Int(i64::from(n))),
            Kind::Uint64 | Kind::Fixed64 => text.parse().ok().map(MapKey::Uint),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                text.parse().ok().map(|n: i32| MapKey::Int(i64::from(n)))
            }
            _ => text.parse().ok().map(MapKey::Int),
        };
        if key.is_none() {
            self.problem_at(
                entry.key_at,
                format!("{text:?} is not a valid key: expected {}", name_of(&field.kind())),
            );
        }
        key
    }

    // === values ===

    /// A value with its tag. `keep_default` is false where a default is the same as absence.
    fn tagged(&mut self, field: &FieldDescriptor, node: &'a Node, keep_default: bool) {
        let kind = field.kind();
        let start = self.out.len();
        if let Kind::Message(descriptor) = &kind {
            if node.is_null() && !is_value(descriptor) {
                return self.mismatch(name_of(&kind), node);
            }
            self.message(descriptor, node);
            return self.enclose(field.number(), start);
        }
        encode_key(field.number(), wire_type(&kind), &mut self.out);
        match self.scalar(&kind, node) {
            Some(Scalar::Default) if !keep_default => self.out.truncate(start),
            Some(_) => {}
            None => self.out.truncate(start),
        }
    }

    /// Writes a scalar without tag; `None` if there was nothing to write.
    fn scalar(&mut self, kind: &Kind, node: &'a Node) -> Option<Scalar> {
        match kind {
            Kind::String => self.string(node),
            Kind::Bytes => self.bytes(node),
            Kind::Bool => match node.value {
                Value::Bool(b) => Some(self.varint(u64::from(b))),
                _ => self.mismatch_none("true or false", node),
            },
            Kind::Enum(descriptor) => {
                self.enum_number(descriptor, node).map(|n| self.varint(sign_extended(n)))
            }
            Kind::Int32 => self.integer::<i32>(node).map(|n| self.varint(sign_extended(n))),
            Kind::Int64 => self.integer::<i64>(node).map(|n| self.varint(n.cast_unsigned())),
            Kind::Uint32 => self.integer::<u32>(node).map(|n| self.varint(u64::from(n))),
            Kind::Uint64 => self.integer::<u64>(node).map(|n| self.varint(n)),
            Kind::Sint32 => self.integer::<i32>(node).map(|n| self.varint(zigzag(i64::from(n)))),
            Kind::Sint64 => self.integer::<i64>(node).map(|n| self.varint(zigzag(n))),
            Kind::Fixed32 => self.integer::<u32>(node).map(|n| self.fixed(n.to_le_bytes(), n == 0)),
            Kind::Fixed64 => self.integer::<u64>(node).map(|n| self.fixed(n.to_le_bytes(), n == 0)),
            Kind::Sfixed32 => self.integer::<i32>(node).map(|n| self.fixed(n.to_le_bytes(), n == 0)),
            Kind::Sfixed64 => self.integer::<i64>(node).map(|n| self.fixed(n.to_le_bytes(), n == 0)),
            Kind::Float => self.float32(node).map(|n| self.fixed(n.to_le_bytes(), n.to_bits() == 0)),
            Kind::Double => self.float(node).map(|n| self.fixed(n.to_le_bytes(), n.to_bits() == 0)),
            Kind::Message(_) => unreachable!("messages are written by `message`"),
        }
    }

    fn varint(&mut self, n: u64) -> Scalar {
        encode_varint(n, &mut self.out);
        Scalar::new(n == 0)
    }

    fn fixed<const N: usize>(&mut self, bytes: [u8; N], is_default: bool) -> Scalar {
        self.out.extend_from_slice(&bytes);
        Scalar::new(is_default)
    }

    fn delimited(&mut self, bytes: &[u8]) -> Scalar {
        encode_varint(bytes.len() as u64, &mut self.out);
        self.out.extend_from_slice(bytes);
        Scalar::new(bytes.is_empty())
    }

    fn string(&mut self, node: &'a Node) -> Option<Scalar> {
        match &node.value {
            Value::String(s) => Some(self.delimited(s.as_bytes())),
            _ => self.mismatch_none("a string", node),
        }
    }

    fn bytes(&mut self, node: &'a Node) -> Option<Scalar> {
        let Value::String(text) = &node.value else {
            return self.mismatch_none("base64 text", node);
        };
        let engine = if text.contains(['-', '_']) { &BASE64_URL } else { &BASE64 };
        match engine.decode(text.as_bytes()) {
            Ok(bytes) => Some(self.delimited(&bytes)),
            Err(error) => {
                self.problem(node, format!("not base64: {error}"));
                None
            }
        }
    }

    fn enum_number(&mut self, descriptor: &EnumDescriptor, node: &'a Node) -> Option<i32> {
        match &node.value {
            Value::String(name) => match descriptor.get_value_by_name(name) {
                Some(value) => Some(value.number()),
                None => {
                    let known: Vec<_> = descriptor.values().map(|v| v.name().to_owned()).collect();
                    let message = format!("{name:?} is not one of {}", known.join(", "));
                    self.unknown(node.at, message);
                    None
                }
            },
            Value::Number(_) => self.integer(node),
            Value::Null if descriptor.full_name() == "google.protobuf.NullValue" => Some(0),
            _ => {
                self.mismatch("an enum name or number", node);
                None
            }
        }
    }

    /// A number, or a string that holds one. Integral floats such as `1e3` count.
    fn integer<T: TryFrom<i128>>(&mut self, node: &'a Node) -> Option<T> {
        let exact = match &node.value {
            Value::Number(n) => integral(*n),
            Value::String(text) => parse_number(text).and_then(integral),
            _ => {
                self.mismatch("an integer", node);
                return None;
            }
        };
        let result = exact.and_then(|n| T::try_from(n).ok());
        if result.is_none() {
            let what = std::any::type_name::<T>();
            self.problem(node, format!("{} is not a valid {what}", shown(node)));
        }
        result
    }

    fn float(&mut self, node: &'a Node) -> Option<f64> {
        let number = match &node.value {
            Value::Number(n) => Some(n.as_f64()),
            Value::String(text) => match &**text {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                other => parse_number(other).map(Number::as_f64),
            },
            _ => {
                self.mismatch("a number", node);
                return None;
            }
        };
        if number.is_none() {
            self.problem(node, format!("{} is not a number", shown(node)));
        }
        number
    }

    fn float32(&mut self, node: &'a Node) -> Option<f32> {
        let wide = self.float(node)?;
        #[allow(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is the intent")]
        let narrow = wide as f32;
        if wide.is_finite() && narrow.is_infinite() {
            self.problem(node, format!("{} does not fit a float", shown(node)));
            return None;
        }
        Some(narrow)
    }

    // === framing and problems ===

    /// Turns everything from `start` on into the length-delimited field `number`.
    fn enclose(&mut self, number: u32, start: usize) {
        let mut header = Vec::with_capacity(8);
        encode_key(number, WireType::LengthDelimited, &mut header);
        encode_varint((self.out.len() - start) as u64, &mut header);
        self.out.splice(start..start, header);
    }

    fn expect_map(&mut self, node: &'a Node) -> Option<&'a Map> {
        if let Value::Map(map) = &node.value {
            return Some(map);
        }
        self.mismatch("an object", node);
        None
    }

    fn mismatch(&mut self, expected: &str, node: &Node) {
        self.problem(node, format!("expected {expected}, found {}", shown(node)));
    }

    fn mismatch_none(&mut self, expected: &str, node: &Node) -> Option<Scalar> {
        self.mismatch(expected, node);
        None
    }

    fn problem(&mut self, node: &Node, message: String) {
        self.problem_at(node.at, message);
    }

    fn problem_at(&mut self, at: Pos, message: String) {
        let path = self.rendered_path();
        self.problems.push(Problem { path, at, message });
    }

    fn unknown(&mut self, at: Pos, message: String) {
        let problem = Problem { path: self.rendered_path(), at, message };
        match self.unknown {
            Unknown::Reject => self.problems.push(problem),
            Unknown::Report => self.ignored.push(problem),
        }
    }

    fn rendered_path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => path.push_str(&format!("[{key:?}]")),
            }
        }
        path
    }
}

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Whether a written scalar was its type's default.
enum Scalar {
    Default,
    Other,
}

impl Scalar {
    fn new(is_default: bool) -> Self {
        if is_default { Self::Default } else { Self::Other }
    }
}

/// A map key in the order maps are encoded.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum MapKey<'a> {
    Text(&'a str),
    Int(i64),
    Uint(u64),
}

impl MapKey<'_> {
    fn write(&self, kind: &Kind, out: &mut Vec<u8>) {
        if matches!(self, Self::Text("") | Self::Int(0) | Self::Uint(0)) {
            return;
        }
        encode_key(1, wire_type(kind), out);
        match (self, kind) {
            (Self::Text(text), _) => {
                encode_varint(text.len() as u64, out);
                out.extend_from_slice(text.as_bytes());
            }
            (Self::Int(n), Kind::Sint32 | Kind::Sint64) => encode_varint(zigzag(*n), out),
            (Self::Int(n), Kind::Fixed32 | Kind::Sfixed32) => out.extend_from_slice(&n.to_le_bytes()[..4]),
            (Self::Int(n), Kind::Sfixed64) => out.extend_from_slice(&n.to_le_bytes()),
            (Self::Uint(n), Kind::Fixed64) => out.extend_from_slice(&n.to_le_bytes()),
            (Self::Int(n), _) => encode_varint(n.cast_unsigned(), out),
            (Self::Uint(n), _) => encode_varint(*n, out),
        }
    }
}

fn find(descriptor: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_json_name(key).or_else(|| descriptor.get_field_by_name(key))
}

fn takes_null(field: &FieldDescriptor) -> bool {
    !field.is_list() && !field.is_map() && is_null_a_value(&field.kind())
}

fn is_null_a_value(kind: &Kind) -> bool {
    match kind {
        Kind::Message(descriptor) => is_value(descriptor),
        Kind::Enum(descriptor) => descriptor.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

fn is_value(descriptor: &MessageDescriptor) -> bool {
    descriptor.full_name() == "google.protobuf.Value"
}

/// Whether `encoded` is a message field with nothing in it.
fn is_empty_message(field: &FieldDescriptor, encoded: &[u8]) -> bool {
    matches!(field.kind(), Kind::Message(_)) && encoded.last() == Some(&0) && encoded.len() == 2
}

fn wire_type(kind: &Kind) -> WireType {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireType::SixtyFourBit,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireType::ThirtyTwoBit,
        Kind::String | Kind::Bytes | Kind::Message(_) => WireType::LengthDelimited,
        _ => WireType::Varint,
    }
}

/// The encoding of a default value, without tag.
fn zero(kind: &Kind) -> &'static [u8] {
    match wire_type(kind) {
        WireType::SixtyFourBit => &[0; 8],
        WireType::ThirtyTwoBit => &[0; 4],
        _ => &[0],
    }
}

fn name_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::String => "a string",
        Kind::Message(_) => "an object",
        Kind::Float | Kind::Double => "a number",
        _ => "an integer",
    }
}

fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        // Debug keeps the exponent of a float that Display would write out in full.
        Value::Number(Number::Float(f)) => format!("{f:?}"),
        Value::Number(n) => n.to_string(),
        Value::String(s) if s.len() <= 64 => format!("{s:?}"),
        _ => format!("a {}", node.kind_name()),
    }
}

fn sign_extended(n: i32) -> u64 {
    i64::from(n).cast_unsigned()
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

fn integral(n: Number) -> Option<i128> {
    match n {
        Number::Int(n) => Some(i128::from(n)),
        Number::UInt(n) => Some(i128::from(n)),
        #[allow(clippy::cast_possible_truncation, reason = "checked to be integral and in range")]
        Number::Float(f) => (f.fract() == 0.0 && f.abs() < 1.9e19).then_some(f as i128),
    }
}

/// A number in JSON's spelling, without surrounding space.
fn parse_number(text: &str) -> Option<Number> {
    let json_like = text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && text.ends_with(|c: char| c.is_ascii_digit());
    if !json_like {
        return None;
    }
    if let Ok(n) = text.parse::<i64>() {
        return Some(Number::Int(n));
    }
    if let Ok(n) = text.parse::<u64>() {
        return Some(Number::UInt(n));
    }
    text.parse().ok().map(Number::Float)
}
