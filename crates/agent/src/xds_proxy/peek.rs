//! What matters of a message, found by skipping over everything else.
//!
//! Field numbers are those of `DiscoveryRequest`, `DeltaDiscoveryRequest` and their responses.

use bytes::{Buf, Bytes};

use super::Variant;
use super::frame::Message;

/// A type URL may not be longer.
const MAX_TYPE: usize = 1024;

/// The type URL of a response, which has the same field in both variants.
pub(super) fn response_type(message: &Message) -> Option<String> {
    text(message, 4)
}

/// The nonce of a response, which has the same field in both variants.
pub(super) fn response_nonce(message: &Message) -> Option<String> {
    text(message, 5)
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
}

/// Summarises a request; `None` if it is no protobuf, or of no type.
pub(super) fn request(message: &Message, variant: Variant) -> Option<RequestSummary> {
    let (type_url, nonce, error, unsubscribed) = match variant {
        Variant::Sotw => (4, 5, 6, None),
        Variant::Delta => (2, 6, 7, Some(4)),
    };
    let mut summary = RequestSummary::default();
    let text = |bytes: Bytes| {
        (bytes.len() <= MAX_TYPE).then(|| String::from_utf8(bytes.into()).ok()).flatten().unwrap_or_default()
    };
    fields(message.body(), |number, field| {
        let Field::Bytes(bytes) = field else { return };
        if number == type_url {
            summary.type_url = text(bytes);
        } else if number == nonce {
            summary.nonce = text(bytes);
        } else if number == error {
            summary.is_rejection = true;
        } else if Some(number) == unsubscribed {
            summary.unsubscribed.push(text(bytes));
        }
    })?;
    (!summary.type_url.is_empty()).then_some(summary)
}

/// The value of a field.
pub(super) enum Field {
    /// A number of any width.
    Number,
    /// Text, bytes, or a message.
    Bytes(Bytes),
}

/// Hands every field of a message over; `None` if it is no protobuf. Bytes are shared where they came in one piece.
pub(super) fn fields(mut body: impl Buf, mut take: impl FnMut(u64, Field)) -> Option<()> {
    while body.has_remaining() {
        let key = varint(&mut body)?;
        let (number, kind) = (key >> 3, key & 7);
        let length = match kind {
            0 => {
                varint(&mut body)?;
                take(number, Field::Number);
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut body)?).ok()?,
            5 => 4,
            _ => return None,
        };
        if length > body.remaining() {
            return None;
        }
        if kind == 2 {
            take(number, Field::Bytes(body.copy_to_bytes(length)));
        } else {
            body.advance(length);
            take(number, Field::Number);
        }
    }
    Some(())
}

/// The text of a field; `None` if the message has none or is no protobuf.
fn text(message: &Message, wanted: u64) -> Option<String> {
    let mut body = message.body();
    while body.has_remaining() {
        let key = varint(&mut body)?;
        let (field, kind) = (key >> 3, key & 7);
        let length = match kind {
            0 => {
                varint(&mut body)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut body)?).ok()?,
            5 => 4,
            _ => return None,
        };
        if length > body.remaining() {
            return None;
        }
        if field == wanted && kind == 2 {
            return (length <= MAX_TYPE)
                .then(|| String::from_utf8(body.copy_to_bytes(length).into()).ok())
                .flatten();
        }
        body.advance(length);
    }
    None
}

fn varint(body: &mut impl Buf) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        if !body.has_remaining() {
            return None;
        }
        let byte = body.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
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
