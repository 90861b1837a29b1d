//! Responses as bytes, written piece by piece as the transport takes them.
//!
//! A gRPC message begins with its length, so a response is measured first and written later: nothing is held of the part that
//! the client has no room for yet. A response that fits into one HTTP/2 frame is written into a buffer of its own. A larger one
//! is mostly resources that other streams send too: it consists of chunks that streams share ([`crate::chunk`]) and of the
//! bodies of large resources, which are not copied at all. What a stream has of its own is the head, with the version and the
//! nonce.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use canopus_base::hash::ContentHash;
use canopus_proto::fields::{any, control_plane, delta_discovery_response, discovery_response, resource};
use canopus_proto::wire::Tag;

use crate::chunk::{ChunkFormat, ChunkMember, ChunkPool, ChunkUse};
use crate::payload::Payload;
use crate::resource::Resource;
use crate::session::{Protocol, Response};
use crate::types::is_packed;

/// The payload of one HTTP/2 frame. Up to this size a response is one piece.
const FRAME: usize = 16 * 1024;

/// A chunk ends at this size at the earliest, with the next resource whose version says so.
const SMALLEST_CHUNK: usize = 12 * 1024;

/// A chunk ends at this size at the latest.
const LARGEST_CHUNK: usize = 32 * 1024;

/// One in so many resources may end a chunk.
const CHUNK_END: u128 = 4;

/// Resources from this size on are sent without copying.
const SHARED: usize = 4 * 1024;

/// What precedes a gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The fields of a response, which the two variants of the protocol number differently.
struct ResponseFields {
    version: Tag,
    resources: Tag,
    type_url: Tag,
    nonce: Tag,
    control_plane: Tag,
}

const SOTW: ResponseFields = ResponseFields {
    version: discovery_response::VERSION_INFO.tag(),
    resources: discovery_response::RESOURCES.tag(),
    type_url: discovery_response::TYPE_URL.tag(),
    nonce: discovery_response::NONCE.tag(),
    control_plane: discovery_response::CONTROL_PLANE.tag(),
};

const DELTA: ResponseFields = ResponseFields {
    version: delta_discovery_response::SYSTEM_VERSION_INFO.tag(),
    resources: delta_discovery_response::RESOURCES.tag(),
    type_url: delta_discovery_response::TYPE_URL.tag(),
    nonce: delta_discovery_response::NONCE.tag(),
    control_plane: delta_discovery_response::CONTROL_PLANE.tag(),
};

/// Names of resources that do not exist; only delta responses have them.
const REMOVED: Tag = delta_discovery_response::REMOVED_RESOURCES.tag();

const fn response_fields(protocol: Protocol) -> &'static ResponseFields {
    match protocol {
        Protocol::Sotw => &SOTW,
        Protocol::Delta => &DELTA,
    }
}

/// A response on its way out: a gRPC message in pieces.
pub(crate) struct Outgoing {
    /// The head, and the whole response if that is small.
    first: Option<Bytes>,
    rest: Option<Box<Rest>>,
}

/// The response is larger than a gRPC message can be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response of {0} bytes does not fit into a gRPC message")]
pub(crate) struct TooLarge(usize);

impl Outgoing {
    pub(crate) fn new(response: Response, chunks: &Arc<ChunkPool>) -> Result<Self, TooLarge> {
        let entries = Entries::new(&response);
        let resources: usize = response.resources().map(|resource| entries.framed_size(resource)).sum();
        let mut first = BytesMut::with_capacity(PREFIX + head_size(&response) + resources.min(FRAME));
        first.put_bytes(0, PREFIX);
        put_response_head(&mut first, &response);
        let length = first.len() - PREFIX + resources;
        let Ok(prefix) = u32::try_from(length) else {
            return Err(TooLarge(length));
        };
        first[1..PREFIX].copy_from_slice(&prefix.to_be_bytes());
        if length > FRAME {
            let chunks = chunks.begin();
            let mut rest = Box::new(Rest { next: 0, chunk: None, buffer: None, entries, response, chunks });
            rest.chunk = rest.encode_chunk();
            // A short chunk, such as the head of a large resource, does not become a frame of its own.
            if let Some(chunk) = rest.chunk.take_if(|chunk| chunk.len() < SHARED) {
                first.put_slice(&chunk);
            }
            return Ok(Self { first: Some(first.freeze()), rest: Some(rest) });
        }
        let mut versions = response.versions();
        for resource in response.resources() {
            entries.put_head(&mut first, resource, versions.next(resource));
            Payload::new(resource).copy_to(&mut first);
        }
        Ok(Self { first: Some(first.freeze()), rest: None })
    }
}

