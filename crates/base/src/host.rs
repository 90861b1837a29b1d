//! Host names as the mesh knows them: exact (`reviews.default.svc.cluster.local`) or wildcarded (`*.example.com`, `*`).
//!
//! A wildcard is a leading `*` and stands for any text at all, so `*.com` covers `foo.com` and `a.b.com` but not `com`,
//! and `*oo.com` covers `foo.com`. Comparison is by bytes: case matters.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A host name, cheap to clone.
///
/// `Ord` is plain text order; for the order in which proxies want hosts, see [`by_specificity`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// A name of this text, taken as it is.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name starts with `*`.
    pub fn is_wildcard(&self) -> bool {
        is_wildcard(self)
    }

    /// Whether the two names overlap: see [`matches()`].
    pub fn matches(&self, other: &str) -> bool {
        matches(self, other)
    }

    /// Whether every host this name stands for is covered by `other`: see [`subset_of`].
    pub fn subset_of(&self, other: &str) -> bool {
        subset_of(self, other)
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// What a wildcard name requires of the end of a host; `None` for an exact name.
fn required_suffix(name: &str) -> Option<&str> {
    name.strip_prefix('*')
}

/// Whether a name starts with `*`.
pub fn is_wildcard(name: &str) -> bool {
    required_suffix(name).is_some()
}

/// Whether two names overlap, that is whether one of them covers the other. The order of arguments does not matter.
pub fn matches(a: &str, b: &str) -> bool {
    subset_of(a, b) || subset_of(b, a)
}

/// Whether `inner` is covered by `outer`: equal to it, or ending as the wildcard `outer` requires.
///
/// A wildcard is never covered by an exact name.
pub fn subset_of(inner: &str, outer: &str) -> bool {
    match (required_suffix(inner), required_suffix(outer)) {
        (None, None) => inner == outer,
        (Some(_), None) => false,
        (None, Some(suffix)) => inner.ends_with(suffix),
        (Some(inner_suffix), Some(suffix)) => inner_suffix.ends_with(suffix),
    }
}

/// The order in which hosts go into proxy configuration: exact names before wildcards, long before short, then by text.
///
/// Sorting by it puts every name before the wildcards that cover it.
pub fn by_specificity(a: &str, b: &str) -> Ordering {
    is_wildcard(a).cmp(&is_wildcard(b)).then_with(|| b.len().cmp(&a.len())).then_with(|| a.cmp(b))
}

/// Whether `a` belongs before `b` in [`by_specificity`] order. Two empty names count as such either way round.
pub fn more_specific(a: &str, b: &str) -> bool {
    // Parity: callers that pick the better of two candidates rely on "both empty" being a yes.
    (a.is_empty() && b.is_empty()) || by_specificity(a, b).is_lt()
}

/// The names that both lists cover, without repeats, in the order in which `a` and then `b` name them.
///
/// Of an overlapping pair the narrower name is kept: `*.net` and `*.bar.net` meet in `*.bar.net`.
pub fn intersection(a: &[Name], b: &[Name]) -> Vec<Name> {
    let mut common: Vec<Name> = Vec::new();
    for left in a {
        for right in b {
            let narrower = if left.subset_of(right) {
                left
            } else if right.subset_of(left) {
                right
            } else {
                continue;
            };
            if !common.contains(narrower) {
                common.push(narrower.clone());
            }
        }
    }
    common
}

/// The hosts of a list such as `ns1/foo.com`, `*/bar.com`, `baz.com` that apply to `namespace`, with the qualifier removed.
///
/// A host without qualifier, or qualified with `*`, applies to every namespace.
pub fn for_namespace<S: AsRef<str>>(hosts: &[S], namespace: &str) -> Vec<Name> {
    let applies = |host: &S| match host.as_ref().split_once('/') {
        Some((qualifier, _)) if qualifier != namespace && qualifier != "*" => None,
        Some((_, name)) => Some(name.into()),
        None => Some(host.as_ref().into()),
    };
    hosts.iter().filter_map(applies).collect()
}
