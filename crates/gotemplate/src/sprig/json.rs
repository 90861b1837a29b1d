//! JSON as Go's `encoding/json` writes it.

use crate::error::CallError;
use crate::gofmt::float;
use crate::limits::{Budget, LimitError, MAX_VALUE_DEPTH};
use crate::value::{Functions, Str, Value, runes};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("fromJson", |text: Str| parse(&text).unwrap_or_default())
        .add("mustFromJson", |text: Str| parse(&text))
        .add("toJson", |budget: &Budget, value: Value| lenient(encode(budget, &value, true)))
        .add("mustToJson", |budget: &Budget, value: Value| encode(budget, &value, true))
        .add("toPrettyJson", |budget: &Budget, value: Value| lenient(pretty(budget, &value)))
        .add("mustToPrettyJson", |budget: &Budget, value: Value| pretty(budget, &value));
    for name in ["toRawJson", "mustToRawJson"] {
        functions.add(name, |budget: &Budget, value: Value| encode(budget, &value, false));
    }
}

/// Errors are swallowed, but not those of the limits.
pub(crate) fn lenient(text: Result<Vec<u8>, CallError>) -> Result<Vec<u8>, CallError> {
    match text {
        Err(CallError::Failed(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// Reads a JSON text; every number is a `float64`.
pub(crate) fn parse(text: &Str) -> Result<Value, CallError> {
    let json: serde_json::Value =
        serde_json::from_str(&text.to_text()).map_err(|error| CallError::from(error.to_string()))?;
    Ok(json.into())
}

/// Writes a value on one line, with or without the escapes that make it safe inside HTML.
pub(crate) fn encode(budget: &Budget, value: &Value, html: bool) -> Result<Vec<u8>, CallError> {
    let mut writer = Writer { budget, html, pretty: false, out: Vec::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

fn pretty(budget: &Budget, value: &Value) -> Result<Vec<u8>, CallError> {
    let mut writer = Writer { budget, html: true, pretty: true, out: Vec::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    budget: &'a Budget,
    html: bool,
    pretty: bool,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), LimitError> {
        self.budget.charge_bytes(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: u32) -> Result<(), CallError> {
        if depth > MAX_VALUE_DEPTH {
            return Err(LimitError::ValueDepth.into());
        }
        match value {
            Value::Nil => self.put(b"null")?,
            Value::Bool(truth) => self.put(if *truth { b"true" } else { b"false" })?,
            Value::Int(int, _) => self.put(int.to_string().as_bytes())?,
            Value::Uint(int, _) => self.put(int.to_string().as_bytes())?,
            Value::Float(number) if number.is_finite() => self.put(float::json(*number).as_bytes())?,
            Value::Float(number) => {
                return Err(format!("json: unsupported value: {}", float::shortest(*number)).into());
            }
            Value::Complex(..) => return Err("json: unsupported type: complex128".into()),
            Value::String(text) => self.string(text.as_bytes())?,
            Value::Bytes(bytes) => self.string(&super::encode::base64(bytes.as_bytes()))?,
            Value::List(list) if list.is_nil() => self.put(b"null")?,
            Value::Map(map) if map.is_nil() => self.put(b"null")?,
            Value::List(list) => {
                self.sequence(b'[', b']', depth, list.items(), |writer, item| writer.value(item, depth + 1))?;
            }
            Value::Map(map) => {
                self.sequence(b'{', b'}', depth, &map.entries(), |writer, (key, item)| {
                    writer.string(key.as_bytes())?;
                    writer.put(if writer.pretty { b": " } else { b":" })?;
                    writer.value(item, depth + 1)
                })?;
            }
            Value::Object(object) => match object.to_json() {
                Some(text) if !self.pretty => self.put(&text)?,
                _ => self.value(&object.encode(), depth + 1)?,
            },
        }
        Ok(())
    }

    fn sequence<T>(
        &mut self,
        opening: u8,
        closing: u8,
        depth: u32,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        self.put(&[opening])?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.put(b",")?;
            }
            self.new_line(depth + 1)?;
            write(self, item)?;
        }
        if !items.is_empty() {
            self.new_line(depth)?;
        }
        Ok(self.put(&[closing])?)
    }

    fn new_line(&mut self, depth: u32) -> Result<(), LimitError> {
        if !self.pretty {
            return Ok(());
        }
        self.put(b"\n")?;
        (0..depth).try_for_each(|_| self.put(b"  "))
    }

    fn string(&mut self, text: &[u8]) -> Result<(), LimitError> {
        self.put(b"\"")?;
        for (c, raw) in runes(text) {
            match c {
                '"' => self.put(br#"\""#)?,
                '\\' => self.put(br"\\")?,
                '\u{8}' => self.put(br"\b")?,
                '\u{c}' => self.put(br"\f")?,
                '\n' => self.put(br"\n")?,
                '\r' => self.put(br"\r")?,
                '\t' => self.put(br"\t")?,
                '<' | '>' | '&' if !self.html => self.put(raw)?,
                '<' | '>' | '&' | '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => self.escape(c)?,
                char::REPLACEMENT_CHARACTER if raw.len() == 1 => self.put(br"\ufffd")?,
                _ => self.put(raw)?,
            }
        }
        self.put(b"\"")
    }

    fn escape(&mut self, c: char) -> Result<(), LimitError> {
        self.put(format!("\\u{:04x}", u32::from(c)).as_bytes())
    }
}
