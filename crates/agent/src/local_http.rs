//! Small HTTP/1 requests to this machine: Envoy's admin interface, the agent's own status, applications.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Answers that are read whole may not be larger.
pub const MAX_ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody listens.
    #[error("{address}: {error}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// No answer in time.
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
    Transport(#[from] hyper::Error),
    /// The answer is too large, or broke off.
    #[error("the answer cannot be read: {0}")]
    Body(String),
    /// Another status than 200.
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
) -> Result<Response<Incoming>, HttpError> {
    let exchange = async {
        let stream =
            TcpStream::connect(address).await.map_err(|error| HttpError::Connect { address, error })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).body(Empty::<Bytes>::new())?;
        *request.headers_mut() = headers;
        if let Ok(host) = address.to_string().parse() {
            request.headers_mut().entry(header::HOST).or_insert(host);
        }
        Ok(sender.send_request(request).await?)
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
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let bytes = body.map_err(|error| HttpError::Body(error.to_string()))?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status == StatusCode::OK {
            return Ok(text);
        }
        Err(HttpError::Status { status, text: text.chars().take(200).collect() })
    };
    timeout(limit, exchange).await.unwrap_or(Err(HttpError::Late { address, limit }))
}
