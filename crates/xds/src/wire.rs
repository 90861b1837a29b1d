//! Responses as bytes, in pieces.
//!
//! A response is mostly resources that other streams send too, often in the same selection: that part is encoded once and
//! shared for as long as somebody sends it, large resources as the buffers they are. What a stream has of its own is
//! what precedes it, with the version and the nonce.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::resource::Resource;
use crate::session::{Protocol, Response};
use crate::types::is_packed;

/// Small resources are gathered into pieces of about this size, the payload of one HTTP/2 frame.
const PIECE: usize = 16 * 1024;

/// Resources from this size on are sent without copying.
const SHARED: usize = 4 * 1024;

// Field numbers that `DiscoveryResponse` and `DeltaDiscoveryResponse` share.
const VERSION: u32 = 1;
const RESOURCES: u32 = 2;
const TYPE_URL: u32 = 4;
const NONCE: u32 = 5;
/// Only in `DeltaDiscoveryResponse`.
const REMOVED: u32 = 6;

const fn control_plane_field(protocol: Protocol) -> u32 {
    match protocol {
        Protocol::Sotw => 6,
        Protocol::Delta => 7,
    }
}

/// A response on its way out: a gRPC message in pieces.
pub(crate) struct Outgoing {
    first: Option<Bytes>,
    resources: Arc<[Bytes]>,
    next: usize,
}

/// The response is larger than a gRPC message can be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response of {0} bytes does not fit into a gRPC message")]
pub(crate) struct TooLarge(usize);

impl Outgoing {
    pub(crate) fn new(response: &Response) -> Result<Self, TooLarge> {
        let resources = response.encoded(|| pieces(response));
        let head = head(response);
        let length = head.len() + resources.iter().map(Bytes::len).sum::<usize>();
        let Ok(prefix) = u32::try_from(length) else {
            return Err(TooLarge(length));
        };
        // The first piece of the resources goes with it: most responses are no longer than that.
        let with = resources.first().map_or(&[][..], |piece| piece);
        let mut first = BytesMut::with_capacity(5 + head.len() + with.len());
        first.put_u8(0);
        first.put_u32(prefix);
        first.put(head);
        first.put_slice(with);
        Ok(Self { first: Some(first.freeze()), resources, next: 1 })
    }
}

impl Iterator for Outgoing {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let piece = self.resources.get(self.next)?;
        self.next += 1;
        Some(piece.clone())
    }
}

/// The resources of a response: small ones gathered, large ones as they are. The first piece is never a large one.
fn pieces(response: &Response) -> Arc<[Bytes]> {
    let mut pieces = Vec::new();
    let mut piece = BytesMut::new();
    for resource in response.resources() {
        let entry = entry(response, resource);
        piece.reserve(entry.framed().min(PIECE));
        entry.put_head(&mut piece);
        if resource.body.len() < SHARED {
            piece.put_slice(&resource.body);
        } else {
            pieces.extend([piece.split().freeze(), resource.body.clone()]);
        }
        if piece.len() >= PIECE {
            pieces.push(piece.split().freeze());
        }
    }
    if !piece.is_empty() {
        pieces.push(piece.freeze());
    }
    pieces.into()
}

/// Everything but the resources.
fn head(response: &Response) -> BytesMut {
    let mut out = BytesMut::with_capacity(256);
    put_text(&mut out, VERSION, &response.version().to_string());
    put_text(&mut out, TYPE_URL, response.type_url());
    put_text(&mut out, NONCE, response.nonce());
    for name in response.removed() {
        put_item(&mut out, REMOVED, name);
    }
    if let Some(identifier) = response.identifier() {
        put_head(&mut out, control_plane_field(response.protocol()), optional_size(1, identifier.len()));
        put_text(&mut out, 1, identifier);
    }
    out
}

/// A resource as one entry of the repeated field: `Any` itself, or a `Resource` around it.
struct Entry<'a> {
    resource: &'a Resource,
    response: &'a Response,
    /// Size of the `Any`.
    any: usize,
    /// Size of the entry.
    size: usize,
}

