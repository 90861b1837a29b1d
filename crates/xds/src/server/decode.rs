//! Requests from bytes, with bounds on what they may be and what they may unfold to.
//!
//! Nearly all requests of a stream only acknowledge a response. These are read in place, without an allocation and without a
//! look at the node that some clients repeat; everything else is decoded as a message.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use canopus_proto::Message;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use canopus_proto::fields::{delta_discovery_request as delta, discovery_request as sotw};
use canopus_proto::wire::{Tag, next_field};
use http_body::Body as _;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::bounds::{self, Fields};
use crate::session::{Limits, Protocol, Request};

/// What precedes each gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A request message of one of the protocol variants.
pub(super) trait RequestMessage: Message + Default + Send + 'static {
    /// The fields that clients fill with resource names.
    const NAME_FIELDS: &'static [Tag];
    /// The fields for the node and for the error.
    const NODE_AND_ERROR: (Tag, Tag);
    /// The fields for the type and for the nonce.
    const TYPE_AND_NONCE: (Tag, Tag);
    /// The fields that may stand beside these in a mere acknowledgement.
    const IGNORED_IN_ACK: &'static [Tag];
}

impl RequestMessage for DiscoveryRequest {
    const NAME_FIELDS: &'static [Tag] = &[sotw::RESOURCE_NAMES.tag(), sotw::RESOURCE_LOCATORS.tag()];
    const NODE_AND_ERROR: (Tag, Tag) = (sotw::NODE.tag(), sotw::ERROR_DETAIL.tag());
    const TYPE_AND_NONCE: (Tag, Tag) = (sotw::TYPE_URL.tag(), sotw::RESPONSE_NONCE.tag());
    const IGNORED_IN_ACK: &'static [Tag] = &[sotw::VERSION_INFO.tag(), sotw::NODE.tag()];
}

impl RequestMessage for DeltaDiscoveryRequest {
    const NAME_FIELDS: &'static [Tag] = &[
        delta::RESOURCE_NAMES_SUBSCRIBE.tag(),
        delta::RESOURCE_NAMES_UNSUBSCRIBE.tag(),
        delta::INITIAL_RESOURCE_VERSIONS.tag(),
        delta::RESOURCE_LOCATORS_SUBSCRIBE.tag(),
        delta::RESOURCE_LOCATORS_UNSUBSCRIBE.tag(),
    ];
    const NODE_AND_ERROR: (Tag, Tag) = (delta::NODE.tag(), delta::ERROR_DETAIL.tag());
    const TYPE_AND_NONCE: (Tag, Tag) = (delta::TYPE_URL.tag(), delta::RESPONSE_NONCE.tag());
    const IGNORED_IN_ACK: &'static [Tag] = &[delta::NODE.tag()];
}

/// The next thing in the stream of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Next<M> {
    /// The client acknowledged a response, and the control plane has dealt with it.
    Acknowledged,
    /// A request that needs an answer.
    Request(M),
    /// The client sends no more.
    End,
}

/// Bytes that clients make the server hold, of all streams together: of requests that are not whole yet, or of nodes.
#[derive(Debug)]
pub(super) struct PendingBytes {
    held: AtomicUsize,
    most: usize,
}

impl PendingBytes {
    /// At most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { held: AtomicUsize::new(0), most }
    }

    fn reserve(&self, bytes: usize) -> Result<(), Status> {
        let room = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.most);
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Status::resource_exhausted("clients hold too much memory together; try again later"))
            }
        }
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(super) struct Kept {
    budget: Arc<PendingBytes>,
    bytes: usize,
}

