//! A gRPC server of unary methods, for tests to hear what proxies say.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The longest request that is read.
const BODY_LIMIT: usize = 1 << 20;

/// A server that answers every method.
pub(crate) struct GrpcServer {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl GrpcServer {
    /// Starts a server that answers the message of a method, by its path, with another.
    pub(crate) async fn start(answer: impl Fn(&str, Bytes) -> Bytes + Send + Sync + 'static) -> Result<Self> {
        let answer = Arc::new(answer);
        let router = Router::new().fallback(move |request: Request| {
            let answer = Arc::clone(&answer);
            async move { respond(request, &*answer).await }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // Serving ends with the task; there is no other way out to report.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, server })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(request: Request, answer: &(impl Fn(&str, Bytes) -> Bytes + Send + Sync)) -> Response {
    let path = request.uri().path().to_owned();
    let mut body = to_bytes(request.into_body(), BODY_LIMIT).await.unwrap_or_default();
    if body.len() < 5 {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    }
    // A message comes after a byte that says whether it is compressed, and its length.
    body.advance(5);
    let message = answer(&path, body);
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("a short answer"));
    framed.put(message);
    let trailers =
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let body = Full::new(framed.freeze()).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
