//! What a session sends: references into shared state, not yet bytes.

use std::sync::Arc;

use bytes::Bytes;
use canopus_base::hash::{ContentHash, Hasher};

use super::Protocol;
use crate::resource::{Difference, Form, Resource, ResourceSet};

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

    /// The version of the whole.
    pub(super) fn version(&self) -> ContentHash {
        let own = self.set.digest();
        self.parents.as_ref().map_or(own, |parents| joined(own, parents.digest()))
    }
}

fn joined(own: ContentHash, parent: ContentHash) -> ContentHash {
    Hasher::new().update(&own.as_u128().to_le_bytes()).update(&parent.as_u128().to_le_bytes()).finish()
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
    pub(super) nonce: String,
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

    /// The aliases that travel with a resource: a client that wants everything has no use for them.
    pub fn aliases<'a>(&self, resource: &'a Resource) -> &'a [Arc<str>] {
        if self.with_aliases { &resource.aliases } else { &[] }
    }

    /// Names the client is told do not exist, sorted.
    pub fn removed(&self) -> &[Arc<str>] {
        &self.removed
    }

    /// The control plane's name for itself, if it gives one with this type.
    pub fn identifier(&self) -> Option<&str> {
        self.identifier.as_deref()
    }

    /// Its resources in bytes, as `encode` makes them: a response that somebody else sends too has been encoded already.
    pub(crate) fn encoded(&self, encode: impl FnOnce() -> Arc<[Bytes]>) -> Arc<[Bytes]> {
        let difference = match &self.selection {
            Selection::All => None,
            Selection::Shared(difference) => Some(Arc::clone(difference)),
            Selection::Own(_) => return encode(),
        };
        let form = Form {
            type_url: Arc::clone(&self.type_url),
            delta: self.protocol == Protocol::Delta,
            difference,
            parents: self.state.parents.as_ref().map(ResourceSet::digest),
            with_aliases: self.with_aliases,
        };
        self.state.set.encoded(form, encode)
    }

    /// The size of all resources, without the message around them.
    pub fn body_bytes(&self) -> usize {
        self.resources().map(|resource| resource.body.len()).sum()
    }
}
