//! Go strings: bytes that are usually, but not always, UTF-8.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A Go string. Templates may cut a string inside a character or decode binary data, so it holds any bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Str(Arc<[u8]>);

impl Str {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, where bytes that are no UTF-8 become U+FFFD.
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters as Go's `range` gives them: each byte that is no UTF-8 is one U+FFFD.
    pub(crate) fn runes(&self) -> Runes<'_> {
        runes(&self.0)
    }
}

/// The characters of some bytes as Go's `range` gives them.
pub(crate) fn runes(bytes: &[u8]) -> Runes<'_> {
    Runes { rest: bytes }
}

/// See [`runes`]. Yields the character and the bytes it was read from.
pub(crate) struct Runes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Runes<'a> {
    type Item = (char, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (c, size) = decode(self.rest)?;
        let (head, rest) = self.rest.split_at(size);
        self.rest = rest;
        Some((c, head))
    }
}

/// Decodes the first character and says how many bytes it took.
fn decode(bytes: &[u8]) -> Option<(char, usize)> {
    let first = *bytes.first()?;
    if first.is_ascii() {
        return Some((char::from(first), 1));
    }
    for size in 2..=4 {
        let Some(head) = bytes.get(..size) else { break };
        if let Ok(text) = std::str::from_utf8(head) {
            return text.chars().next().map(|c| (c, size));
        }
    }
    Some((char::REPLACEMENT_CHARACTER, 1))
}

impl AsRef<[u8]> for Str {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Str {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(text.into_bytes().into())
    }
}

impl From<&[u8]> for Str {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<Vec<u8>> for Str {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == *other.as_bytes()
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_text().fmt(f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}
