//! What is wrong with an object, in the words of the API server.

use std::fmt;

use canopus_base::tree::{Node, Number, Pos, Value};

use crate::text::{number, quoted};

/// One thing wrong with a field. Printed as the API server prints it: `spec.ports[0].number: Required value`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What sort of fault it is.
    pub kind: ErrorKind,
    /// The field, such as `spec.ports[0].number`. Empty for the object itself.
    pub path: String,
    /// Where the field, or what is around it, stands in the document.
    pub at: Pos,
    /// The value as it is shown, if it is.
    pub value: Option<Box<str>>,
    /// What is expected instead.
    pub detail: String,
}

/// The sorts of fault the API server tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A field that has to be there is not.
    Required,
    /// A value that must be unique occurs twice.
    Duplicate,
    /// The value breaks a rule.
    Invalid,
    /// The value is of another type.
    Type,
    /// The value is none of those there are.
    Unsupported,
    /// The field may not be set here.
    Forbidden,
    /// A text is too long.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
}

impl ErrorKind {
    /// Whether rules are not tried on an object with such a fault, because they could not be relied on.
    pub(super) const fn hides_rules(self) -> bool {
        matches!(self, Self::Required | Self::Type | Self::Unsupported | Self::TooLong | Self::TooMany)
    }

    /// What an error of this sort begins with: `Required value`.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::Type => "Invalid value",
            Self::Unsupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(self.kind.words())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldError {}

/// A value as error messages show it.
pub(super) fn shown(node: &Node) -> Box<str> {
    match &node.value {
        Value::String(text) => quoted(text),
        Value::Number(Number::Float(float)) => number(*float),
        _ => node.to_json().to_string(),
    }
    .into()
}
