//! What a proxy says when it rejects a message, and which resources that is about.

use std::sync::{Arc, OnceLock};

use canopus_base::hash::ContentHash;
use canopus_xds::{ResourceSet, rejection};

use crate::push::{ConnectionId, Stamp};

/// Resources of a rejected message that are kept.
const KEPT_RESOURCES: usize = 256;

/// A message a proxy rejected.
#[derive(Clone, Debug)]
pub struct Nack {
    /// The connection.
    pub connection: ConnectionId,
    /// The proxy.
    pub proxy: String,
    /// The identity it has proved, if it has.
    pub identity: Option<Arc<str>>,
    /// The type of the message.
    pub type_url: Arc<str>,
    /// The nonce of the message.
    pub nonce: Arc<str>,
    /// The gRPC code of the rejection.
    pub code: i32,
    /// The proxy's words.
    pub message: Arc<str>,
    /// When it came.
    pub time: Stamp,
    /// The revision of the world the message showed.
    pub revision: u64,
    /// The revision of what the proxy last accepted of the type; `None` if it has accepted nothing yet.
    pub accepted: Option<u64>,
    /// The resources the proxy names, or else all that differ from what it has; the first of them, if there are many.
    pub resources: Vec<Contested>,
    pub(super) outcome: OnceLock<Arc<str>>,
}

/// A resource a proxy does not take, as far as can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contested {
    /// Name of the rejected resource.
    pub name: Arc<str>,
    /// The version that was rejected.
    pub rejected: ContentHash,
    /// The version the proxy has; `None` if it has none.
    pub accepted: Option<ContentHash>,
}

impl Nack {
    /// What was made of it, once somebody has looked into it.
    pub fn outcome(&self) -> Option<&str> {
        self.outcome.get().map(|text| &**text)
    }

    /// Writes down what was made of it; the first outcome stays.
    pub(super) fn conclude(&self, outcome: impl Into<Arc<str>>) {
        let _ = self.outcome.set(outcome.into());
    }

    /// The field the proxy complains about, if it names one.
    pub fn field(&self) -> Option<String> {
        rejection::failed_field(&self.message)
    }
}

/// The resources a rejection is about.
pub(super) fn contested(message: &str, accepted: &ResourceSet, rejected: &ResourceSet) -> Vec<Contested> {
    let changed = rejected.iter().filter_map(|resource| {
        let before = accepted.get(&resource.name).map(|held| held.version);
        let one =
            Contested { name: Arc::clone(&resource.name), rejected: resource.version, accepted: before };
        (before != Some(resource.version)).then_some(one)
    });
    let (mut named, mut others): (Vec<Contested>, Vec<Contested>) = (Vec::new(), Vec::new());
    for one in changed {
        let kept = if rejection::mentions(message, &one.name) { &mut named } else { &mut others };
        if kept.len() < KEPT_RESOURCES {
            kept.push(one);
        }
    }
    if named.is_empty() { others } else { named }
}

#[cfg(test)]
mod tests {
    use canopus_xds::{Resource, ResourceSet};

    use super::*;

    fn set(items: &[(&str, &'static str)]) -> ResourceSet {
        items.iter().map(|(name, body)| Resource::new(*name, *body)).collect()
    }

    fn names_of(message: &str) -> Vec<String> {
        let accepted = set(&[("a", "1"), ("b", "1"), ("same", "1")]);
        let rejected = set(&[("a", "2"), ("b", "2"), ("ab", "1"), ("same", "1")]);
        contested(message, &accepted, &rejected).iter().map(|one| one.name.to_string()).collect()
    }

    #[test]
    fn all_that_changed_is_contested_when_nothing_is_named() {
        assert_eq!(names_of("no"), ["a", "ab", "b"]);
        assert_eq!(names_of("same is fine"), ["a", "ab", "b"]);
    }

    #[test]
    fn what_is_named_as_a_word_is_contested_alone() {
        assert_eq!(names_of("Error adding/updating cluster(s) ab: bad, b: worse"), ["ab", "b"]);
        assert_eq!(names_of("duplicate 'a'"), ["a"]);
    }

    #[test]
    fn version_before_is_known_where_there_was_one() {
        let contested = contested("", &set(&[("a", "1")]), &set(&[("a", "2"), ("n", "1")]));
        assert_eq!(contested[0].accepted, Some(ContentHash::compute(b"1")));
        assert_eq!((contested[1].accepted, contested[1].rejected), (None, ContentHash::compute(b"1")));
    }
}
