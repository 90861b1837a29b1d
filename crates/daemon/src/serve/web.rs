//! The HTTP ports, with and without TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;
use tokio_stream::{Stream, StreamExt as _};
use tower_service::Service as _;
use tracing::{debug, warn};

use super::tls::TlsConnection;

/// How long a client may take to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many connections a port has at once. Whoever comes on top waits in the listener's own queue.
const MAX_CONNECTIONS: usize = 512;

/// How many requests one HTTP/2 connection may have under way.
const MAX_REQUESTS: u32 = 64;

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// How long to wait after a connection could not be accepted, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a quiet HTTP/2 connection is probed.
const PROBE: Duration = Duration::from_secs(90);

/// A connection HTTP can be spoken over.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Where the client connected from.
    fn remote(&self) -> Option<SocketAddr>;
}

impl Transport for TcpStream {
    fn remote(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }
}

impl Transport for TlsConnection {
    fn remote(&self) -> Option<SocketAddr> {
        self.caller().address
    }
}

/// Serves connections until `shutdown`; requests under way are answered.
pub(crate) async fn serve<IO>(
    incoming: impl Stream<Item = io::Result<IO>>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) where
    IO: Transport,
{
    let (stop, stopping) = watch::channel(false);
    let mut incoming = std::pin::pin!(incoming);
    let mut shutdown = std::pin::pin!(shutdown);
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&room, incoming.as_mut()) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Some(Ok((connection, permit))) => {
                let conversation = converse(connection, router.clone(), stopping.clone());
                tokio::spawn(async move {
                    conversation.await;
                    drop(permit);
                });
            }
            Some(Err(error)) => {
                warn!(%error, "a connection cannot be accepted");
                sleep(PAUSE).await;
            }
            None => break,
        }
    }
    drop(stopping);
    stop.send_replace(true);
    stop.closed().await;
}

/// The next connection, once there is room for one.
async fn accept<IO>(
    room: &Arc<Semaphore>,
    mut incoming: Pin<&mut impl Stream<Item = io::Result<IO>>>,
) -> Option<io::Result<(IO, OwnedSemaphorePermit)>> {
    // The semaphore is never closed.
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    let accepted = incoming.next().await?;
    Some(accepted.map(|connection| (connection, permit)))
}

async fn stop(stopping: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Serves one connection.
async fn converse(connection: impl Transport, router: Router, mut stopping: watch::Receiver<bool>) {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(MAX_HEAD);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PROBE)
        .max_concurrent_streams(MAX_REQUESTS)
        .max_header_list_size(MAX_HEAD as u32);
    let remote = connection.remote();
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(remote) = remote {
            request.extensions_mut().insert(ConnectInfo(remote));
        }
        router.clone().call(request)
    });
    let serving = server.serve_connection(TokioIo::new(connection), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop(&mut stopping) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended badly");
    }
}
