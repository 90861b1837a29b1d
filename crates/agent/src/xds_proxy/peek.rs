//! The type of a message, found by skipping over everything else.
//!
//! Field numbers are those of `DiscoveryRequest`, `DeltaDiscoveryRequest` and their responses.

use bytes::Buf;

use super::Variant;
use super::frame::Message;

/// A type URL may not be longer.
const MAX_TYPE: usize = 1024;

/// The type URL of a response, which has the same field in both variants.
pub(super) fn response_type(message: &Message) -> Option<String> {
    text(message, 4)
}

/// The type URL of a request.
pub(super) fn request_type(message: &Message, variant: Variant) -> Option<String> {
    text(
        message,
        match variant {
            Variant::Sotw => 4,
            Variant::Delta => 2,
        },
    )
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
        assert_eq!(request_type(&framed(sotw.encode_to_vec()), Variant::Sotw).as_ref(), Some(&type_url));
        assert_eq!(request_type(&framed(delta.encode_to_vec()), Variant::Delta).as_ref(), Some(&type_url));
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
            let _ = request_type(&Message::new(&bytes), Variant::Delta);
        }
    }
}