impl Kept {
    /// Counts bytes, unless there is no room for them.
    pub(super) fn new(budget: &Arc<PendingBytes>, bytes: usize) -> Result<Self, Status> {
        budget.reserve(bytes)?;
        Ok(Self { budget: Arc::clone(budget), bytes })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// The requests of one stream.
///
/// A stream is idle most of its life, and the largest request is often one of its first: memory for requests is held only
/// while a part of one is there.
pub(super) struct Requests<M> {
    body: Body,
    bytes: BytesMut,
    max_bytes: usize,
    limits: Limits,
    pending: Arc<PendingBytes>,
    message: PhantomData<fn() -> M>,
}

impl<M> Drop for Requests<M> {
    fn drop(&mut self) {
        self.pending.release(self.bytes.len());
    }
}

impl<M: RequestMessage> Requests<M> {
    /// The requests in `body`, each of no more than so many bytes, and with no more names and a node no larger than the
    /// limits say.
    ///
    /// An empty name takes two bytes on the wire and a dozen times that in memory, so the size of a message alone is no
    /// bound.
    pub(super) fn new(body: Body, max_bytes: usize, limits: Limits, pending: Arc<PendingBytes>) -> Self {
        Self { body, bytes: BytesMut::new(), max_bytes, limits, pending, message: PhantomData }
    }

    /// Waits until a whole request is there, or none will come any more. It stays as it is, in bytes.
    pub(super) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while self.whole(&self.bytes)?.is_none() {
            match ready!(self.poll_chunk(cx)) {
                Some(Ok(chunk)) => {
                    self.pending.reserve(chunk.len())?;
                    self.bytes.extend_from_slice(&chunk);
                }
                // The reader of the request comes across the end again.
                Some(Err(_)) | None => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next thing the client says. Nothing is lost when the wait is given up.
    ///
    /// An acknowledgement goes to `acknowledge` with its type and nonce. If that returns false, the request is decoded.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        mut acknowledge: impl FnMut(&str, &str) -> bool,
    ) -> Poll<Result<Next<M>, Status>> {
        loop {
            if let Some(size) = self.whole(&self.bytes)? {
                let next = self.read(&self.bytes[PREFIX..size], &mut acknowledge);
                self.bytes.advance(size);
                self.pending.release(size);
                if self.bytes.is_empty() {
                    self.bytes = BytesMut::new();
                }
                return Poll::Ready(next);
            }
            match ready!(self.poll_chunk(cx)) {
                // Most requests come in one piece, as the only one.
                Some(Ok(chunk)) if self.bytes.is_empty() && self.whole(&chunk)? == Some(chunk.len()) => {
                    return Poll::Ready(self.read(&chunk[PREFIX..], &mut acknowledge));
                }
                Some(Ok(chunk)) => {
                    self.pending.reserve(chunk.len())?;
                    self.bytes.extend_from_slice(&chunk);
                }
                // The client went away, which it may.
                Some(Err(status)) if status.code() == Code::Cancelled => return Poll::Ready(Ok(Next::End)),
                Some(Err(status)) => return Poll::Ready(Err(status)),
                None if self.bytes.is_empty() => return Poll::Ready(Ok(Next::End)),
                None => return Poll::Ready(Err(Status::internal("the stream ended within a request"))),
            }
        }
    }

    fn read(
        &self,
        bytes: &[u8],
        acknowledge: &mut impl FnMut(&str, &str) -> bool,
    ) -> Result<Next<M>, Status> {
        if let Some((type_url, nonce)) = acknowledgement::<M>(bytes)
            && acknowledge(type_url, nonce)
        {
            return Ok(Next::Acknowledged);
        }
        decode(bytes, self.limits).map(Next::Request)
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
}

/// The type and the nonce of a request that says nothing else, unless it is malformed or says more.
fn acknowledgement<M: RequestMessage>(mut bytes: &[u8]) -> Option<(&str, &str)> {
    let (type_field, nonce_field) = M::TYPE_AND_NONCE;
    let (mut type_url, mut nonce) = ("", "");
    while !bytes.is_empty() {
        let (tag, value) = next_field(&mut bytes).ok()?;
        if tag == type_field {
            type_url = str::from_utf8(value).ok()?;
        } else if tag == nonce_field {
            nonce = str::from_utf8(value).ok()?;
        } else if !M::IGNORED_IN_ACK.contains(&tag) {
            return None;
        }
    }
    (!type_url.is_empty() && !nonce.is_empty()).then_some((type_url, nonce))
}

fn decode<M: RequestMessage>(bytes: &[u8], limits: Limits) -> Result<M, Status> {
    if count_names::<M>(bytes) > limits.names {
        let message = format!("more than {} resource names in one request", limits.names);
        return Err(Status::resource_exhausted(message));
    }
    let (node, error) = M::NODE_AND_ERROR;
    bounds::check(bytes, node, error, limits.node_bytes).map_err(Status::invalid_argument)?;
    M::decode(bytes).map_err(|error| Status::invalid_argument(format!("malformed request: {error}")))
}

/// The request of a variant in these bytes, checked and decoded as the server does it.
pub fn read_request(protocol: Protocol, bytes: &[u8], limits: Limits) -> Result<Request, Status> {
    match protocol {
        Protocol::Sotw => decode::<DiscoveryRequest>(bytes, limits).map(Into::into),
        Protocol::Delta => decode::<DeltaDiscoveryRequest>(bytes, limits).map(Into::into),
    }
}

/// How many names a request has. Counting stops where the request is malformed, which the decoder then reports.
fn count_names<M: RequestMessage>(bytes: &[u8]) -> usize {
    Fields(bytes).filter(|(tag, _)| M::NAME_FIELDS.contains(tag)).count()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use canopus_proto::envoy::config::core::v3::Node;
    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    fn limits() -> Limits {
        Limits { names: 10, ..Limits::default() }
    }

    fn framed(request: &DeltaDiscoveryRequest) -> Vec<u8> {
        let body = request.encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0], length.as_slice(), &body].concat()
    }

    fn requests(bytes: Vec<u8>, max_bytes: usize) -> Requests<DeltaDiscoveryRequest> {
        let pending = Arc::new(PendingBytes::new(1 << 20));
        Requests::new(Body::new(Full::new(Bytes::from(bytes))), max_bytes, limits(), pending)
    }

    impl Requests<DeltaDiscoveryRequest> {
        async fn next(&mut self) -> Result<Next<DeltaDiscoveryRequest>, Status> {
            poll_fn(|cx| self.poll_next(cx, |_, _| true)).await
        }
    }

    fn named(name: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest { resource_names_subscribe: vec![name.into()], ..Default::default() }
    }

    #[tokio::test]
    async fn requests_come_one_by_one_and_leave_no_memory_behind() {
        let mut requests = requests([framed(&named("a")), framed(&named("b"))].concat(), 1000);
        assert_eq!(requests.next().await.unwrap(), Next::Request(named("a")));
        assert_eq!(requests.next().await.unwrap(), Next::Request(named("b")));
        assert_eq!(requests.bytes.capacity(), 0);
        assert_eq!(requests.next().await.unwrap(), Next::End);
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
    async fn those_who_came_first_are_served_when_long_requests_use_up_the_memory() {
        let pending = Arc::new(PendingBytes::new(150));
        let parts = |length: usize| {
            // Every chunk but the last leaves the request incomplete.
            let whole = framed(&named(&"x".repeat(length)));
            let chunks: Vec<Result<_, Status>> = whole
                .chunks(50)
                .map(|chunk| Ok(http_body::Frame::data(Bytes::copy_from_slice(chunk))))
                .collect();
            Body::new(http_body_util::StreamBody::new(tokio_stream::iter(chunks)))
        };
        let stream =
            |length| Requests::<DeltaDiscoveryRequest>::new(parts(length), 1000, limits(), pending.clone());
        let mut first = stream(120);
        assert!(matches!(first.next().await.unwrap(), Next::Request(_)));
        assert_eq!(pending.held.load(Ordering::Relaxed), 0, "a whole request is held no longer");
        let mut newest = stream(200);
        assert_eq!(newest.next().await.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(pending.held.load(Ordering::Relaxed), 150);
        drop(newest);
        assert_eq!(pending.held.load(Ordering::Relaxed), 0);
        assert!(matches!(stream(120).next().await.unwrap(), Next::Request(_)));
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
        assert_eq!(count_names::<DeltaDiscoveryRequest>(&bytes), 4);
    }

    fn node() -> Option<Node> {
        Some(Node { id: "a".into(), ..Default::default() })
    }

    #[tokio::test]
    async fn acknowledgement_is_read_in_place() {
        let ack = DeltaDiscoveryRequest {
            node: node(),
            type_url: "t".into(),
            response_nonce: "n".into(),
            ..Default::default()
        };
        assert_eq!(acknowledgement::<DeltaDiscoveryRequest>(&ack.encode_to_vec()), Some(("t", "n")));
        let mut requests = requests([framed(&ack), framed(&ack)].concat(), 1000);
        assert_eq!(requests.next().await.unwrap(), Next::Acknowledged);
        let unknown = poll_fn(|cx| requests.poll_next(cx, |_, _| false)).await.unwrap();
        assert_eq!(unknown, Next::Request(ack));
    }

    #[test]
    fn request_that_says_more_is_no_mere_acknowledgement() {
        let ack =
            DeltaDiscoveryRequest { type_url: "t".into(), response_nonce: "n".into(), ..Default::default() };
        let rejection = DeltaDiscoveryRequest { error_detail: Some(Default::default()), ..ack.clone() };
        let wish = DeltaDiscoveryRequest { resource_names_subscribe: vec![String::new()], ..ack.clone() };
        let first = DeltaDiscoveryRequest { response_nonce: String::new(), ..ack };
        for request in [rejection, wish, first] {
            assert_eq!(acknowledgement::<DeltaDiscoveryRequest>(&request.encode_to_vec()), None);
        }
    }

    proptest! {
        #[test]
        fn acknowledgement_is_what_the_decoder_reads(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..64),
                ("[a-z]{0,4}", "[a-z]{0,4}", "[a-z]{0,4}", any::<bool>()).prop_map(|(type_url, nonce, version, with_node)| {
                    let node = node().filter(|_| with_node);
                    let request = DiscoveryRequest { type_url, response_nonce: nonce, version_info: version, node, ..Default::default() };
                    request.encode_to_vec()
                }),
            ],
        ) {
            if let Some((type_url, nonce)) = acknowledgement::<DiscoveryRequest>(&bytes)
                && let Ok(decoded) = DiscoveryRequest::decode(&*bytes)
            {
                let rest = DiscoveryRequest { type_url: String::new(), response_nonce: String::new(), version_info: String::new(), node: None, ..decoded.clone() };
                prop_assert_eq!((type_url, nonce), (&*decoded.type_url, &*decoded.response_nonce));
                prop_assert_eq!(rest, DiscoveryRequest::default());
            }
        }

        #[test]
        fn any_bytes_can_be_counted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(count_names::<DeltaDiscoveryRequest>(&bytes) <= bytes.len());
        }
    }
}
