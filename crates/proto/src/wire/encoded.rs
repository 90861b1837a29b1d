//! Finished parts of messages.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytes::Bytes;
use prost::Message;

/// Encoded fields of a message `M`: what can be appended to any `M`.
pub trait EncodedFields<M> {
    /// The fields, one after the other.
    fn as_slice(&self) -> &[u8];
}

/// Encoded fields of a message `M`, or all of one. Clones share the bytes.
pub struct Encoded<M> {
    bytes: Bytes,
    message: PhantomData<fn() -> M>,
}

impl<M> Encoded<M> {
    /// Takes bytes for fields of an `M`, on the caller's word.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), message: PhantomData }
    }

    /// The bytes.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<M: Message> Encoded<M> {
    /// The fields that a message has.
    pub fn new(message: &M) -> Self {
        Self::from_bytes(message.encode_to_vec())
    }
}

impl<M> EncodedFields<M> for Encoded<M> {
    fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

impl<M> Default for Encoded<M> {
    fn default() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl<M> Clone for Encoded<M> {
    fn clone(&self) -> Self {
        Self::from_bytes(self.bytes.clone())
    }
}

impl<M> PartialEq for Encoded<M> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<M> Eq for Encoded<M> {}

impl<M> Hash for Encoded<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl<M> fmt::Debug for Encoded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}
