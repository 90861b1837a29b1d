//! Calls that panic, and those beside them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use canopus_xds::client::AdsStream;
use canopus_xds::server::{Options, serve_until};
use canopus_xds::session::Protocol;
use canopus_xds::types::{CLUSTER, LISTENER};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tower_service::Service;

use crate::toy::{BROKEN, Served, first_delta, node, until};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

#[tokio::test]
async fn stream_that_panics_ends_alone_and_nothing_of_it_stays() {
    let server = Served::new().await;
    server.toy.put(LISTENER, "a", "1");
    let channel = server.channel();
    let open = async |id, type_url| {
        let first = first_delta(type_url, Some(node(id)));
        AdsStream::open(channel.clone(), Protocol::Delta, MetadataMap::new(), first).await.unwrap()
    };
    let mut bystander = open("bystander", LISTENER).await;
    bystander.next().await.unwrap().unwrap();
    let mut victim = open("victim", LISTENER).await;
    victim.next().await.unwrap().unwrap();
    assert_eq!(server.toy.connected.load(Ordering::SeqCst), 2);

    victim.send(first_delta(BROKEN, None)).await.unwrap();
    let status = victim.next().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
    until("the victim should be gone", || server.toy.connected.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.toy.streams.lock()[1].1.strong_count(), 0, "somebody has its mailbox");

    let mut late = open("late", LISTENER).await;
    late.next().await.unwrap().unwrap();
    server.toy.put(CLUSTER, "b", "1");
    bystander.send(first_delta(CLUSTER, None)).await.unwrap();
    assert_eq!(bystander.next().await.unwrap().unwrap().names(), ["b"]);
    let streams = server.toy.streams.lock();
    assert_eq!(streams.len(), 3);
    assert!(streams.iter().all(|(address, _)| *address == streams[0].0), "there was another connection");
}

/// Where a handler panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Called,
    Answering,
    Begun,
    Between,
    Dropped,
}

const SPOTS: [Spot; 5] = [Spot::Called, Spot::Answering, Spot::Begun, Spot::Between, Spot::Dropped];

/// Answers with what it is sent, and panics where the path says so.
#[derive(Clone, Default)]
struct Handler {
    /// How many answers there are.
    open: Arc<AtomicUsize>,
}

impl Service<Request<Body>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let spot = SPOTS.into_iter().find(|spot| request.uri().path() == format!("/{spot:?}"));
        assert_ne!(spot, Some(Spot::Called));
        self.open.fetch_add(1, Ordering::SeqCst);
        let echo = Echo { spot, open: Arc::clone(&self.open), request: request.into_body(), sent: 0 };
        Box::pin(async move {
            assert_ne!(echo.spot, Some(Spot::Answering));
            Ok(Response::new(Body::new(echo)))
        })
    }
}

struct Echo {
    spot: Option<Spot>,
    open: Arc<AtomicUsize>,
    request: Body,
    sent: usize,
}

impl http_body::Body for Echo {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        assert_ne!(self.spot, Some(Spot::Begun));
        let Some(frame) = ready!(Pin::new(&mut self.request).poll_frame(cx)) else {
            let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        };
        self.sent += 1;
        assert!(self.sent == 1 || self.spot != Some(Spot::Between));
        Poll::Ready(Some(frame))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(self.spot, Some(Spot::Dropped));
    }
}

/// A call of [`Handler`].
struct Call {
    requests: SendStream<Bytes>,
    head: HeaderMap,
    answers: RecvStream,
}

impl Call {
    async fn open(connection: &SendRequest<Bytes>, path: &str) -> Self {
        let request = Request::post(format!("http://server{path}")).body(()).unwrap();
        let mut connection = connection.clone().ready().await.unwrap();
        let (response, requests) = connection.send_request(request, false).unwrap();
        let (head, answers) = response.await.unwrap().into_parts();
        Self { requests, head: head.headers, answers }
    }

    /// Sends something, which comes back.
    async fn echo(&mut self, text: &'static str) {
        self.requests.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
        assert_eq!(self.answers.data().await.unwrap().unwrap(), text);
    }

    /// How it ends, when nothing more comes.
    async fn status(&mut self) -> Status {
        assert!(self.answers.data().await.is_none());
        let trailers = self.answers.trailers().await.unwrap();
        Status::from_header_map(&trailers.unwrap_or(self.head.clone())).expect("a status")
    }
}

/// A connection to a server with this handler, which ends when nobody has requests or calls on it any more.
async fn connect(handler: Handler) -> SendRequest<Bytes> {
    let (near, far) = tokio::io::duplex(100_000);
    let incoming = tokio_stream::once(Ok::<_, Infallible>(far)).chain(tokio_stream::pending());
    tokio::spawn(async {
        serve_until(incoming, handler, &Options::default(), std::future::pending(), || {}).await;
    });
    let (requests, connection) = h2::client::handshake(near).await.unwrap();
    tokio::spawn(connection);
    requests
}

#[tokio::test]
async fn call_is_told_wherever_its_handler_panics_and_those_beside_it_go_on() {
    let handler = Handler::default();
    let connection = connect(handler.clone()).await;
    let mut bystander = Call::open(&connection, "/").await;
    bystander.echo("first").await;
    for spot in SPOTS {
        let mut call = Call::open(&connection, &format!("/{spot:?}")).await;
        if matches!(spot, Spot::Between | Spot::Dropped) {
            call.echo("before").await;
            call.requests.send_data(Bytes::from_static(b"last"), true).unwrap();
        }
        let mut expected = (Code::Internal, "internal error");
        if spot == Spot::Dropped {
            assert_eq!(call.answers.data().await.unwrap().unwrap(), "last");
            expected = (Code::Ok, "");
        }
        let status = call.status().await;
        assert_eq!((status.code(), status.message()), expected, "{spot:?}");
        bystander.echo("again").await;
        assert_eq!(handler.open.load(Ordering::SeqCst), 1, "{spot:?}");
    }
    drop((bystander, connection));
    until("all should be gone", || handler.open.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn calls_that_panic_with_their_connection_are_all_let_go() {
    let handler = Handler::default();
    let connection = connect(handler.clone()).await;
    let mut calls = Vec::new();
    for path in ["/Dropped", "/", "/Dropped", "/"] {
        calls.push(Call::open(&connection, path).await);
    }
    assert_eq!(handler.open.load(Ordering::SeqCst), calls.len());
    drop((calls, connection));
    until("all should be gone", || handler.open.load(Ordering::SeqCst) == 0).await;
}
