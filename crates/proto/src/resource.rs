//! A resource as it travels: encoded once, compared by hash, sent many times.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use canopus_base::hash::ContentHash;
use prost::Message;

/// One named, encoded message. Clones share everything; two are equal if name, aliases and hash are.
#[derive(Clone, Eq)]
pub struct Resource {
    /// The name clients know it by.
    pub name: Arc<str>,
    /// The hash of `body`: the resource's version.
    pub version: ContentHash,
    /// The encoded message, without the `Any` around it.
    pub body: Bytes,
    /// Other names that clients may ask for the resource by.
    pub aliases: Arc<[Arc<str>]>,
}

impl Resource {
    /// A resource whose version is the hash of its bytes.
    pub fn new(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self { name: name.into(), version: ContentHash::compute(&body), body, aliases: Arc::default() }
    }

    /// Encodes `message` under `name`.
    pub fn encode(name: impl Into<Arc<str>>, message: &impl Message) -> Self {
        Self::new(name, message.encode_to_vec())
    }

    /// The same resource, known by more names.
    #[must_use]
    pub fn with_aliases<N: Into<Arc<str>>>(mut self, aliases: impl IntoIterator<Item = N>) -> Self {
        self.aliases = aliases.into_iter().map(Into::into).collect();
        self
    }

    /// Whether a client that asks for `name` gets this resource.
    pub fn answers(&self, name: &str) -> bool {
        *self.name == *name || self.aliases.iter().any(|alias| **alias == *name)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.name == other.name && self.aliases == other.aliases
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.name, self.version, self.body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::config::core::v3::Node;

    #[test]
    fn resources_differ_when_a_byte_differs() {
        let node = |id: &str| Resource::encode("n", &Node { id: id.into(), ..Default::default() });
        assert_eq!(node("a"), node("a"));
        assert_ne!(node("a"), node("b"));
        assert_ne!(node("a").version, node("b").version);
    }

    #[test]
    fn resource_answers_to_its_name_and_aliases() {
        let resource = Resource::new("uid", "x").with_aliases(["net/10.0.0.1"]);
        assert!(resource.answers("uid") && resource.answers("net/10.0.0.1") && !resource.answers("other"));
    }
}
