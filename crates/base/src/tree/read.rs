//! What the readers of texts share: limits on what they take in, and how they refuse.

use super::Pos;

/// Bounds on a document, so that no input can exhaust memory or stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of text a document may have.
    pub max_bytes: usize,
    /// The most levels of lists and maps within each other.
    pub max_depth: usize,
    /// The most values a document may have once its aliases are written out.
    pub max_nodes: usize,
}

impl Default for Limits {
    /// 16 MiB, 128 levels, a million values: far above any real object, and some 100 MB of memory at the worst.
    fn default() -> Self {
        Self { max_bytes: 16 << 20, max_depth: 128, max_nodes: 1_000_000 }
    }
}

/// Why a document could not be read, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {kind}")]
pub struct ReadError {
    /// The place in the whole text.
    pub at: Pos,
    /// Which document of a stream it is, from 0.
    pub document: usize,
    /// What is wrong.
    pub kind: ReadErrorKind,
}

/// The kinds of fault a document can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadErrorKind {
    /// The text does not follow the grammar.
    #[error("{0}")]
    Syntax(Box<str>),
    /// The text is not UTF-8.
    #[error("invalid UTF-8")]
    Encoding,
    /// A key occurs twice in one map.
    #[error("key {key:?} already set in map")]
    DuplicateKey {
        /// The key.
        key: Box<str>,
    },
    /// The document is longer than allowed.
    #[error("document has {bytes} bytes, more than the {max} allowed")]
    TooLarge {
        /// Length of the document.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The document nests deeper than allowed.
    #[error("document nests deeper than the {max} levels allowed")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// The document has more values than allowed.
    #[error("document has more values than the {max} allowed, counting those that aliases repeat")]
    TooManyNodes {
        /// The limit.
        max: usize,
    },
    /// Aliases repeat more text than a document may have.
    #[error("aliases repeat more than the {max} bytes of text allowed")]
    TooMuchAliased {
        /// The limit.
        max: usize,
    },
    /// An alias names an anchor that is not defined before it.
    #[error("unknown anchor '{name}' referenced")]
    UnknownAnchor {
        /// The anchor.
        name: Box<str>,
    },
    /// An alias stands within the value of its own anchor.
    #[error("anchor '{name}' value contains itself")]
    RecursiveAnchor {
        /// The anchor.
        name: Box<str>,
    },
    /// The value of `<<` is something else than maps.
    #[error("map merge requires map or sequence of maps as the value")]
    Merge,
    /// A key that has no form as a JSON string.
    #[error("{kind} cannot be a map key")]
    Key {
        /// What it is.
        kind: &'static str,
    },
    /// A number that JSON has no form for.
    #[error("number {text} has no JSON form")]
    Number {
        /// The number as it is spelled.
        text: Box<str>,
    },
    /// A scalar that is not of the type its tag claims.
    #[error("cannot decode {kind} `{text}` as a {tag}")]
    Tag {
        /// What it is.
        kind: &'static str,
        /// The tag as it is spelled.
        text: Box<str>,
        /// The tag.
        tag: Box<str>,
    },
    /// The text under a `!!binary` tag is not base64.
    #[error("!!binary value contains invalid base64 data")]
    Base64,
    /// The stream has a second document.
    #[error("more than one document")]
    SecondDocument,
}

impl ReadError {
    pub(crate) fn new(at: Pos, kind: ReadErrorKind) -> Self {
        Self { at, document: 0, kind }
    }

    pub(crate) fn in_document(self, document: usize) -> Self {
        Self { document, ..self }
    }
}

/// The text of some bytes that start at `start`, or where the first byte that is not UTF-8 stands.
pub(crate) fn checked_text(bytes: &[u8], start: Pos) -> Result<&str, ReadError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line_start = valid.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let breaks = valid.iter().filter(|b| **b == b'\n').count();
        // Continuation bytes do not begin a character.
        let column = valid[line_start..].iter().filter(|b| **b & 0xc0 != 0x80).count();
        let first_column = if breaks == 0 { start.column } else { 1 };
        let at =
            Pos::new(start.line.saturating_add(clamp(breaks)), first_column.saturating_add(clamp(column)));
        ReadError::new(at, ReadErrorKind::Encoding)
    })
}

/// A line or column number; beyond four thousand million they all look alike.
pub(crate) fn clamp(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