impl Iterator for Outgoing {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.first.take().or_else(|| self.rest.as_mut()?.next())
    }
}

/// The resources of a large response that have not been written yet.
struct Rest {
    response: Response,
    entries: Entries,
    chunks: ChunkUse,
    /// The first resource that is not written.
    next: usize,
    /// The chunk that comes next.
    chunk: Option<Bytes>,
    /// The buffer of a large resource that comes after it, by the position of the resource and its own.
    buffer: Option<(usize, usize)>,
}

impl Iterator for Rest {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.chunk.take() {
            return Some(chunk);
        }
        if let Some((at, index)) = self.buffer.take() {
            let buffer = self.response.resource(at).and_then(|it| Payload::new(it).buffer(index));
            if buffer.is_some() {
                self.buffer = Some((at, index + 1));
                return buffer;
            }
        }
        self.encode_chunk()
    }
}

impl Rest {
    /// Encodes or finds the next chunk.
    fn encode_chunk(&mut self) -> Option<Bytes> {
        let start = self.next;
        let mut versions = self.response.versions();
        let mut members = Vec::new();
        let mut size = 0;
        while let Some(resource) = self.response.resource(self.next) {
            members.push(ChunkMember { resource: resource.clone(), version: versions.next(resource) });
            self.next += 1;
            size += self.entries.framed_size(resource);
            let is_end = resource.version.as_u128().is_multiple_of(CHUNK_END) && size >= SMALLEST_CHUNK;
            if Payload::new(resource).len() >= SHARED {
                // The payload's head ends the chunk, and its body follows uncopied.
                size -= Payload::new(resource).len();
                self.buffer = Some((self.next - 1, 0));
                break;
            }
            if is_end || size >= LARGEST_CHUNK {
                break;
            }
        }
        if start == self.next {
            return None;
        }
        let encode = || {
            let mut out = BytesMut::with_capacity(size);
            for member in &members {
                self.entries.put_head(&mut out, &member.resource, member.version);
                let payload = Payload::new(&member.resource);
                if payload.len() < SHARED {
                    payload.copy_to(&mut out);
                }
            }
            out.freeze()
        };
        Some(self.chunks.share(&self.entries.format, &members, encode))
    }
}

fn head_size(response: &Response) -> usize {
    let removed: usize = response.removed().iter().map(|name| REMOVED.size(name.len())).sum();
    let identifier = response.identifier().map_or(0, str::len);
    VERSION_SIZE + response.type_url().len() + response.nonce().len() + removed + identifier + 32
}

/// Writes everything but the resources.
fn put_response_head(out: &mut BytesMut, response: &Response) {
    let fields = response_fields(response.protocol());
    put_version(out, fields.version, response.version());
    fields.type_url.put_str(out, response.type_url());
    fields.nonce.put_str(out, response.nonce());
    for name in response.removed() {
        REMOVED.put_delimited(out, name.as_bytes());
    }
    if let Some(identifier) = response.identifier() {
        fields.control_plane.put_header(out, control_plane::IDENTIFIER.text_size(identifier.len()));
        control_plane::IDENTIFIER.tag().put_str(out, identifier);
    }
}

/// Writes resources as entries of the repeated field: `Any` itself, or a `Resource` around it.
struct Entries {
    format: ChunkFormat,
    /// The field of the response that lists resources.
    resources: Tag,
    /// The body of a resource is an `Any` already.
    is_packed: bool,
}

/// A version as text: thirty-two hexadecimal digits.
const VERSION_SIZE: usize = 32;

const DIGITS: [u8; 16] = *b"0123456789abcdef";

impl Entries {
    fn new(response: &Response) -> Self {
        let format = ChunkFormat {
            type_url: Arc::clone(response.type_url()),
            delta: response.protocol() == Protocol::Delta,
            with_aliases: response.has_aliases(),
        };
        let resources = response_fields(response.protocol()).resources;
        Self { is_packed: is_packed(&format.type_url), resources, format }
    }

