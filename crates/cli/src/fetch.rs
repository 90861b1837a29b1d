//! Requests of HTTP/1.1 to servers: proxies, ztunnels, control planes.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use canopus_http::{Body, Version};
use http::{Method, Request, Response, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Larger answers are not read: configuration dumps of large proxies have some hundred megabytes.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 30;

/// Connects to a server at `host:port`.
pub(crate) async fn connect(address: &str) -> anyhow::Result<TcpStream> {
    TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))
}

/// Sends a request over a connection that is already there, and waits for the head of the answer.
pub(crate) async fn send<T>(
    connection: T,
    host: &str,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<Response<Body>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONNECTION, "close")
        .body(body)?;
    let answer = canopus_http::send(connection, Version::Http1, request).await;
    answer.with_context(|| format!("the server did not answer {path}"))
}

/// As [`send`]; the whole body of the answer, if the status is 200.
pub(crate) async fn request<T>(
    connection: T,
    host: &str,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<Bytes>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = send(connection, host, method, path, body).await?;
    let status = answer.status();
    let body = canopus_http::read(answer.into_body(), MAX_ANSWER_BYTES).await;
    let body = body.with_context(|| path.to_owned())?;
    if status != StatusCode::OK {
        bail!("{path}: the server answers {status}: {}", String::from_utf8_lossy(&body).trim());
    }
    Ok(body)
}

/// As [`request`], on a connection of its own to `host:port`.
pub(crate) async fn request_at(address: &str, method: Method, path: &str) -> anyhow::Result<Bytes> {
    request(connect(address).await?, address, method, path, Bytes::new()).await
}