const ANY_TYPE: u32 = 1;
const ANY_VALUE: u32 = 2;
const RESOURCE_VERSION: u32 = 1;
const RESOURCE_ANY: u32 = 2;
const RESOURCE_NAME: u32 = 3;
const RESOURCE_ALIAS: u32 = 4;

/// A version as text: thirty-two hexadecimal digits.
const VERSION_SIZE: usize = 32;

fn entry<'a>(response: &'a Response, resource: &'a Resource) -> Entry<'a> {
    let any = if is_packed(response.type_url()) {
        resource.body.len()
    } else {
        optional_size(ANY_TYPE, response.type_url().len()) + optional_size(ANY_VALUE, resource.body.len())
    };
    let size = match response.protocol() {
        Protocol::Sotw => any,
        Protocol::Delta => {
            let aliases = response.aliases(resource).iter();
            let aliases: usize = aliases.map(|alias| field_size(RESOURCE_ALIAS, alias.len())).sum();
            field_size(RESOURCE_VERSION, VERSION_SIZE)
                + optional_size(RESOURCE_NAME, resource.name.len())
                + aliases
                + field_size(RESOURCE_ANY, any)
        }
    };
    Entry { resource, response, any, size }
}

impl Entry<'_> {
    /// Size with tag and length.
    fn framed(&self) -> usize {
        field_size(RESOURCES, self.size)
    }

    /// Everything before the resource's own bytes, which come last.
    fn put_head(&self, out: &mut BytesMut) {
        put_head(out, RESOURCES, self.size);
        if self.response.protocol() == Protocol::Delta {
            let version = self.response.version_of(self.resource).to_string();
            put_text(out, RESOURCE_VERSION, &version);
            put_text(out, RESOURCE_NAME, &self.resource.name);
            for alias in self.response.aliases(self.resource) {
                put_item(out, RESOURCE_ALIAS, alias);
            }
            put_head(out, RESOURCE_ANY, self.any);
        }
        if is_packed(self.response.type_url()) {
            return;
        }
        put_text(out, ANY_TYPE, self.response.type_url());
        if !self.resource.body.is_empty() {
            put_head(out, ANY_VALUE, self.resource.body.len());
        }
    }
}

/// Size of a length-delimited field.
fn field_size(number: u32, length: usize) -> usize {
    varint_size(u64::from(number) << 3) + varint_size(length as u64) + length
}

/// Size of a singular field of text or bytes, which is left out when empty.
fn optional_size(number: u32, length: usize) -> usize {
    match length {
        0 => 0,
        length => field_size(number, length),
    }
}

fn put_text(out: &mut BytesMut, number: u32, text: &str) {
    if !text.is_empty() {
        put_item(out, number, text);
    }
}

/// One entry of a repeated field of text, written even when empty.
fn put_item(out: &mut BytesMut, number: u32, text: &str) {
    put_head(out, number, text.len());
    out.put_slice(text.as_bytes());
}

/// The tag and length of a length-delimited field.
fn put_head(out: &mut BytesMut, number: u32, length: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, length as u64);
}

fn varint_size(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use canopus_proto::Message;
    use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

    use super::*;
    use crate::plane::{Refusal, Source};
    use crate::resource::ResourceSet;
    use crate::session::{Limits, Request, Session, Wish};
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
        let bytes: Vec<u8> = Outgoing::new(&response).unwrap().flatten().collect();
        let (head, message) = bytes.split_at(5);
        assert_eq!(head[0], 0);
        assert_eq!(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize, message.len());
        message.to_vec()
    }

    #[test]
    fn resources_are_encoded_once_for_all_who_send_them_at_a_time() {
        let many =
            |protocol| response(protocol, (0..100).map(|n| Resource::new(format!("r{n}"), vec![7; 500])));
        let delta = many(Protocol::Delta);
        let mut outgoing = [&delta, &delta, &many(Protocol::Sotw)].map(|sent| Outgoing::new(sent).unwrap());
        let second = outgoing.each_mut().map(|outgoing| outgoing.nth(1).unwrap().as_ptr());
        assert_eq!(second[0], second[1]);
        assert_ne!(second[0], second[2]);
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

    #[test]
    fn every_size_of_number_is_measured_as_it_is_written() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = BytesMut::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_size(value), "{value}");
        }
    }
}
