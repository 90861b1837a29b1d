//! Visibility of objects: the entries of `exportTo`.

use std::collections::BTreeSet;
use std::fmt;

/// One entry of `exportTo`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Visibility {
    /// `*`: every namespace.
    Public,
    /// `.`: the namespace the object is in.
    Private,
    /// `~`: nobody.
    None,
    /// One namespace.
    Namespace(Box<str>),
}

impl Visibility {
    /// Reads one entry.
    pub fn parse(entry: &str) -> Self {
        match entry {
            "*" => Self::Public,
            "." => Self::Private,
            "~" => Self::None,
            namespace => Self::Namespace(namespace.into()),
        }
    }

    /// Reads the annotation that gives a Kubernetes Service an `exportTo`: entries with commas between them.
    ///
    /// The empty set means that the mesh's default applies.
    pub fn parse_annotation(value: &str) -> BTreeSet<Self> {
        if value.is_empty() {
            return BTreeSet::new();
        }
        value.split(',').map(|entry| Self::parse(entry.trim())).collect()
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "*",
            Self::Private => ".",
            Self::None => "~",
            Self::Namespace(namespace) => namespace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_lists_entries_with_blanks_around_them() {
        let shown = |value: &str| {
            let set = Visibility::parse_annotation(value);
            set.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown("b , a"), ["a", "b"]);
        assert_eq!(shown("*,.,~"), ["*", ".", "~"]);
        assert_eq!(shown(""), [""; 0]);
    }

    #[test]
    fn entry_survives_text_and_back() {
        for entry in ["*", ".", "~", "shop"] {
            assert_eq!(Visibility::parse(entry).to_string(), entry);
        }
        assert_eq!(Visibility::parse("."), Visibility::Private);
    }
}
