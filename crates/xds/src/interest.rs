//! What a client wants to know of one type.

use crate::names::Names;

/// The name that stands for everything.
pub(crate) const EVERYTHING: &str = "*";

/// What a client wants to know of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Everything there is.
    Wildcard,
    /// These names and nothing else.
    Names(Names),
    /// Everything there is, and these names even if they are not part of it.
    WildcardAnd(Names),
}

impl Interest {
    pub(crate) fn new(wildcard: bool, names: Names) -> Self {
        match (wildcard, names.is_empty()) {
            (false, _) => Self::Names(names),
            (true, true) => Self::Wildcard,
            (true, false) => Self::WildcardAnd(names),
        }
    }

    /// Whether everything is wanted.
    pub fn is_wildcard(&self) -> bool {
        !matches!(self, Self::Names(_))
    }

    /// The names asked for one by one.
    pub fn names(&self) -> Option<&Names> {
        match self {
            Self::Wildcard => None,
            Self::Names(names) | Self::WildcardAnd(names) => Some(names),
        }
    }

    /// Whether nothing is wanted.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Names(names) if names.is_empty())
    }

    /// Whether the client would take a resource of this name.
    pub fn covers(&self, name: &str) -> bool {
        self.is_wildcard() || self.names().is_some_and(|names| names.contains(name))
    }
}
