//! Unary gRPC calls, for callers without a generated client.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header, request};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Error, ReadError, Version, collect, send};

/// What precedes a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request is not valid.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The server does not speak HTTP/2, or the connection broke.
    #[error("{0}")]
    Connection(#[from] Error),
    /// The answer could not be read.
    #[error("{0}")]
    Read(#[from] ReadError),
}

/// The answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// The status of HTTP, which says nothing about the call unless there is no `grpc_status`.
    pub status: StatusCode,
    /// The status of the call, such as `0` for success.
    pub grpc_status: Option<HeaderValue>,
    /// The first message, without its prefix; `None` if there is none.
    pub message: Option<Bytes>,
}

/// Makes a call on a stream of its own. `request` has the absolute URI of the method, and headers beside those of gRPC.
pub async fn call<S>(
    stream: S,
    request: request::Builder,
    message: &[u8],
    limit: usize,
) -> Result<Answer, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put(message);
    let request = request
        .method(http::Method::POST)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(framed.freeze())?;
    let (head, body) = send(stream, Version::Http2, request).await?.into_parts();
    let answer = collect(body, limit).await?;
    // A call that failed at once has its status in the head.
    let trailers = answer.trailers().cloned().unwrap_or_default();
    let grpc_status = head.headers.get("grpc-status").or_else(|| trailers.get("grpc-status")).cloned();
    let answer = answer.to_bytes();
    let message = (answer.len() >= PREFIX).then(|| answer.slice(PREFIX..));
    Ok(Answer { status: head.status, grpc_status, message })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::duplex;

    use super::*;

    /// A server that answers every call with the bytes it was sent.
    async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let sent = request.into_body().collect().await.unwrap().to_bytes();
        Ok(Response::builder().header("grpc-status", "0").body(Full::new(sent)).unwrap())
    }

    #[tokio::test]
    async fn call_has_the_first_message_and_the_status() {
        let (ours, theirs) = duplex(1024);
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(theirs), service_fn(echo)));
        let request = Request::builder().uri("http://here/package.Service/Method");
        let answer = call(ours, request, b"message", 100).await.unwrap();
        assert_eq!(answer.grpc_status.unwrap(), "0");
        assert_eq!(answer.message.unwrap(), "message");
    }
}
