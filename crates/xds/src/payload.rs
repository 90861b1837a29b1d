//! The bytes of a resource, as the writer of responses sees them.
//!
//! Everything in this crate that copies, measures or sends the body of a resource goes through [`Payload`]. How a resource
//! holds its bytes can then change without a change to the writer.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::resource::Resource;

/// The encoded message of a resource.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a>(&'a Resource);

impl<'a> Payload<'a> {
    pub(crate) fn new(resource: &'a Resource) -> Self {
        Self(resource)
    }

    pub(crate) fn len(self) -> usize {
        self.0.body.len()
    }

    pub(crate) fn copy_to(self, out: &mut BytesMut) {
        out.put_slice(&self.0.body);
    }

    /// The buffer at `index`, which is shared and not copied.
    pub(crate) fn buffer(self, index: usize) -> Option<Bytes> {
        (index == 0).then(|| self.0.body.clone())
    }

    /// Whether both have the same bytes. That is quick to tell where they are one allocation.
    pub(crate) fn is_same(self, other: Payload<'_>) -> bool {
        let (own, other) = (&self.0.body, &other.0.body);
        (own.as_ptr() == other.as_ptr() && own.len() == other.len()) || own == other
    }
}