    fn any_size(&self, resource: &Resource) -> usize {
        let body = Payload::new(resource).len();
        if self.is_packed {
            return body;
        }
        let value = if body == 0 { 0 } else { any::VALUE.size(body) };
        any::TYPE_URL.text_size(self.format.type_url.len()) + value
    }

    fn aliases<'a>(&self, resource: &'a Resource) -> &'a [Arc<str>] {
        if self.format.with_aliases { &resource.aliases } else { &[] }
    }

    fn size(&self, resource: &Resource) -> usize {
        let any = self.any_size(resource);
        if !self.format.delta {
            return any;
        }
        let aliases = self.aliases(resource).iter().map(|alias| resource::ALIASES.text_size(alias.len()));
        resource::VERSION.text_size(VERSION_SIZE)
            + resource::NAME.text_size(resource.name.len())
            + aliases.sum::<usize>()
            + resource::RESOURCE.size(any)
    }

    /// Size with tag and length.
    fn framed_size(&self, resource: &Resource) -> usize {
        self.resources.size(self.size(resource))
    }

    /// Writes everything before the resource's own bytes, which come last.
    fn put_head(&self, out: &mut BytesMut, resource: &Resource, version: ContentHash) {
        self.resources.put_header(out, self.size(resource));
        if self.format.delta {
            put_version(out, resource::VERSION.tag(), version);
            resource::NAME.tag().put_str(out, &resource.name);
            for alias in self.aliases(resource) {
                resource::ALIASES.tag().put_delimited(out, alias.as_bytes());
            }
            resource::RESOURCE.tag().put_header(out, self.any_size(resource));
        }
        if self.is_packed {
            return;
        }
        any::TYPE_URL.tag().put_str(out, &self.format.type_url);
        let body = Payload::new(resource).len();
        if body > 0 {
            any::VALUE.tag().put_header(out, body);
        }
    }
}

