//! The ADS server: sessions over gRPC.
//!
//! [`AdsService`] is a gRPC service that can stand beside others on one port; [`serve`] runs it alone. Transport
//! security is the business of whoever accepts the connections: any stream of I/O will do.

mod body;
mod decode;
mod options;
mod stream;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use http::{HeaderMap, HeaderValue, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_stream::Stream as Incoming;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tower_service::Service;

pub use options::Options;

use crate::names::NamePool;
use crate::plane::{ControlPlane, Peer};
use crate::session::{Protocol, Request, Session};
use body::{Slot, StreamBody};
use decode::{RequestMessage, Requests};
use stream::Stream;

const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// A proxy may ask its agent for secrets alone; the messages are the same.
const SECRETS_SOTW: &str = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";
const SECRETS_DELTA: &str = "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets";

/// Becomes true when streams have to end.
type Drain = watch::Receiver<bool>;

/// The aggregated discovery service of a control plane. Clones share everything.
pub struct AdsService<C> {
    shared: Arc<Shared<C>>,
}

/// What all streams share.
struct Shared<C> {
    plane: Arc<C>,
    options: Options,
    pool: Arc<NamePool>,
    drain: watch::Sender<bool>,
    ids: RandomState,
    opened: AtomicU64,
}

impl<C> Shared<C> {
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
        Self {
            shared: Arc::new(Shared {
                plane,
                options,
                pool: Arc::default(),
                drain: watch::Sender::new(false),
                ids: RandomState::new(),
                opened: AtomicU64::new(0),
            }),
        }
    }

    /// Ends all streams and refuses new ones.
    pub fn drain(&self) {
        self.shared.drain.send_replace(true);
    }

    fn open(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        check_headers(request.headers())?;
        match request.uri().path() {
            SOTW | SECRETS_SOTW => Ok(self.stream::<DiscoveryRequest>(Protocol::Sotw, request)),
            DELTA | SECRETS_DELTA => Ok(self.stream::<DeltaDiscoveryRequest>(Protocol::Delta, request)),
            path => Err(Status::unimplemented(format!("no method {path}"))),
        }
    }

    fn stream<M: RequestMessage + Into<Request>>(
        &self,
        protocol: Protocol,
        request: http::Request<Body>,
    ) -> http::Response<Body> {
        let options = &self.shared.options;
        let (head, body) = request.into_parts();
        let requests = Requests::<M>::new(body, options.max_request_bytes, options.limits.names);
        let slot = Slot::default();
        let stream = Stream {
            shared: self.shared.clone(),
            protocol,
            peer: Peer {
                address: head.extensions.get().and_then(TcpConnectInfo::remote_addr),
                protocol,
                headers: head.headers,
                extensions: head.extensions,
            },
            requests,
            slot: slot.clone(),
        };
        let body = StreamBody::new(Box::pin(stream.run()), slot);
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

/// An HTTP/2 server set up for long streams, to which services can be added.
pub fn transport(options: &Options) -> Server {
    let server = Server::builder()
        .max_concurrent_streams(options.max_streams_per_connection)
        .http2_keepalive_interval(options.keepalive_interval)
        .http2_keepalive_timeout(Some(options.keepalive_timeout))
        .tcp_nodelay(true);
    match options.max_connection_age {
        Some(age) => server.max_connection_age(age),
        None => server,
    }
}

/// Serves the control plane on these connections until `shutdown`, then ends the streams and waits for them.
pub async fn serve<C, I, IO, IE>(
    incoming: I,
    plane: Arc<C>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error>
where
    C: ControlPlane,
    I: Incoming<Item = Result<IO, IE>>,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    IE: Into<tonic::codegen::StdError>,
{
    let service = AdsService::new(plane, options.clone());
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    let ending = async {
        shutdown.await;
        service.drain();
        drop(stopping);
    };
    let serving = transport(&options).serve_with_incoming_shutdown(service.clone(), incoming, ending);
    let overdue = async {
        let _ = stopped.await;
        tokio::time::sleep(options.drain_timeout).await;
    };
    tokio::select! {
        served = serving => served,
        () = overdue => Ok(()),
    }
}
