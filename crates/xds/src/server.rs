//! The ADS server: sessions over gRPC.
//!
//! [`AdsService`] is a gRPC service that can stand beside others on one port; [`serve`] runs it alone. Transport
//! security is the business of whoever accepts the connections: any stream of I/O will do.

mod body;
mod connection;
mod decode;
mod options;
mod start;
mod stream;

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Ready, ready};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream as Incoming;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service;

use connection::serve_connections;
pub use connection::{Answers, Transport};
pub use decode::read_request;
pub use options::Options;

use crate::chunk::ChunkPool;
use crate::mailbox::{Mailbox, Mailboxes};
use crate::names::NamePool;
use crate::plane::{ControlPlane, Peer};
use crate::session::{Protocol, Request, Session};
use body::{Slot, StreamBody};
use decode::{PendingBytes, RequestMessage, Requests};
use start::StartGate;
use stream::Stream;

const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// A proxy may ask its agent for secrets alone; the messages are the same.
const SECRETS_SOTW: &str = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";
const SECRETS_DELTA: &str = "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets";

/// The aggregated discovery service of a control plane. Clones share everything.
pub struct AdsService<C> {
    shared: Arc<Shared<C>>,
}

/// What all streams share.
struct Shared<C> {
    plane: Arc<C>,
    options: Options,
    pool: Arc<NamePool>,
    chunks: Arc<ChunkPool>,
    starting: StartGate,
    pending: Arc<PendingBytes>,
    nodes: Arc<PendingBytes>,
    room: Arc<Semaphore>,
    mailboxes: Mailboxes,
    draining: AtomicBool,
    ids: RandomState,
    opened: AtomicU64,
}

impl<C> Shared<C> {
    /// Whether streams have to end.
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// A session whose nonces are unlike those of any other, also in other processes.
    fn session(&self, protocol: Protocol) -> Session {
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        let id = self.ids.hash_one(opened);
        Session::new(protocol, id, self.options.limits, self.pool.clone())
    }
}

impl<C: ControlPlane> AdsService<C> {
    /// The service of this control plane.
    pub fn new(plane: Arc<C>, options: Options) -> Self {
        let pending = PendingBytes::new(options.max_pending_bytes);
        let nodes = PendingBytes::new(options.max_node_bytes);
        let room = Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS));
        Self {
            shared: Arc::new(Shared {
                plane,
                starting: StartGate::new(options.max_starting_streams),
                options,
                pool: Arc::default(),
                chunks: Arc::default(),
                pending: Arc::new(pending),
                nodes: Arc::new(nodes),
                room: Arc::new(room),
                mailboxes: Mailboxes::default(),
                draining: AtomicBool::new(false),
                ids: RandomState::new(),
                opened: AtomicU64::new(0),
            }),
        }
    }

    /// Ends all streams and refuses new ones.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.mailboxes.end();
    }

    fn open(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        check_headers(request.headers())?;
        let enter = || Arc::clone(&self.shared.room).try_acquire_owned();
        let room = || enter().map_err(|_| Status::resource_exhausted("too many streams; try again later"));
        match request.uri().path() {
            SOTW | SECRETS_SOTW => Ok(self.stream::<DiscoveryRequest>(Protocol::Sotw, request, room()?)),
            DELTA | SECRETS_DELTA => {
                Ok(self.stream::<DeltaDiscoveryRequest>(Protocol::Delta, request, room()?))
            }
            path => Err(Status::unimplemented(format!("no method {path}"))),
        }
    }

    fn stream<M: RequestMessage + Into<Request>>(
        &self,
        protocol: Protocol,
        request: http::Request<Body>,
        room: OwnedSemaphorePermit,
    ) -> http::Response<Body> {
        let options = &self.shared.options;
        let (head, body) = request.into_parts();
        let pending = Arc::clone(&self.shared.pending);
        let requests = Requests::<M>::new(body, options.max_request_bytes, options.limits, pending);
        let slot = Slot::default();
        let mailbox = Arc::new(Mailbox::default());
        self.shared.mailboxes.add(&mailbox);
        let stream = Stream {
            shared: self.shared.clone(),
            protocol,
            peer: Peer {
                address: head.extensions.get().and_then(TcpConnectInfo::remote_addr),
                protocol,
                headers: head.headers,
                extensions: head.extensions,
                mailbox,
            },
            requests,
            slot: slot.clone(),
            room,
        };
        let body = StreamBody::new(Box::pin(stream.run()), slot, Arc::clone(&self.shared.chunks));
        let mut response = http::Response::new(Body::new(body));
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, grpc);
        response
    }
}

fn check_headers(headers: &HeaderMap) -> Result<(), Status> {
    let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap_or_default());
    if !text("content-type").starts_with("application/grpc") {
        return Err(Status::invalid_argument("the content type is not application/grpc"));
    }
    match text("grpc-encoding") {
        "" | "identity" => Ok(()),
        encoding => Err(Status::unimplemented(format!("encoding {encoding} is not supported"))),
    }
}

impl<C> Clone for AdsService<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C> NamedService for AdsService<C> {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl<C: ControlPlane> Service<http::Request<Body>> for AdsService<C> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        ready(Ok(self.open(request).unwrap_or_else(Status::into_http)))
    }
}

/// Serves the control plane on these connections until `shutdown`, then ends the streams and waits for them.
pub async fn serve<C, IO, E>(
    incoming: impl Incoming<Item = Result<IO, E>>,
    plane: Arc<C>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) where
    C: ControlPlane,
    IO: Transport,
    E: Display,
{
    let service = AdsService::new(plane, options.clone());
    let draining = service.clone();
    serve_until(incoming, service, &options, shutdown, move || draining.drain()).await;
}

/// Answers requests on these connections until `shutdown`. Then `drain` has the streams end, which are waited for until that
/// takes too long.
pub async fn serve_until<IO: Transport, E: Display>(
    incoming: impl Incoming<Item = Result<IO, E>>,
    service: impl Answers,
    options: &Options,
    shutdown: impl Future<Output = ()>,
    drain: impl FnOnce(),
) {
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    let ending = async {
        shutdown.await;
        drain();
        drop(stopping);
    };
    let overdue = async {
        let _ = stopped.await;
        tokio::time::sleep(options.drain_timeout).await;
    };
    tokio::select! {
        () = serve_connections(incoming, service, options, ending) => {}
        () = overdue => {}
    }
}
