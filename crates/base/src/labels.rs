//! Labels: small maps from string to string, what they must look like, and how they are selected.

pub mod canonical;
pub mod selector;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

pub use selector::Selector;

/// The longest DNS label and label name.
const LABEL_MAX: usize = 63;
/// The longest DNS name, here the prefix of a label key.
const DNS_NAME_MAX: usize = 253;

/// A label set, kept sorted by key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Labels {
    entries: Vec<(Box<str>, Box<str>)>,
}

impl Labels {
    /// The empty set.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// How many labels there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key).ok().map(|at| &*self.entries[at].1)
    }

    /// Whether `key` is present, be its value empty.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// The labels in order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Sets `key`, replacing the value it had.
    pub fn insert(&mut self, key: impl Into<Box<str>>, value: impl Into<Box<str>>) {
        let key = key.into();
        match self.position(&key) {
            Ok(at) => self.entries[at].1 = value.into(),
            Err(at) => self.entries.insert(at, (key, value.into())),
        }
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Box<str>> {
        self.position(key).ok().map(|at| self.entries.remove(at).1)
    }

    /// Whether every label here is in `other` with the same value. The empty set is a subset of every set.
    pub fn subset_of(&self, other: &Self) -> bool {
        let mut rest = other.entries.iter();
        self.len() <= other.len() && self.entries.iter().all(|label| rest.any(|candidate| candidate == label))
    }

    /// Whether this set, used as a selector, selects `other`: as [`subset_of`](Self::subset_of), but the empty set selects
    /// nothing.
    pub fn selects(&self, other: &Self) -> bool {
        !self.is_empty() && self.subset_of(other)
    }

    /// Reports all invalid keys and values.
    pub fn validate(&self) -> Vec<InvalidLabel> {
        let keys = self.entries.iter().filter_map(|(key, _)| validate_key(key).err());
        let values = self
            .entries
            .iter()
            .filter(|(_, value)| !is_qualified_name_or_empty(value))
            .map(|(_, value)| InvalidLabel::Value { value: value.clone() });
        keys.chain(values).collect()
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(present, _)| (**present).cmp(key))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    /// Collects labels; of equal keys the last one wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut entries: Vec<(Box<str>, Box<str>)> =
            labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            same
        });
        Self { entries }
    }
}

impl fmt::Display for Labels {
    /// `app=a,prod` in key order; a label with an empty value is its key alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let equals = if value.is_empty() { "" } else { "=" };
            write!(f, "{comma}{key}{equals}{value}")?;
        }
        Ok(())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;

        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Labels, A::Error> {
                let mut entries = Vec::with_capacity(access.size_hint().unwrap_or(0).min(64));
                while let Some(label) = access.next_entry::<Box<str>, Box<str>>()? {
                    entries.push(label);
                }
                Ok(entries.into_iter().collect())
            }
        }

        deserializer.deserialize_map(LabelsVisitor)
    }
}

/// Why a label is not well formed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidLabel {
    /// The key does not have the form `[dns-name/]name`.
    #[error("invalid tag key: {key:?}")]
    Key {
        /// The key.
        key: Box<str>,
    },
    /// The part before the slash is longer than 253 bytes.
    #[error("invalid tag key: {key:?} (DNS prefix is too long)")]
    LongPrefix {
        /// The key.
        key: Box<str>,
    },
    /// The part after the slash is longer than 63 bytes.
    #[error("invalid tag key: {key:?} (name is too long)")]
    LongName {
        /// The key.
        key: Box<str>,
    },
    /// The value is neither empty nor a name.
    #[error("invalid tag value: {value:?}")]
    Value {
        /// The value.
        value: Box<str>,
    },
}

/// Checks a label key: a name of letters, digits, `-`, `_` and `.`, optionally after a DNS name and a slash.
pub fn validate_key(key: &str) -> Result<(), InvalidLabel> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if !is_qualified_name(name) || !prefix.is_none_or(is_dns_name) {
        return Err(InvalidLabel::Key { key: key.into() });
    }
    if prefix.is_some_and(|prefix| prefix.len() > DNS_NAME_MAX) {
        return Err(InvalidLabel::LongPrefix { key: key.into() });
    }
    if name.len() > LABEL_MAX {
        return Err(InvalidLabel::LongName { key: key.into() });
    }
    Ok(())
}

/// Whether `text` may be a label value: empty, or a name of letters, digits, `-`, `_` and `.` that starts and ends with a
/// letter or digit. Parity: its length is not looked at here; the API server does that.
pub fn is_qualified_name_or_empty(text: &str) -> bool {
    text.is_empty() || is_qualified_name(text)
}

fn is_qualified_name(text: &str) -> bool {
    bounded_by_alphanumeric(text) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_dns_name(text: &str) -> bool {
    text.split('.').all(is_label_text)
}

fn is_label_text(text: &str) -> bool {
    bounded_by_alphanumeric(text) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn bounded_by_alphanumeric(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether `text` is a DNS label (RFC 1123) in either letter case: at most 63 letters, digits and inner hyphens.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_MAX && is_label_text(text)
}

/// Whether `text` is a DNS label, `*`, or a DNS label behind `*` or `*-`.
pub fn is_wildcard_dns_label(text: &str) -> bool {
    let label_behind = |prefix| text.strip_prefix(prefix).is_some_and(is_label_text);
    text.len() <= LABEL_MAX && (text == "*" || is_label_text(text) || label_behind("*") || label_behind("*-"))
}
