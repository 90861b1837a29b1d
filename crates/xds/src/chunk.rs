//! Encoded runs of resources, shared by all streams that send them at the same time.
//!
//! When a thousand proxies connect, each is sent a thousand clusters of which nearly all are the same. The sets as a whole
//! differ, so sharing whole responses would share nothing. A response is therefore cut into chunks of neighbouring
//! resources. A chunk ends where the version of a resource says so, not after a fixed number of resources: sets that differ in
//! one resource have different chunks around it and equal ones before and after.
//!
//! A chunk is found by a hash and compared in full before it is used, since a hash can be forged and must not decide whose
//! bytes a proxy gets. The pool keeps chunks while any response is being written, up to [`MAX_BYTES`], and is empty otherwise.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use parking_lot::Mutex;

use crate::payload::Payload;
use crate::resource::Resource;

/// Chunks that are kept, in bytes. A chunk beyond that is encoded by each stream that sends it.
const MAX_BYTES: usize = 32 << 20;

/// What is the same for all resources of a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkFormat {
    pub(crate) type_url: Arc<str>,
    pub(crate) delta: bool,
    pub(crate) with_aliases: bool,
}

/// A resource of a chunk, with the version that clients see.
#[derive(Clone)]
pub(crate) struct ChunkMember {
    pub(crate) resource: Resource,
    pub(crate) version: ContentHash,
}

impl ChunkMember {
    fn is_same(&self, other: &Self) -> bool {
        self.version == other.version
            && self.resource == other.resource
            && Payload::new(&self.resource).is_same(Payload::new(&other.resource))
    }
}

/// The chunks of all responses that are being written.
#[derive(Default)]
pub(crate) struct ChunkPool(Mutex<Chunks>);

#[derive(Default)]
struct Chunks {
    by_hash: FastMap<u64, Chunk>,
    bytes: usize,
    responses: usize,
}

struct Chunk {
    format: ChunkFormat,
    members: Box<[ChunkMember]>,
    encoded: Bytes,
}

/// A response that is being written: while there is one, the pool keeps chunks.
pub(crate) struct ChunkUse(Arc<ChunkPool>);

impl ChunkPool {
    pub(crate) fn begin(self: &Arc<Self>) -> ChunkUse {
        self.0.lock().responses += 1;
        ChunkUse(Arc::clone(self))
    }
}

impl ChunkUse {
    /// The encoded chunk of these resources, as `encode` writes it unless the pool has it.
    pub(crate) fn share(
        &self,
        format: &ChunkFormat,
        members: &[ChunkMember],
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let hash = hash(format, members);
        if let Some(encoded) = self.0.0.lock().find(hash, format, members) {
            return encoded;
        }
        let encoded = encode();
        self.0
            .0
            .lock()
            .keep(hash, Chunk { format: format.clone(), members: members.into(), encoded: encoded.clone() });
        encoded
    }
}

impl Drop for ChunkUse {
    fn drop(&mut self) {
        let mut chunks = self.0.0.lock();
        chunks.responses -= 1;
        if chunks.responses == 0 {
            let idle = std::mem::take(&mut *chunks);
            drop(chunks);
            drop(idle);
        }
    }
}

impl Chunks {
    fn find(&self, hash: u64, format: &ChunkFormat, members: &[ChunkMember]) -> Option<Bytes> {
        let chunk = self.by_hash.get(&hash)?;
        let is_same = chunk.format == *format
            && chunk.members.len() == members.len()
            && chunk.members.iter().zip(members).all(|(held, wanted)| held.is_same(wanted));
        is_same.then(|| chunk.encoded.clone())
    }

    fn keep(&mut self, hash: u64, chunk: Chunk) {
        if self.bytes + chunk.encoded.len() > MAX_BYTES {
            return;
        }
        self.bytes += chunk.encoded.len();
        if let Some(replaced) = self.by_hash.insert(hash, chunk) {
            self.bytes -= replaced.encoded.len();
        }
    }
}

fn hash(format: &ChunkFormat, members: &[ChunkMember]) -> u64 {
    let mut hasher = rustc_hash::FxBuildHasher.build_hasher();
    format.hash(&mut hasher);
    for member in members {
        hasher.write_u128(member.version.as_u128());
        hasher.write_usize(member.resource.name.len());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format() -> ChunkFormat {
        ChunkFormat { type_url: "t".into(), delta: true, with_aliases: false }
    }

    fn member(name: &str, body: &'static str) -> ChunkMember {
        let resource = Resource::new(name, body);
        ChunkMember { version: resource.version, resource }
    }

    #[test]
    fn chunk_is_encoded_once_while_a_response_is_written() {
        let pool = Arc::new(ChunkPool::default());
        let (first, second) = (pool.begin(), pool.begin());
        let members = [member("a", "1"), member("b", "2")];
        let encoded = first.share(&format(), &members, || Bytes::from_static(b"one"));
        drop(first);
        assert_eq!(second.share(&format(), &members, || unreachable!("it is there")), encoded);
        drop(second);
        assert!(pool.0.lock().by_hash.is_empty(), "nobody sends anything");
    }

    #[test]
    fn chunk_of_an_equal_hash_and_other_bytes_is_not_taken() {
        let pool = Arc::new(ChunkPool::default());
        let sending = pool.begin();
        let one = member("a", "1");
        let forged =
            ChunkMember { resource: Resource { body: "2".into(), ..one.resource.clone() }, ..one.clone() };
        assert_eq!(
            hash(&format(), std::slice::from_ref(&one)),
            hash(&format(), std::slice::from_ref(&forged))
        );
        sending.share(&format(), &[one], || Bytes::from_static(b"one"));
        assert_eq!(sending.share(&format(), &[forged], || Bytes::from_static(b"other")), "other");
    }

    #[test]
    fn pool_keeps_no_more_than_its_bound() {
        let pool = Arc::new(ChunkPool::default());
        let sending = pool.begin();
        for number in 0..40_u32 {
            let members = [member(&number.to_string(), "1")];
            sending.share(&ChunkFormat { type_url: number.to_string().into(), ..format() }, &members, || {
                vec![0; 1 << 20].into()
            });
        }
        assert!(pool.0.lock().bytes <= MAX_BYTES);
    }
}
