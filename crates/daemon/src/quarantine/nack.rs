//! What a proxy says when it rejects a message, and which resources that is about.

use std::sync::Arc;

use canopus_base::hash::ContentHash;
use canopus_xds::ResourceSet;

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
}

/// A resource a proxy does not take, as far as can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contested {
    /// Its name.
    pub name: Arc<str>,
    /// The version that was rejected.
    pub rejected: ContentHash,
    /// The version the proxy has; `None` if it has none.
    pub accepted: Option<ContentHash>,
}

impl Nack {
    /// The field the proxy complains about, if it names one.
    pub fn field(&self) -> Option<String> {
        field(&self.message)
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
    let mut all: Vec<Contested> = changed.collect();
    if all.iter().any(|one| names(message, &one.name)) {
        all.retain(|one| names(message, &one.name));
    }
    all.truncate(KEPT_RESOURCES);
    all
}

/// Whether a message mentions a name, as a word of its own: names are often parts of other names.
fn names(message: &str, name: &str) -> bool {
    let opens = |before: &str| before.chars().next_back().is_none_or(|c| " ,;:'\"([".contains(c));
    let closes = |after: &str| after.chars().next().is_none_or(|c| " ,;:'\")]".contains(c));
    let mut found = message.match_indices(name);
    !name.is_empty() && found.any(|(at, _)| opens(&message[..at]) && closes(&message[at + name.len()..]))
}

/// The path through the failed checks of a message, such as `Cluster.ConnectTimeout`: Envoy names the check of each message on
/// the way to the field, from the outside in.
fn field(message: &str) -> Option<String> {
    const CHECK: &str = "ValidationError.";
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let steps: Vec<String> = message
        .match_indices(CHECK)
        .map(|(at, _)| {
            let before = &message[..at];
            let kind = before.rfind(|c| !is_word(c)).map_or(before, |start| &before[start + 1..]);
            let after = &message[at + CHECK.len()..];
            let end = after.find(|c: char| !is_word(c) && c != '[' && c != ']').unwrap_or(after.len());
            format!("{kind}.{}", &after[..end])
        })
        .collect();
    (!steps.is_empty()).then(|| steps.join(" > "))
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
        assert_eq!(contested[0].accepted, Some(ContentHash::of(b"1")));
        assert_eq!((contested[1].accepted, contested[1].rejected), (None, ContentHash::of(b"1")));
    }

    #[test]
    fn field_is_found_in_the_words_of_failed_checks() {
        let message = "Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s): name: \"x\"";
        assert_eq!(field(message).as_deref(), Some("Cluster.ConnectTimeout"));
        let nested = "(RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by VirtualHostValidationError.Domains: empty)";
        assert_eq!(
            field(nested).as_deref(),
            Some("RouteConfiguration.VirtualHosts[0] > VirtualHost.Domains")
        );
        assert_eq!(field("Unknown cluster"), None);
    }
}
