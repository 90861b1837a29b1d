//! Reading user input: options, problems, and how the parts of an object are read.

mod error;
mod lenient;
pub(crate) mod part;
pub(crate) mod path;

use canopus_proto::json;

pub use error::{DecodeError, Identity, Reason};
pub use part::{Part, PartPosition};
pub(crate) use part::{complete, proto, slim};

use canopus_base::tree::Pos;
use std::borrow::Cow;
use std::fmt;

/// What to do with a field or enum value that no schema has.
pub use canopus_proto::json::Unknown;

/// How strictly to read, and what to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether an unknown field is a problem or only reported.
    pub unknown: Unknown,
    /// Drop metadata that nothing reads and that weighs a lot: the copy `kubectl apply` keeps of the whole object.
    pub slim: bool,
}

impl Options {
    /// For objects that are already stored: unknown fields are reported, dead weight is dropped.
    pub const fn watch() -> Self {
        Self { unknown: Unknown::Report, slim: true }
    }

    /// For objects a user is about to store: unknown fields are refused, everything is kept.
    pub const fn strict() -> Self {
        Self { unknown: Unknown::Reject, slim: false }
    }

    /// For objects read to be looked at: unknown fields are reported, everything is kept.
    pub const fn lenient() -> Self {
        Self { unknown: Unknown::Report, slim: false }
    }
}

/// One thing wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `spec.http[0].route[1].weight`. Empty for the object itself.
    pub path: String,
    /// Where the offending value (for an unknown field: its name) stands, if the object came from a text.
    pub at: Pos,
    /// What is wrong.
    pub message: String,
    /// What to do about it, where that can be said.
    pub remedy: Option<Cow<'static, str>>,
}

impl Problem {
    /// A problem with nothing but a path, a place and words.
    pub fn new(path: impl Into<String>, at: Pos, message: impl Into<String>) -> Self {
        Self { path: path.into(), at, message: message.into(), remedy: None }
    }

    /// The same problem with advice.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same problem seen from further out: `field` is put before the path.
    #[must_use]
    pub(crate) fn under(mut self, field: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => field.to_owned(),
            rest if rest.starts_with('[') => format!("{field}{rest}"),
            rest => format!("{field}.{rest}"),
        };
        self
    }
}

impl From<json::Problem> for Problem {
    fn from(problem: json::Problem) -> Self {
        Self::new(problem.path, problem.at, problem.message)
    }
}

impl From<canopus_base::tree::DecodeError> for Problem {
    fn from(error: canopus_base::tree::DecodeError) -> Self {
        Self::new(error.path, error.at, error.message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if self.at.is_known() {
            write!(f, " ({})", self.at)?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

/// A value read from a document, and the problems of what was left out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    /// What was read.
    pub value: T,
    /// What was left out: unknown fields and values, and a status that could not be read.
    pub ignored: Vec<Problem>,
}

impl<T> Decoded<T> {
    /// A value of which nothing was left out.
    pub const fn whole(value: T) -> Self {
        Self { value, ignored: Vec::new() }
    }

    /// The same with another value.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Decoded<U> {
        Decoded { value: convert(self.value), ignored: self.ignored }
    }
}
