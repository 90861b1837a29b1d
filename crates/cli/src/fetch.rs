//! Asking a server over a connection that is already there: HTTP/1.1, one request, the whole answer.

use anyhow::{Context as _, bail};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// More is not read: configuration dumps of large proxies have some hundred megabytes.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// Sends a request without a body and returns the body of the answer, if that is a success.
pub(crate) async fn request<T>(connection: T, host: &str, method: Method, path: &str) -> anyhow::Result<Bytes>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, host)
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let asked = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body =
            body.map_err(|error| anyhow::anyhow!("the answer to {path} broke off: {error}"))?.to_bytes();
        Ok::<_, anyhow::Error>((status, body))
    };
    // The connection has to be driven while the answer is awaited. It ends first if the server closes early.
    let (status, body) = tokio::select! {
        biased;
        answered = asked => answered?,
        ended = connection => {
            ended.context("the connection broke")?;
            bail!("the server closed the connection before it answered {path}");
        }
    };
    if status != StatusCode::OK {
        bail!("{path}: the server answers {status}: {}", String::from_utf8_lossy(&body).trim());
    }
    Ok(body)
}

/// Asks a server at `host:port`.
pub(crate) async fn request_at(address: &str, method: Method, path: &str) -> anyhow::Result<Bytes> {
    let connection =
        TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    request(connection, address, method, path).await
}
