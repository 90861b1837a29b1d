//! Interests: the names that a client subscribes to within one type.

use crate::names::Names;

/// The name that stands for everything.
pub(crate) const EVERYTHING: &str = "*";

/// The names that a client subscribes to within one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// All resources of the type.
    Wildcard,
    /// The resources of these names.
    Names(Names),
    /// All resources of the type, and these names even if the wildcard does not include them.
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
