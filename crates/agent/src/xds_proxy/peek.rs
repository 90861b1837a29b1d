//! What matters of a message, found by skipping over everything else.

use bytes::{Buf, Bytes};
use canopus_proto::fields::{
    delta_discovery_request, delta_discovery_response, discovery_request, discovery_response,
};
use canopus_proto::wire::{Header, Tag, WireType, read_header};

use super::frame::{Cutter, Message};
use super::{Variant, recorder};

/// A type URL may not be longer.
const MAX_TYPE: usize = 1024;

/// The type URL of a response, which has the same field in both variants.
pub(super) fn response_type(message: &Message) -> Option<String> {
    const {
        assert!(
            discovery_response::TYPE_URL.tag().number() == delta_discovery_response::TYPE_URL.tag().number()
        );
    };
    text(message, discovery_response::TYPE_URL.tag())
}

/// The nonce of a response, which has the same field in both variants.
pub(super) fn response_nonce(message: &Message) -> Option<String> {
    const { assert!(discovery_response::NONCE.tag().number() == delta_discovery_response::NONCE.tag().number()) };
    text(message, discovery_response::NONCE.tag())
}

/// What a request asks for and answers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestSummary {
    pub(super) type_url: String,
    /// The nonce of the response that it answers; empty if it answers none.
    pub(super) nonce: String,
    /// Whether it answers with an error.
    pub(super) is_rejection: bool,
    /// The names that are no longer wanted.
    pub(super) unsubscribed: Vec<String>,
    /// Whether it names versions of what Envoy has.
    pub(super) names_versions: bool,
}

/// Summarises a request; `None` if it is no protobuf, or of no type.
pub(super) fn request(message: &Message, variant: Variant) -> Option<RequestSummary> {
    let (type_url, nonce, error, versions, unsubscribed) = match variant {
        Variant::Sotw => (
            discovery_request::TYPE_URL.tag(),
            discovery_request::RESPONSE_NONCE.tag(),
            discovery_request::ERROR_DETAIL.tag(),
            discovery_request::VERSION_INFO.tag(),
            None,
        ),
        Variant::Delta => (
            delta_discovery_request::TYPE_URL.tag(),
            delta_discovery_request::RESPONSE_NONCE.tag(),
            delta_discovery_request::ERROR_DETAIL.tag(),
            delta_discovery_request::INITIAL_RESOURCE_VERSIONS.tag(),
            Some(delta_discovery_request::RESOURCE_NAMES_UNSUBSCRIBE.tag()),
        ),
    };
    let mut summary = RequestSummary::default();
    let text = |bytes: Bytes| {
        (bytes.len() <= MAX_TYPE).then(|| String::from_utf8(bytes.into()).ok()).flatten().unwrap_or_default()
    };
    fields(message.body(), |tag, bytes| {
        if tag == type_url {
            summary.type_url = text(bytes);
        } else if tag == nonce {
            summary.nonce = text(bytes);
        } else if tag == error {
            summary.is_rejection = true;
        } else if tag == versions {
            summary.names_versions = true;
        } else if Some(tag) == unsubscribed {
            summary.unsubscribed.push(text(bytes));
        }
    })?;
    (!summary.type_url.is_empty()).then_some(summary)
}

/// Looks at the data of a stream as the proxy does, in pieces of this size, and gives the bytes of its messages. Fuzzing
/// needs nothing else of a stream.
pub fn inspect_stream(data: &[u8], size: usize) -> usize {
    let mut cutter = Cutter::default();
    data.chunks(size.max(1)).for_each(|chunk| cutter.push(Bytes::copy_from_slice(chunk)));
    let mut total = 0;
    while let Ok(Some(message)) = cutter.cut() {
        total += message.len();
        for variant in [Variant::Delta, Variant::Sotw] {
            let _ = request(&message, variant);
            let _ = recorder::resources(&message, variant);
        }
        let _ = (response_type(&message), response_nonce(&message));
    }
    total
}

/// Hands over every field of a message that is a string, bytes or a message; `None` if the message is malformed. Bytes are
/// shared where they came in one piece.
pub(super) fn fields(mut body: impl Buf, mut take: impl FnMut(Tag, Bytes)) -> Option<()> {
    while body.has_remaining() {
        let Header { tag, length } = header(&mut body)?;
        if tag.wire_type() == WireType::Delimited {
            take(tag, body.copy_to_bytes(length));
        } else {
            body.advance(length);
        }
    }
    Some(())
}

/// The text of a field; `None` if the message has none or is malformed.
fn text(message: &Message, wanted: Tag) -> Option<String> {
    let mut body = message.body();
    while body.has_remaining() {
        let Header { tag, length } = header(&mut body)?;
        if tag == wanted {
            return (length <= MAX_TYPE)
                .then(|| String::from_utf8(body.copy_to_bytes(length).into()).ok())
                .flatten();
        }
        body.advance(length);
    }
    None
}

/// Reads up to the value of a field that is wholly there.
fn header(body: &mut impl Buf) -> Option<Header> {
    read_header(body).ok().filter(|header| header.length <= body.remaining())
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_proto::Message as _;
    use canopus_proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
    };
    use proptest::prelude::*;

    #[test]
    fn type_is_found_in_all_four_messages() {
        let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
        let node =
            Some(canopus_proto::envoy::config::core::v3::Node { id: "n".repeat(300), ..Default::default() });
        let sotw = DiscoveryRequest { node: node.clone(), type_url: type_url.clone(), ..Default::default() };
        let delta = DeltaDiscoveryRequest { node, type_url: type_url.clone(), ..Default::default() };
        let framed = |bytes: Vec<u8>| Message::new(&bytes);
        assert_eq!(request(&framed(sotw.encode_to_vec()), Variant::Sotw).unwrap().type_url, type_url);
        assert_eq!(request(&framed(delta.encode_to_vec()), Variant::Delta).unwrap().type_url, type_url);
        let any = canopus_proto::Any { type_url: "x".into(), value: vec![1; 70_000].into() };
        let sotw =
            DiscoveryResponse { resources: vec![any], type_url: type_url.clone(), ..Default::default() };
        let delta = DeltaDiscoveryResponse {
            resources: vec![Resource { name: "r".into(), ..Default::default() }],
            type_url: type_url.clone(),
            ..Default::default()
        };
        assert_eq!(response_type(&framed(sotw.encode_to_vec())).as_ref(), Some(&type_url));
        assert_eq!(response_type(&framed(delta.encode_to_vec())).as_ref(), Some(&type_url));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = response_type(&Message::new(&bytes));
            let _ = request(&Message::new(&bytes), Variant::Delta);
        }
    }
}
