//! Why an expression has no value.

use std::fmt;

/// Why an expression has no value; printed in the words of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::crd) enum EvalError {
    /// An operator or function does not take values of these types.
    NoSuchOverload,
    /// The evaluation costs more than it may.
    TooCostly,
    /// Any other error.
    Other(Box<str>),
}

pub(super) type Result<T> = std::result::Result<T, EvalError>;

impl EvalError {
    pub(super) fn new(message: impl Into<Box<str>>) -> Self {
        Self::Other(message.into())
    }

    pub(super) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    pub(super) fn conversion(from: &str, to: &str) -> Self {
        Self::new(format!("type conversion error from '{from}' to '{to}'"))
    }

    pub(super) fn out_of_range(what: &str) -> Self {
        Self::new(format!("{what} overflow"))
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchOverload => "no such overload",
            Self::TooCostly => "operation cancelled: actual cost limit exceeded",
            Self::Other(message) => message,
        })
    }
}
