//! Clients that do not read.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use canopus_proto::Message;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use canopus_xds::server::{AdsService, Options};
use canopus_xds::session::Protocol;
use canopus_xds::types::{CLUSTER, LISTENER};
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::toy::{Served, Toy, next, node};

/// A stream without a connection: the test is the transport.
struct Bare {
    requests: mpsc::Sender<Result<Frame<Bytes>, Status>>,
    responses: Body,
}

impl Bare {
    async fn open(toy: &Arc<Toy>) -> Self {
        let (requests, inbound) = mpsc::channel(8);
        let body = Body::new(StreamBody::new(ReceiverStream::new(inbound)));
        let request = http::Request::builder()
            .uri("/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap();
        let mut service = AdsService::new(toy.clone(), Options::default());
        let responses = service.call(request).await.unwrap().into_body();
        Self { requests, responses }
    }

    fn send(&self, request: &DeltaDiscoveryRequest) {
        let message = request.encode_to_vec();
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap());
        frame.put_slice(&message);
        self.requests.try_send(Ok(Frame::data(frame.freeze()))).unwrap();
    }

    /// What the transport gets when it has room for one more piece.
    fn piece(&mut self) -> Option<Bytes> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(&mut self.responses).poll_frame(&mut context) {
            Poll::Ready(Some(frame)) => Some(frame.unwrap().into_data().unwrap()),
            Poll::Ready(None) => panic!("the stream ended"),
            Poll::Pending => None,
        }
    }

    /// A whole response, if there is one.
    fn response(&mut self) -> Option<DeltaDiscoveryResponse> {
        let mut bytes = BytesMut::from(self.piece()?);
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
        while bytes.len() < 5 + length {
            bytes.extend_from_slice(&self.piece().expect("the rest of the response"));
        }
        assert_eq!(bytes.len(), 5 + length);
        Some(DeltaDiscoveryResponse::decode(&bytes[5..]).unwrap())
    }
}

fn subscribe(type_url: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { node: Some(node("client")), type_url: type_url.into(), ..Default::default() }
}

fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        ..Default::default()
    }
}

#[tokio::test]
async fn slow_reader_costs_no_work_and_gets_the_newest_state() {
    let toy = Toy::new();
    toy.put(LISTENER, "a", vec![1; 100_000]);
    let mut stream = Bare::open(&toy).await;
    stream.send(&subscribe(LISTENER));
    let first = stream.piece().unwrap();
    let asked = toy.asked.load(Ordering::SeqCst);
    for n in 0..1000 {
        toy.put(LISTENER, "a", format!("version {n}"));
        toy.put(LISTENER, "b", format!("version {n}"));
    }
    // The reader takes the rest of the response it has begun, then acknowledges.
    let rest = stream.piece().unwrap();
    assert_eq!(first.len() + rest.len(), 5 + length(&first));
    assert!(stream.piece().is_none());
    let nonce = toy.events.lock().iter().find_map(|event| match event {
        canopus_xds::SessionEvent::Sent { nonce, .. } => Some(nonce.to_string()),
        _ => None,
    });
    let sent =
        DeltaDiscoveryResponse { type_url: LISTENER.into(), nonce: nonce.unwrap(), ..Default::default() };
    stream.send(&ack(&sent));
    let update = stream.response().unwrap();
    let bodies: Vec<_> = update.resources.into_iter().map(|it| it.resource.unwrap().value).collect();
    assert_eq!(bodies, ["version 999", "version 999"]);
    assert!(toy.asked.load(Ordering::SeqCst) - asked <= 2);
}

fn length(first: &Bytes) -> usize {
    u32::from_be_bytes(first[1..5].try_into().unwrap()) as usize
}

#[tokio::test]
async fn large_resources_are_not_copied() {
    let toy = Toy::new();
    let body = Bytes::from(vec![7; 1_000_000]);
    toy.put(LISTENER, "large", body.clone());
    let mut stream = Bare::open(&toy).await;
    stream.send(&subscribe(LISTENER));
    stream.piece().unwrap();
    assert_eq!(stream.piece().unwrap().as_ptr(), body.as_ptr());
}

#[tokio::test]
async fn small_resources_come_in_chunks_of_about_a_frame() {
    let toy = Toy::new();
    for n in 0..1000 {
        toy.put(CLUSTER, &format!("cluster-{n}"), vec![7; 500]);
    }
    let mut stream = Bare::open(&toy).await;
    stream.send(&subscribe(CLUSTER));
    let pieces: Vec<usize> = std::iter::from_fn(|| stream.piece()).map(|piece| piece.len()).collect();
    let [head, full @ .., last] = &*pieces else { panic!("{pieces:?}") };
    assert!(full.iter().all(|size| (12_000..33_500).contains(size)), "{pieces:?}");
    assert!(*head < 1_000 && *last < 33_500);
}

#[tokio::test]
async fn reader_that_never_reads_does_not_hold_up_others() {
    let server = Served::new().await;
    let large = Bytes::from(vec![1; 8_000_000]);
    for n in 0..8 {
        server.toy.put(LISTENER, &format!("large-{n}"), large.clone());
    }
    let mut stuck = server.client(Protocol::Delta);
    stuck.follower_mut().watch_everything(LISTENER);
    // It opens its stream and subscribes, but nobody polls it again.
    let opening = tokio::time::timeout(std::time::Duration::from_millis(200), stuck.step());
    let _ = opening.await;

    server.toy.put(CLUSTER, "a", "1");
    let mut lively = server.client(Protocol::Delta);
    lively.follower_mut().watch_everything(CLUSTER);
    assert_eq!(next(&mut lively).await.names(), ["a"]);
    for n in 0..50 {
        server.toy.put(CLUSTER, "a", format!("version {n}"));
        assert_eq!(next(&mut lively).await.names(), ["a"]);
    }
}