/// Writes a version in hexadecimal digits, all at once.
fn put_version(out: &mut BytesMut, field: Tag, version: ContentHash) {
    let mut text = [0; VERSION_SIZE];
    for (digits, byte) in text.chunks_exact_mut(2).zip(version.as_u128().to_be_bytes()) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 0xf)];
    }
    field.put_delimited(out, &text);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use canopus_proto::Message;
    use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

    use super::*;
    use crate::resource::ResourceSet;
    use crate::session::{Limits, Request, Session, Wish};
    use crate::source::{Refusal, Source};
    use crate::{Interest, Resource};

    /// Answers everything with the same resources.
    struct Fixed(ResourceSet);

    impl Source for Fixed {
        fn resources(&self, _: &str, _: &Interest) -> Result<ResourceSet, Refusal> {
            Ok(self.0.clone())
        }

        fn identifier(&self, _: &str) -> Option<String> {
            Some("us".to_owned())
        }
    }

    fn response(protocol: Protocol, resources: impl IntoIterator<Item = Resource>) -> Response {
        response_of("some.Type", protocol, resources)
    }

    fn response_of(
        type_url: &str,
        protocol: Protocol,
        resources: impl IntoIterator<Item = Resource>,
    ) -> Response {
        let names = vec!["by another name".to_owned(), String::new(), "missing".to_owned()];
        let wish = match protocol {
            Protocol::Sotw => Wish::Exactly { names, version: String::new() },
            Protocol::Delta => {
                Wish::Change { subscribe: names, unsubscribe: Vec::new(), held: Default::default() }
            }
        };
        let request =
            Request { type_url: type_url.into(), node: None, nonce: String::new(), error: None, wish };
        let mut session = Session::new(protocol, 1, Limits::default(), Arc::default());
        let source = Fixed(resources.into_iter().collect());
        session.on_request(request, &source).unwrap();
        session.next_response(&source).unwrap().unwrap()
    }

    fn resources() -> [Resource; 3] {
        [
            Resource::new("large", vec![7; 100_000]),
            Resource::new("empty", ""),
            Resource::new("small", "x").with_aliases(["by another name", ""]),
        ]
    }

    fn message(response: Response) -> Vec<u8> {
        let bytes: Vec<u8> = Outgoing::new(response, &Arc::default()).unwrap().flatten().collect();
        let (head, message) = bytes.split_at(5);
        assert_eq!(head[0], 0);
        assert_eq!(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize, message.len());
        message.to_vec()
    }

    fn many(bodies: impl Fn(usize) -> u8) -> Response {
        let resources = (0..300).map(|n| Resource::new(format!("r{n:03}"), vec![bodies(n); 500 + n]));
        response(Protocol::Delta, resources)
    }

    #[test]
    fn sets_that_differ_in_one_resource_share_the_chunks_of_the_others() {
        let chunks = Arc::default();
        let pieces = |response: Response| -> Vec<*const u8> {
            let pieces: Vec<Bytes> = Outgoing::new(response, &chunks).unwrap().skip(1).collect();
            assert!(pieces.iter().all(|piece| piece.len() < 2 * LARGEST_CHUNK));
            pieces.iter().map(|piece| piece.as_ptr()).collect()
        };
        // As long as somebody sends something, chunks are kept.
        let _sending = chunks.begin();
        let (one, other) = (pieces(many(|_| 7)), pieces(many(|n| if n == 100 { 8 } else { 7 })));
        let common = one.iter().filter(|piece| other.contains(piece)).count();
        assert!(one.len() >= 4 && common < one.len(), "{one:?}");
        assert!(common + 3 >= one.len(), "{common} of {} chunks", one.len());
    }

    #[test]
    fn nothing_is_encoded_before_the_transport_asks_for_it() {
        let chunks = Arc::default();
        let mut outgoing = Outgoing::new(many(|_| 7), &chunks).unwrap();
        let pieces: Vec<usize> = outgoing.by_ref().take(2).map(|piece| piece.len()).collect();
        assert!(pieces[0] < 1000 && pieces[1] <= LARGEST_CHUNK + 1000, "{pieces:?}");
        let rest = outgoing.rest.as_ref().unwrap();
        assert!(rest.next < 100, "{} of 300 resources are written", rest.next);
    }

    #[test]
    fn delta_message_reads_back() {
        let response = response(Protocol::Delta, resources());
        let decoded = DeltaDiscoveryResponse::decode(message(response.clone()).as_slice()).unwrap();
        assert_eq!(decoded.system_version_info, response.version().to_string());
        assert_eq!(decoded.type_url, "some.Type");
        assert_eq!(decoded.nonce, response.nonce());
        assert_eq!(decoded.control_plane.unwrap().identifier, "us");
        assert_eq!(decoded.removed_resources, ["missing"]);
        let names: Vec<_> = decoded.resources.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["empty", "large", "small"]);
        assert_eq!(decoded.resources[2].aliases, ["by another name", ""]);
        for (sent, got) in response.resources().zip(decoded.resources) {
            assert_eq!(got.version, sent.version.to_string());
            let any = got.resource.unwrap();
            assert_eq!((any.type_url.as_str(), any.value), ("some.Type", sent.body.clone()));
        }
    }

    #[test]
    fn sotw_message_reads_back() {
        let response = response(Protocol::Sotw, resources());
        let decoded = DiscoveryResponse::decode(message(response.clone()).as_slice()).unwrap();
        assert_eq!(decoded.version_info, response.version().to_string());
        assert_eq!(decoded.nonce, response.nonce());
        assert_eq!(decoded.control_plane.unwrap().identifier, "us");
        let bodies: Vec<_> = decoded.resources.iter().map(|any| any.value.clone()).collect();
        let sent: Vec<_> = response.resources().map(|it| it.body.clone()).collect();
        assert_eq!(bodies, sent);
    }

    #[test]
    fn packed_resources_keep_their_own_types() {
        use canopus_proto::Any;
        use canopus_proto::envoy::config::core::v3::Node;
        let any = Any::pack(&Node { id: "one".to_owned(), ..Node::default() });
        let packed = || [Resource::encode("one", &any)];
        let sotw = message(response_of("istio.io/debug/syncz", Protocol::Sotw, packed()));
        assert_eq!(DiscoveryResponse::decode(sotw.as_slice()).unwrap().resources, std::slice::from_ref(&any));
        let delta = message(response_of("istio.io/debug/syncz", Protocol::Delta, packed()));
        let delta = DeltaDiscoveryResponse::decode(delta.as_slice()).unwrap();
        assert_eq!(delta.resources[0].resource, Some(any));
    }

    #[test]
    fn empty_names_can_be_removed() {
        let decoded =
            DeltaDiscoveryResponse::decode(message(response(Protocol::Delta, [])).as_slice()).unwrap();
        assert_eq!(decoded.removed_resources, ["", "by another name", "missing"]);
    }
}
