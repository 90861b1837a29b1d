//! What a session sends: references into shared state, not yet bytes.

use std::sync::Arc;

use canopus_base::hash::ContentHash;

use super::Protocol;
use crate::payload::Payload;
use crate::resource::{Difference, Resource, ResourceSet};

/// The state a client has or is to have: a set, and the set whose resources it completes.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) set: ResourceSet,
    pub(super) parents: Option<ResourceSet>,
}

impl State {
    /// The version of one resource as the client sees it. It covers the parent it completes, so that a client which got
    /// the parent but lost the stream before this resource came does not pass for one that has everything.
    pub(super) fn version_of(&self, resource: &Resource) -> ContentHash {
        let parent = self.parents.as_ref().and_then(|parents| parents.get(&resource.name));
        parent.map_or(resource.version, |parent| joined(resource.version, parent.version))
    }

    /// The versions of resources as the client sees them.
    pub(super) fn versions(&self) -> Versions<'_> {
        Versions { parents: self.parents.as_ref().map_or(&[], |parents| parents) }
    }

    /// The version of the whole.
    pub(super) fn version(&self) -> ContentHash {
        let own = self.set.digest();
        self.parents.as_ref().map_or(own, |parents| joined(own, parents.digest()))
    }
}

/// The versions of resources that are asked for in the order of their names, so that each parent is looked for after the last.
pub(crate) struct Versions<'a> {
    /// The parents that have not been passed yet.
    parents: &'a [Resource],
}

impl Versions<'_> {
    /// The version of the next resource as the client sees it.
    pub(crate) fn next(&mut self, resource: &Resource) -> ContentHash {
        let passed = gallop(self.parents, |parent| parent.name < resource.name);
        self.parents = &self.parents[passed..];
        let parent = self.parents.first().filter(|parent| parent.name == resource.name);
        parent.map_or(resource.version, |parent| joined(resource.version, parent.version))
    }
}

/// How many of the sorted items at the beginning are `before`. Few steps if it is few items, and never many.
fn gallop<T>(items: &[T], before: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut step) = (0, 1);
    while items.get(low + step - 1).is_some_and(&before) {
        low += step;
        step *= 2;
    }
    let high = (low + step - 1).min(items.len());
    low + items[low..high].partition_point(before)
}

fn joined(own: ContentHash, parent: ContentHash) -> ContentHash {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&own.as_u128().to_le_bytes());
    bytes[16..].copy_from_slice(&parent.as_u128().to_le_bytes());
    ContentHash::compute(&bytes)
}

/// Which resources of a set are sent.
#[derive(Clone, Debug)]
pub(super) enum Selection {
    All,
    /// A difference other sessions send too.
    Shared(Arc<Difference>),
    /// Positions in the set.
    Own(Vec<u32>),
}

/// A message to a client.
#[derive(Clone, Debug)]
pub struct Response {
    pub(super) protocol: Protocol,
    pub(super) type_url: Arc<str>,
    pub(super) nonce: Arc<str>,
    pub(super) state: State,
    pub(super) selection: Selection,
    pub(super) removed: Vec<Arc<str>>,
    pub(super) with_aliases: bool,
    pub(super) identifier: Option<String>,
}

impl Response {
    /// The variant of xDS it is for.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The type of all its resources.
    pub fn type_url(&self) -> &Arc<str> {
        &self.type_url
    }

    /// The nonce the client will answer with.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The version of the state the client has once it accepts this.
    pub fn version(&self) -> ContentHash {
        self.state.version()
    }

    /// How many resources it carries.
    pub fn len(&self) -> usize {
        match &self.selection {
            Selection::All => self.state.set.len(),
            Selection::Shared(difference) => difference.updated.len(),
            Selection::Own(positions) => positions.len(),
        }
    }

    /// Whether it carries no resource; it may still name removed ones.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resource at `index` of those it carries.
    pub fn resource(&self, index: usize) -> Option<&Resource> {
        let at = match &self.selection {
            Selection::All => index,
            Selection::Shared(difference) => *difference.updated.get(index)? as usize,
            Selection::Own(positions) => *positions.get(index)? as usize,
        };
        self.state.set.get_at(at)
    }

    /// The resources it carries, in the order of their names.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        (0..self.len()).filter_map(|index| self.resource(index))
    }

    /// The version of one of its resources as the client sees it.
    pub fn version_of(&self, resource: &Resource) -> ContentHash {
        self.state.version_of(resource)
    }

    /// The versions of its resources as the client sees them.
    pub(crate) fn versions(&self) -> Versions<'_> {
        self.state.versions()
    }

    /// Whether aliases travel with its resources: a client that wants everything has no use for them.
    pub fn has_aliases(&self) -> bool {
        self.with_aliases
    }

    /// Names the client is told do not exist, sorted.
    pub fn removed(&self) -> &[Arc<str>] {
        &self.removed
    }

    /// The control plane's name for itself, if it gives one with this type.
    pub fn identifier(&self) -> Option<&str> {
        self.identifier.as_deref()
    }

    /// The size of all resources, without the message around them.
    pub fn body_bytes(&self) -> usize {
        self.resources().map(|resource| Payload::new(resource).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn galloping_finds_what_a_binary_search_finds(mut items in prop::collection::vec(0_u8..50, 0..40), bound in 0_u8..60) {
            items.sort_unstable();
            prop_assert_eq!(gallop(&items, |item| *item < bound), items.partition_point(|item| *item < bound));
        }

        #[test]
        fn versions_in_a_row_are_those_of_each_resource(names in prop::collection::btree_set("[a-f]{1,3}", 0..30), parents in prop::collection::btree_set("[a-f]{1,3}", 0..30)) {
            let set: ResourceSet = names.iter().map(|name| Resource::new(name.as_str(), "1")).collect();
            let parents: ResourceSet = parents.iter().map(|name| Resource::new(name.as_str(), "2")).collect();
            let state = State { set: set.clone(), parents: Some(parents.clone()) };
            let mut versions = state.versions();
            for resource in set.iter() {
                prop_assert_eq!(versions.next(resource), state.version_of(resource));
            }
        }
    }
}
