//! Requests from bytes, with a bound on what they may unfold to.

use std::marker::PhantomData;

use bytes::Buf;
use canopus_proto::Message;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};

/// A request message of one of the protocol variants.
pub(super) trait RequestMessage: Message + Default + Send + 'static {
    /// Numbers of the fields that clients fill with resource names.
    const NAME_FIELDS: &'static [u64];
}

impl RequestMessage for DiscoveryRequest {
    const NAME_FIELDS: &'static [u64] = &[3, 7];
}

impl RequestMessage for DeltaDiscoveryRequest {
    const NAME_FIELDS: &'static [u64] = &[3, 4, 5, 8, 9];
}

/// Decodes requests that have no more than so many names.
///
/// An empty name takes two bytes on the wire and a dozen times that in memory, so the size of a message alone is no bound.
pub(super) struct RequestDecoder<M> {
    max_names: usize,
    message: PhantomData<fn() -> M>,
}

impl<M> RequestDecoder<M> {
    pub(super) fn new(max_names: usize) -> Self {
        Self { max_names, message: PhantomData }
    }
}

impl<M: RequestMessage> Decoder for RequestDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let bytes = buf.copy_to_bytes(buf.remaining());
        let names = count_fields(&bytes, M::NAME_FIELDS);
        if names > self.max_names {
            let message = format!("more than {} resource names in one request", self.max_names);
            return Err(Status::resource_exhausted(message));
        }
        let decoded = M::decode(bytes);
        let decoded =
            decoded.map_err(|error| Status::invalid_argument(format!("malformed request: {error}")))?;
        Ok(Some(decoded))
    }
}

/// How often these fields occur at the top level of an encoded message. Counting stops where it is malformed, which the
/// decoder then reports.
fn count_fields(mut bytes: &[u8], numbers: &[u64]) -> usize {
    let mut count = 0;
    while let Some(tag) = varint(&mut bytes) {
        count += usize::from(numbers.contains(&(tag >> 3)));
        if skip(&mut bytes, tag & 7).is_none() {
            break;
        }
    }
    count
}

/// Steps over the value of a field.
fn skip(bytes: &mut &[u8], wire_type: u64) -> Option<()> {
    let length = match wire_type {
        0 => return varint(bytes).map(drop),
        1 => 8,
        2 => usize::try_from(varint(bytes)?).ok()?,
        5 => 4,
        _ => return None,
    };
    *bytes = bytes.get(length..)?;
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_name_is_counted() {
        let request = DeltaDiscoveryRequest {
            type_url: "t".into(),
            resource_names_subscribe: vec![String::new(), "b".into()],
            resource_names_unsubscribe: vec!["c".into()],
            initial_resource_versions: [("d".into(), "1".into())].into(),
            response_nonce: "n".into(),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        assert_eq!(count_fields(&bytes, DeltaDiscoveryRequest::NAME_FIELDS), 4);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_counted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(count_fields(&bytes, &[3]) <= bytes.len());
        }
    }
}
