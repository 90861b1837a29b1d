//! JSON read into the document tree, with the position of every value and key.
//!
//! Stricter than JSON itself in one way: a key may not occur twice in an object.

#[cfg(test)]
mod tests;

use crate::tree::{Entry, Map, Node, Number, Pos, ReadErrorKind, Value, checked_text, clamp};

pub use crate::tree::{Limits, ReadError as Error};

type Result<T> = std::result::Result<T, Error>;

/// Reads one JSON text.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Node> {
    let start = Pos::new(1, 1);
    if bytes.len() > limits.max_bytes {
        let kind = ReadErrorKind::TooLarge { bytes: bytes.len(), max: limits.max_bytes };
        return Err(Error::new(start, kind));
    }
    parse_text(checked_text(bytes, start)?, start.line, limits)
}

/// Reads one JSON text that starts at the given line.
pub(crate) fn parse_text(text: &str, line: u32, limits: &Limits) -> Result<Node> {
    let mut reader = Reader { text, at: 0, line, line_start: 0, continuation: 0, limits, nodes: 0 };
    reader.skip_blanks();
    let node = reader.value(0)?;
    reader.skip_blanks();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    /// Where the current line starts.
    line_start: usize,
    /// Bytes since then that do not begin a character.
    continuation: usize,
    limits: &'a Limits,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn pos(&self) -> Pos {
        Pos::new(self.line, clamp(self.at - self.line_start - self.continuation).saturating_add(1))
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'\n' => {
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.at + 1;
                    self.continuation = 0;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    fn error(&self, kind: ReadErrorKind) -> Error {
        Error::new(self.pos(), kind)
    }

    fn unexpected(&self, place: &str) -> Error {
        let message = match self.text[self.at..].chars().next() {
            Some(found) => format!("invalid character {found:?} {place}"),
            None => "unexpected end of JSON input".to_owned(),
        };
        self.error(ReadErrorKind::Syntax(message.into()))
    }

    fn value(&mut self, depth: usize) -> Result<Node> {
        let at = self.pos();
        self.nodes += 1;
        if self.nodes > self.limits.max_nodes {
            return Err(self.error(ReadErrorKind::TooManyNodes { max: self.limits.max_nodes }));
        }
        let value = match self.peek() {
            Some(b'{' | b'[') if depth >= self.limits.max_depth => {
                return Err(self.error(ReadErrorKind::TooDeep { max: self.limits.max_depth }));
            }
            Some(b'{') => self.object(depth + 1)?,
            Some(b'[') => self.array(depth + 1)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.unexpected("looking for beginning of value")),
        };
        Ok(Node::new(value, at))
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(&format!("in literal {word}")));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        self.at += 1;
        self.skip_blanks();
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_blanks();
        }
        self.at += 1;
        Ok(Value::List(items))
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        self.at += 1;
        self.skip_blanks();
        let mut entries = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(Map::new()));
        }
        loop {
            entries.push(self.entry(depth)?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_blanks();
        }
        self.at += 1;
        let map = Map::from_entries(entries);
        map.map(Value::Map)
            .map_err(|twice| Error::new(twice.at, ReadErrorKind::DuplicateKey { key: twice.key }))
    }

    fn entry(&mut self, depth: usize) -> Result<Entry> {
        let key_at = self.pos();
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        self.skip_blanks();
        Ok(Entry { key, key_at, node: self.value(depth)? })
    }

    fn string(&mut self) -> Result<Box<str>> {
        self.at += 1;
        let plain = self.plain_run();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(plain.into());
        }
        let mut text = plain.to_owned();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.unexpected("in string literal")),
            }
            text.push_str(self.plain_run());
        }
        self.at += 1;
        Ok(text.into())
    }

    /// Takes what stands before the next quote, backslash or control character.
    fn plain_run(&mut self) -> &'a str {
        let rest = &self.text.as_bytes()[self.at..];
        let special = |b: &u8| *b < 0x20 || *b == b'"' || *b == b'\\';
        let length = rest.iter().position(special).unwrap_or(rest.len());
        let run = &self.text[self.at..self.at + length];
        if !run.is_ascii() {
            self.continuation += run.bytes().filter(|b| b & 0xc0 == 0x80).count();
        }
        self.at += length;
        run
    }

    fn escape(&mut self) -> Result<char> {
        self.at += 1;
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(character)
    }

    /// `\uXXXX`, two of them for a character beyond the first plane.
    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.code_unit()?;
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        let is_high = (0xd800..0xdc00).contains(&first);
        if is_high && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 1;
            let second = self.code_unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        // Parity: half a pair is not an error but the character for unknown ones.
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn code_unit(&mut self) -> Result<u32> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<Number> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            integer = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        number_of(text, integer).ok_or_else(|| self.error(ReadErrorKind::Number { text: text.into() }))
    }

    fn digits(&mut self) -> Result<()> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.unexpected("in numeric literal"));
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }
}

/// The number of a well-formed text; `None` beyond what floats reach.
fn number_of(text: &str, integer: bool) -> Option<Number> {
    if integer {
        if let Ok(int) = text.parse() {
            return Some(Number::Int(int));
        }
        if let Ok(int) = text.parse() {
            return Some(Number::UInt(int));
        }
    }
    text.parse().ok().filter(|float: &f64| float.is_finite()).map(Number::Float)
}
