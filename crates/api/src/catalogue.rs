//! What is known about a label or annotation: one entry of the catalogues in [`labels`](crate::labels) and
//! [`annotations`](crate::annotations).

use std::fmt;
use std::ops::Deref;

/// How much a label or annotation can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// Between parts of the mesh; nobody promises anything.
    Internal,
    /// The key may change.
    Alpha,
    /// The key will hardly change.
    Beta,
    /// The key stays.
    Stable,
}

impl Stability {
    /// The word for documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Alpha => "alpha",
            Self::Beta => "beta",
            Self::Stable => "stable",
        }
    }
}

/// A label or annotation that has a meaning. It can be used as the text of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name: `istio.io/rev`.
    pub name: &'static str,
    /// How much it can be relied on.
    pub stability: Stability,
    /// The kinds it means something on; `Any` for all.
    pub kinds: &'static [&'static str],
    /// What it does.
    pub about: &'static str,
    /// Whether something else should be used.
    pub deprecated: bool,
    /// Whether users should not meet it in documentation.
    pub hidden: bool,
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Declares keys as constants, and the list of all of them.
macro_rules! keys {
    ($($(#[doc = $about:literal])+ $constant:ident = $name:literal, $stability:ident on [$($kind:literal),+] $($flag:ident)*;)+) => {
        $(
            $(#[doc = $about])+
            pub const $constant: $crate::catalogue::Key = {
                #[allow(unused_mut, reason = "most keys have no flags")]
                let mut key = $crate::catalogue::Key {
                    name: $name,
                    stability: $crate::catalogue::Stability::$stability,
                    kinds: &[$($kind),+],
                    about: concat!($($about),+).trim_ascii(),
                    deprecated: false,
                    hidden: false,
                };
                $(key.$flag = true;)*
                key
            };
        )+

        /// All of them, in the order of this file.
        pub const ALL: &[$crate::catalogue::Key] = &[$($constant),+];

        /// The one of this name.
        pub fn find(name: &str) -> Option<&'static $crate::catalogue::Key> {
            ALL.iter().find(|key| key.name == name)
        }
    };
}

pub(crate) use keys;
