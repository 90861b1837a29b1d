//! YAML as Kubernetes reads and writes it, with the position of every value and key.
//!
//! Kubernetes reads YAML as JSON in another notation, through a library of YAML 1.1: `yes` is a boolean and `0777` an
//! octal number, `<<` merges, dates stay strings, keys of other types become strings. [`parse_all`] follows it, in its
//! strict form: a key given twice is an error. Each document of a stream stands alone: one that is broken, too large or
//! too deep is an error in its place while the others load. Memory follows the length of the stream, which is for the
//! caller to bound; [`Limits`] bound what a document can make of its length.
//!
//! # Where this differs from that library
//!
//! The syntax is left to a parser of YAML 1.2, which draws some lines elsewhere:
//!
//! - Text after the end of a document is an error; the library silently ignores it.
//! - The further lines of a quoted string must be indented more than the key they belong to.
//! - U+0085, U+2028 and U+2029 are characters like any other, not line breaks, and a byte order mark may stand only at the
//!   start of the stream.
//! - A few forms that the library refuses are read: `[::]`, plain scalars with a `?` in brackets, `\/` in quotes,
//!   `%YAML 1.2`.
//!
//! And these are choices of ours:
//!
//! - A key may override what `<<` merged in, as in the library's lenient form; its strict form refuses that.
//! - `1` and `"1"` are the same key, for they are in JSON.
//! - A block scalar whose last line is not ended gets its line break, as it does when Kubernetes reads a stream.
//! - The key `<<`, and strings with U+2028 or U+2029, are quoted when written, so that they read back.

mod build;
mod colon;
mod emit;
mod order;
mod resolve;
mod split;
#[cfg(test)]
mod tests;
mod timestamp;

use std::ops::Range;

use serde::Serialize;

use self::build::RepeatedKeys;
use crate::json;
use crate::tree::{Node, Pos, ReadErrorKind, checked_text};

pub use crate::tree::{Limits, ReadError as Error};

/// One document of a stream.
#[derive(Clone, Debug)]
pub struct Document {
    /// What it says.
    pub node: Node,
    /// Which document of the stream it is, from 0, empty ones counted.
    pub index: usize,
    /// Where its text starts, comments included; see the node for where its content does.
    pub start: Pos,
    /// Which bytes of the stream are its text.
    pub text_range: Range<usize>,
}

/// Reads every document of a stream. Empty documents are left out.
pub fn parse_all(stream: impl AsRef<[u8]>, limits: &Limits) -> Vec<Result<Document, Error>> {
    let stream = stream.as_ref();
    let parts = split::split(stream).into_iter().enumerate().filter(|(_, part)| part.has_content);
    parts
        .map(|(index, part)| {
            let start = Pos::new(part.line, 1);
            let node = parse_document(&stream[part.range.clone()], start, limits)
                .map_err(|error| error.in_document(index))?;
            Ok(Document { node, index, start, text_range: part.range })
        })
        .collect()
}

/// Reads a text that holds one document. Of an empty text the result is null.
pub fn parse_one(text: impl AsRef<[u8]>, limits: &Limits) -> Result<Node, Error> {
    let mut documents = parse_all(text, limits).into_iter();
    let first = documents.next().transpose()?;
    match documents.next() {
        None => Ok(first.map(|document| document.node).unwrap_or_default()),
        Some(second) => {
            let start = second?.start;
            Err(Error::new(start, ReadErrorKind::SecondDocument).in_document(1))
        }
    }
}

fn parse_document(bytes: &[u8], start: Pos, limits: &Limits) -> Result<Node, Error> {
    if bytes.len() > limits.max_bytes {
        let kind = ReadErrorKind::TooLarge { bytes: bytes.len(), max: limits.max_bytes };
        return Err(Error::new(start, kind));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = checked_text(bytes, start)?;
    // JSON is much the faster to read. What only looks like it is left to the YAML parser and its messages.
    if text.trim_start().starts_with('{')
        && let Ok(node) = json::parse_text(text, start.line, limits)
    {
        return Ok(node);
    }
    build::document(text, start.line, limits, RepeatedKeys::Refused)
}

/// Reads a text that holds one document, as Go programs read YAML that they did not ask to be strict about: of a key given
/// twice, the last one counts.
pub fn parse_one_lenient(text: impl AsRef<[u8]>, limits: &Limits) -> Result<Node, Error> {
    let text = text.as_ref();
    match parse_one(text, limits) {
        Err(Error { kind: ReadErrorKind::DuplicateKey { .. }, .. }) => {}
        result => return result,
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let start = Pos::new(1, 1);
    build::document(checked_text(text, start)?, start.line, limits, RepeatedKeys::LastWins)
}

/// A value could not be turned into YAML: it has map keys that are not strings, or its own `Serialize` failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot write as YAML: {0}")]
pub struct EncodeError(#[from] serde_json::Error);

/// Writes a value as Kubernetes tools print YAML: block style, keys sorted, strings quoted where YAML 1.1 needs it.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, EncodeError> {
    Ok(emit::emit(&serde_json::to_value(value)?.into()))
}

/// Writes a tree as [`to_string`] does.
pub fn node_to_string(node: &Node) -> String {
    emit::emit(node)
}
