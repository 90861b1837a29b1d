//! A resource as it travels: encoded once, compared by hash, sent many times.

use std::sync::Arc;

use bytes::Bytes;
use canopus_base::hash::ContentHash;
use prost::{Message, Name};

use crate::Any;

/// One named, encoded message. Equality is equality of name, type and bytes, judged by the hash.
#[derive(Clone, Debug, Eq)]
pub struct Resource {
    /// The name proxies ask for it by.
    pub name: Arc<str>,
    /// The full name of the message type.
    pub type_name: Arc<str>,
    /// The hash of the encoded bytes: the resource's version.
    pub version: ContentHash,
    /// The encoded message.
    pub body: Bytes,
}

impl Resource {
    /// Encodes `message` under `name`.
    pub fn encode<M: Message + Name>(name: &str, message: &M) -> Self {
        let body = Bytes::from(message.encode_to_vec());
        let version = ContentHash::of(&body);
        Self { name: name.into(), type_name: M::full_name().into(), version, body }
    }

    /// The resource as the body of a response. The bytes are shared, not copied.
    pub fn to_any(&self) -> Any {
        Any { type_url: format!("type.googleapis.com/{}", self.type_name), value: self.body.clone() }
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.name == other.name && self.type_name == other.type_name
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
}
