//! Small HTTP/1 requests to this machine: Envoy's admin interface, the agent's own status, applications.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use canopus_http::{Body, Version};
use http::{HeaderMap, Request, Response, StatusCode, header};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Answers that are read whole may not be larger.
pub const MAX_ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The port refuses connections.
    #[error("{address}: {error}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// No answer arrived in time.
    #[error("{address}: no answer in {limit:?}")]
    Late {
        /// Where.
        address: SocketAddr,
        /// The limit.
        limit: Duration,
    },
    /// The request is none.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The connection broke.
    #[error("{0}")]
    Transport(#[from] canopus_http::Error),
    /// The answer is too large, or broke off.
    #[error("the answer cannot be read: {0}")]
    Body(String),
    /// The status is not 200.
    #[error("status {status}: {text}")]
    Status {
        /// The status.
        status: StatusCode,
        /// The beginning of the answer.
        text: String,
    },
}

/// Sends a request and waits for the head of the answer.
pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: HeaderMap,
    limit: Duration,
) -> Result<Response<Body>, HttpError> {
    let exchange = async {
        let stream =
            TcpStream::connect(address).await.map_err(|error| HttpError::Connect { address, error })?;
        let mut request = Request::builder().method(method).uri(path).body(Bytes::new())?;
        *request.headers_mut() = headers;
        if let Ok(host) = address.to_string().parse() {
            request.headers_mut().entry(header::HOST).or_insert(host);
        }
        Ok(canopus_http::send(stream, Version::Http1, request).await?)
    };
    timeout(limit, exchange).await.unwrap_or(Err(HttpError::Late { address, limit }))
}

/// The text of an answer with status 200.
pub async fn text(
    address: SocketAddr,
    method: &str,
    path: &str,
    limit: Duration,
) -> Result<String, HttpError> {
    let exchange = async {
        let answer = send(address, method, path, HeaderMap::new(), limit).await?;
        let status = answer.status();
        let body = canopus_http::read(answer.into_body(), MAX_ANSWER).await;
        let bytes = body.map_err(|error| HttpError::Body(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status == StatusCode::OK {
            return Ok(text);
        }
        Err(HttpError::Status { status, text: text.chars().take(200).collect() })
    };
    timeout(limit, exchange).await.unwrap_or(Err(HttpError::Late { address, limit }))
}
