//! HTTP requests as a client, over connections that the caller makes.
//!
//! Every program of the project asks some server a question: for the keys of a token issuer, for a Wasm module, for a page of
//! Envoy's admin interface, whether an application is alive. Who may be connected to, over what, and how the server must prove
//! itself differs for each, so callers connect, and this crate does what is the same for all:
//!
//! - [`send`] makes one request on a stream and returns the response as soon as its head is there.
//! - [`read`] collects a body up to a limit; a server never decides how much memory its answer takes.
//! - [`grpc::call`] makes one unary gRPC call.
//! - [`tls`] has the settings of TLS clients.
//!
//! A response drives its own connection: the [`Body`] polls it while it is read, and dropping the future or the response closes
//! the stream. So an exchange that is abandoned, by a timeout for example, leaves nothing behind, and callers start no tasks.
//!
//! On hyper's connections, because clients that bring everything with them (reqwest, hyper-util's) resolve names and connect by
//! themselves: an address could not be checked between the two, and they have no Unix sockets.

pub mod grpc;
pub mod tls;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Collected, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

pub use hyper::Error;

/// The version of HTTP that a connection speaks. For TLS, ALPN decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without upgrade from HTTP/1.1.
    Http2,
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The body of a response. It drives the connection while it is read, and closes it when it is dropped.
pub struct Body {
    /// `None` once the connection has ended.
    connection: Option<Driver>,
    incoming: Incoming,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Body").field(&self.incoming).finish()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        drive(&mut this.connection, cx);
        Pin::new(&mut this.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Lets a connection read and write. An error of the connection reaches the request or the body as well.
fn drive(connection: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(driver) = connection
        && driver.as_mut().poll(cx).is_ready()
    {
        *connection = None;
    }
}

/// Sends a request on a stream of its own and waits for the head of the response.
///
/// The request is sent as it is: HTTP/1.1 wants a path as its URI and a `Host` header, HTTP/2 an absolute URI.
pub async fn send<S>(stream: S, version: Version, request: Request<Bytes>) -> Result<Response<Body>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (io, request) = (TokioIo::new(stream), request.map(Full::new));
    match version {
        Version::Http1 => {
            let (mut sender, connection) = http1::handshake(io).await?;
            respond(sender.send_request(request), Box::pin(connection)).await
        }
        Version::Http2 => {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            respond(sender.send_request(request), Box::pin(connection)).await
        }
    }
}

async fn respond(
    sent: impl Future<Output = Result<Response<Incoming>, Error>>,
    connection: Driver,
) -> Result<Response<Body>, Error> {
    let (mut sent, mut connection) = (pin!(sent), Some(connection));
    let response = poll_fn(|cx| {
        drive(&mut connection, cx);
        sent.as_mut().poll(cx)
    });
    let response = response.await?;
    Ok(response.map(|incoming| Body { connection, incoming }))
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The body is longer than the caller's limit.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The connection ended before the body did.
    #[error("the answer broke off: {0}")]
    Broken(String),
}

/// Reads a body up to a limit, with its trailers.
pub async fn collect(body: Body, limit: usize) -> Result<Collected<Bytes>, ReadError> {
    Limited::new(body, limit).collect().await.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(_) => ReadError::TooLong(limit),
        Err(error) => ReadError::Broken(error.to_string()),
    })
}

/// Reads a body up to a limit.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, ReadError> {
    collect(body, limit).await.map(Collected::to_bytes)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A server that reads a request's head and writes this, then hangs up.
    fn server(answer: &'static [u8]) -> DuplexStream {
        let (ours, mut theirs) = duplex(64);
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(theirs.read_u8().await.unwrap());
            }
            theirs.write_all(answer).await.unwrap();
        });
        ours
    }

    fn request() -> Request<Bytes> {
        Request::get("/").header("host", "here").body(Bytes::new()).unwrap()
    }

    async fn ask(answer: &'static [u8]) -> Result<Response<Body>, Error> {
        send(server(answer), Version::Http1, request()).await
    }

    #[tokio::test]
    async fn body_is_read_up_to_its_limit() {
        // Longer than the pipe holds at once, so the body has to drive the connection.
        const LONG: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
        let response = ask(LONG).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(read(response.into_body(), 100).await.unwrap().len(), 100);
        let response = ask(LONG).await.unwrap();
        assert!(matches!(read(response.into_body(), 99).await, Err(ReadError::TooLong(99))));
    }

    #[tokio::test]
    async fn server_that_hangs_up_is_an_error_and_not_an_empty_answer() {
        ask(b"").await.unwrap_err();
        ask(b"SSH-2.0\r\n\r\n").await.unwrap_err();
        let response = ask(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab").await.unwrap();
        assert!(matches!(read(response.into_body(), 10).await, Err(ReadError::Broken(_))));
    }

    #[tokio::test]
    async fn body_without_length_ends_with_the_connection() {
        let response = ask(b"HTTP/1.0 200 OK\r\n\r\nall of it").await.unwrap();
        assert_eq!(read(response.into_body(), 10).await.unwrap(), "all of it");
    }

    #[tokio::test]
    async fn abandoned_exchange_closes_its_stream() {
        let (ours, mut theirs) = duplex(1024);
        let waiting = send(ours, Version::Http1, request());
        tokio::time::timeout(std::time::Duration::from_millis(20), waiting).await.unwrap_err();
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.unwrap();
        assert!(received.starts_with(b"GET / HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&received));
    }
}
