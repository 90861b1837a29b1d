//! The gRPC ports.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::http::{Request, Response, Version, header};
use canopus_xds::server::{AdsService, Options, Transport, serve_until};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tower_service::Service;
use tracing::debug;

use super::counted::{self, Open};
use super::health::{self, Health};
use super::issuing::{self, Issuing};
use super::reflection;
use super::tls::{self, Acceptor};
use crate::control_plane::Mesh;
use crate::metrics::CallMetrics;

/// The services of the gRPC ports.
#[derive(Clone)]
pub struct Grpc {
    ads: AdsService<Mesh>,
    health: Health,
    stopping: Arc<watch::Sender<bool>>,
    options: Options,
    calls: Option<Arc<CallMetrics>>,
    issuing: Option<Issuing>,
}

impl Grpc {
    /// The services of a mesh.
    pub fn new(mesh: Arc<Mesh>, options: Options) -> Self {
        let stopping = watch::Sender::new(false);
        let health = Health { readiness: mesh.readiness().cloned(), stopping: stopping.subscribe() };
        let ads = AdsService::new(mesh, options.clone());
        Self { ads, health, stopping: Arc::new(stopping), options, calls: None, issuing: None }
    }

    /// The same, with calls counted.
    #[must_use]
    pub fn counting(self, calls: CallMetrics) -> Self {
        Self { calls: Some(Arc::new(calls)), ..self }
    }

    /// The same, with certificates issued on connections with TLS.
    #[must_use]
    pub fn issuing(self, issuing: Option<Issuing>) -> Self {
        Self { issuing, ..self }
    }

    /// Serves without TLS until `shutdown`, then ends the streams and waits for them.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let incoming = TcpListenerStream::new(listener).map(|accepted| accepted.map(prompt));
        self.serve_on(incoming, shutdown).await;
    }

    /// Serves with TLS until `shutdown`, then ends the streams and waits for them.
    pub async fn serve_tls(
        &self,
        listener: TcpListener,
        acceptor: Acceptor,
        shutdown: impl Future<Output = ()>,
    ) {
        self.serve_on(tls::incoming(listener, acceptor), shutdown).await;
    }

    /// The same services on an HTTP port that is there for something else.
    pub(crate) fn beside(&self, otherwise: Router) -> Router {
        Router::new().fallback_service(Multiplexed { grpc: self.clone(), otherwise })
    }

    /// Ends all streams and refuses new ones.
    pub(crate) fn drain(&self) {
        self.stopping.send_replace(true);
        self.ads.drain();
    }

    /// Dispatches a request to the service that it names.
    fn answer(&mut self, request: Request<Body>) -> Answer<Body> {
        let path = request.uri().path();
        if path.starts_with(health::PREFIX) {
            let health = self.health.clone();
            return Box::pin(async move { Ok(health::answer(request, health).await) });
        }
        if path.starts_with(reflection::PREFIX) {
            return Box::pin(async move { Ok(reflection::answer(request).await) });
        }
        if path.starts_with(issuing::PREFIX) {
            let issuing = self.issuing.clone();
            return Box::pin(async move { Ok(issuing::answer(request, issuing).await) });
        }
        Box::pin(self.ads.call(request))
    }

    /// Serves these connections until `shutdown`, then ends the streams and waits for them.
    pub(crate) async fn serve_on<IO: Transport>(
        &self,
        incoming: impl Stream<Item = std::io::Result<IO>>,
        shutdown: impl Future<Output = ()>,
    ) {
        serve_until(incoming, self.clone(), &self.options, shutdown, || self.drain()).await;
    }
}

/// The same connection, on which small responses do not wait for company.
pub(super) fn prompt(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection stays as slow as it is");
    }
    stream
}

type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

impl Service<Request<Body>> for Grpc {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer<Body>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer<Body> {
        let call = self.calls.as_ref().and_then(|calls| calls.begin(request.uri().path()));
        let Some(call) = call.map(Arc::new) else { return self.answer(request) };
        let open = Open::new(Arc::clone(&call));
        let answer = self.answer(request.map(|body| counted::requests(&call, body)));
        Box::pin(async { answer.await.map(|response| open.answered(response)) })
    }
}

/// gRPC on a port that is there for something else.
#[derive(Clone)]
struct Multiplexed {
    grpc: Grpc,
    otherwise: Router,
}

impl Service<Request<axum::body::Body>> for Multiplexed {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Answer<axum::body::Body>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<axum::body::Body>) -> Self::Future {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        if !grpc || request.version() != Version::HTTP_2 {
            return Box::pin(self.otherwise.call(request));
        }
        let answer = self.grpc.call(request.map(Body::new));
        Box::pin(async { answer.await.map(|response| response.map(axum::body::Body::new)) })
    }
}
