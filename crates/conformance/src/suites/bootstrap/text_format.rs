//! The part of protobuf's text format that the suite's inputs use, to the proto-JSON of the same message.
//!
//! By hand because the only library for it wants the whole format at the price of a lexer generator.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};

/// Reads the fields of a message.
pub(super) fn parse(text: &str) -> anyhow::Result<Value> {
    let text: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut reader = Reader { rest: &text };
    let fields = reader.fields()?;
    ensure!(reader.rest.is_empty(), "left over: {:?}", reader.rest);
    Ok(Value::Object(fields))
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == ';');
    }

    fn take(&mut self, character: char) -> bool {
        self.skip();
        let found = self.rest.strip_prefix(character);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn word(&mut self) -> anyhow::Result<String> {
        self.skip();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || "_.-+".contains(c)));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        ensure!(!word.is_empty(), "expected a name or a number at {:?}", self.rest);
        self.rest = rest;
        Ok(word.to_owned())
    }

    fn fields(&mut self) -> anyhow::Result<Map<String, Value>> {
        let mut fields = Map::new();
        loop {
            self.skip();
            if self.rest.is_empty() || self.rest.starts_with('}') {
                return Ok(fields);
            }
            let name = self.word()?;
            self.take(':');
            let value = self.value().with_context(|| name.clone())?;
            fields.insert(name, value);
        }
    }

    fn value(&mut self) -> anyhow::Result<Value> {
        if self.take('{') {
            let fields = self.fields()?;
            ensure!(self.take('}'), "a message does not end");
            return Ok(well_known(fields));
        }
        if self.take('[') {
            let mut items = Vec::new();
            while !self.take(']') {
                items.push(self.value()?);
            }
            return Ok(entries(&items).unwrap_or(Value::Array(items)));
        }
        if self.take('"') {
            let (text, rest) = self.rest.split_once('"').context("a text does not end")?;
            if text.contains('\\') {
                bail!("escapes are not read");
            }
            self.rest = rest;
            return Ok(text.into());
        }
        let word = self.word()?;
        Ok(serde_json::from_str(&word).unwrap_or(Value::String(word)))
    }
}

/// Wrappers and durations have forms of their own in JSON.
fn well_known(fields: Map<String, Value>) -> Value {
    match (fields.len(), fields.get("value"), fields.get("seconds")) {
        (1, Some(value), _) => value.clone(),
        (1, _, Some(seconds)) => format!("{seconds}s").into(),
        _ => Value::Object(fields),
    }
}

/// Entries of a map field are messages with key and value.
fn entries(items: &[Value]) -> Option<Value> {
    if items.is_empty() {
        return None;
    }
    let entry = |item: &Value| Some((item.get("key")?.as_str()?.to_owned(), item.get("value")?.clone()));
    items.iter().map(entry).collect::<Option<Map<_, _>>>().map(Value::Object)
}
