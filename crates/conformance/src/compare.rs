//! Comparing what was expected with what was made, always as parsed values, with every difference at its field.

pub mod proto;
pub mod text;
pub mod tree;

use std::fmt;

/// One place where expectation and outcome part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// A JSON pointer, or a line of a text; empty for the whole.
    pub path: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub got: String,
}

/// How a missing value is shown.
pub const ABSENT: &str = "(absent)";

impl Difference {
    /// A difference at `path`.
    pub fn new(path: impl Into<String>, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self { path: path.into(), expected: expected.to_string(), got: got.to_string() }
    }
}
