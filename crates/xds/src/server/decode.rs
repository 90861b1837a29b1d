//! Requests from bytes, with bounds on what they may be and what they may unfold to.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use canopus_proto::Message;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use http_body::Body as _;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::bounds;

/// What precedes each gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A request message of one of the protocol variants.
pub(super) trait RequestMessage: Message + Default + Send + 'static {
    /// Numbers of the fields that clients fill with resource names.
    const NAME_FIELDS: &'static [u64];
    /// Numbers of the fields for the node and for the error.
    const NODE_AND_ERROR: (u64, u64);
}

impl RequestMessage for DiscoveryRequest {
    const NAME_FIELDS: &'static [u64] = &[3, 7];
    const NODE_AND_ERROR: (u64, u64) = (2, 6);
}

impl RequestMessage for DeltaDiscoveryRequest {
    const NAME_FIELDS: &'static [u64] = &[3, 4, 5, 8, 9];
    const NODE_AND_ERROR: (u64, u64) = (1, 7);
}

/// The requests of one stream.
///
/// A stream is idle most of its life, and the largest request is often one of its first: memory for requests is held only
/// while a part of one is there.
pub(super) struct Requests<M> {
    body: Body,
    bytes: BytesMut,
    max_bytes: usize,
    max_names: usize,
    message: PhantomData<fn() -> M>,
}

impl<M: RequestMessage> Requests<M> {
    /// The requests in `body`, each of no more than so many bytes and names.
    ///
    /// An empty name takes two bytes on the wire and a dozen times that in memory, so the size of a message alone is no
    /// bound.
    pub(super) fn new(body: Body, max_bytes: usize, max_names: usize) -> Self {
        Self { body, bytes: BytesMut::new(), max_bytes, max_names, message: PhantomData }
    }

    /// The next request; `None` when the client says no more. Nothing is lost when the wait is given up.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<M>, Status>> {
        loop {
            if let Some(size) = self.whole(&self.bytes)? {
                return Poll::Ready(self.take(size).map(Some));
            }
            match ready!(self.poll_chunk(cx)) {
                // Most requests come in one piece, as the only one.
                Some(Ok(chunk)) if self.bytes.is_empty() && self.whole(&chunk)? == Some(chunk.len()) => {
                    return Poll::Ready(decode(&chunk[PREFIX..], self.max_names).map(Some));
                }
                Some(Ok(chunk)) => self.bytes.extend_from_slice(&chunk),
                // The client went away, which it may.
                Some(Err(status)) if status.code() == Code::Cancelled => return Poll::Ready(Ok(None)),
                Some(Err(status)) => return Poll::Ready(Err(status)),
                None if self.bytes.is_empty() => return Poll::Ready(Ok(None)),
                None => return Poll::Ready(Err(Status::internal("the stream ended within a request"))),
            }
        }
    }

    /// The next bytes; nothing at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        return Poll::Ready(Some(Ok(chunk)));
                    }
                }
            }
        }
    }

    /// The size of the first request in these bytes with what precedes it, if it is wholly there.
    fn whole(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some([compressed, length @ ..]) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
        if *compressed != 0 {
            return Err(Status::internal("a request is compressed, and nobody said how"));
        }
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.max_bytes {
            let message = format!("a request of {length} bytes, where {} are the most", self.max_bytes);
            return Err(Status::resource_exhausted(message));
        }
        Ok(Some(PREFIX + length).filter(|size| *size <= bytes.len()))
    }

    /// Takes the first request, of this size with what precedes it.
    fn take(&mut self, size: usize) -> Result<M, Status> {
        let request = decode(&self.bytes[PREFIX..size], self.max_names)?;
        self.bytes.advance(size);
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
        Ok(request)
    }
}

fn decode<M: RequestMessage>(bytes: &[u8], max_names: usize) -> Result<M, Status> {
    if count_fields(bytes, M::NAME_FIELDS) > max_names {
        let message = format!("more than {max_names} resource names in one request");
        return Err(Status::resource_exhausted(message));
    }
    let (node, error) = M::NODE_AND_ERROR;
    bounds::check(bytes, node, error).map_err(Status::invalid_argument)?;
    M::decode(bytes).map_err(|error| Status::invalid_argument(format!("malformed request: {error}")))
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
    use std::future::poll_fn;

    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    fn framed(request: &DeltaDiscoveryRequest) -> Vec<u8> {
        let body = request.encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0], length.as_slice(), &body].concat()
    }

    fn requests(bytes: Vec<u8>, max_bytes: usize) -> Requests<DeltaDiscoveryRequest> {
        Requests::new(Body::new(Full::new(Bytes::from(bytes))), max_bytes, 10)
    }

    impl Requests<DeltaDiscoveryRequest> {
        async fn next(&mut self) -> Result<Option<DeltaDiscoveryRequest>, Status> {
            poll_fn(|cx| self.poll_next(cx)).await
        }
    }

    fn named(name: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest { resource_names_subscribe: vec![name.into()], ..Default::default() }
    }

    #[tokio::test]
    async fn requests_come_one_by_one_and_leave_no_memory_behind() {
        let mut requests = requests([framed(&named("a")), framed(&named("b"))].concat(), 1000);
        assert_eq!(requests.next().await.unwrap(), Some(named("a")));
        assert_eq!(requests.next().await.unwrap(), Some(named("b")));
        assert_eq!(requests.bytes.capacity(), 0);
        assert_eq!(requests.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn request_that_is_too_large_is_refused_by_its_prefix() {
        let mut requests = requests(framed(&named(&"x".repeat(2000)))[..PREFIX].to_vec(), 1000);
        assert_eq!(requests.next().await.unwrap_err().code(), Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn stream_that_ends_within_a_request_is_an_error() {
        let whole = framed(&named("a"));
        for length in [1, PREFIX, whole.len() - 1] {
            let status = requests(whole[..length].to_vec(), 1000).next().await.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{length} bytes");
        }
    }

    #[tokio::test]
    async fn compressed_request_is_an_error() {
        let status = requests(vec![1, 0, 0, 0, 0], 1000).next().await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
    }

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
