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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, timeout};
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;

    impl Transport for DuplexStream {
        fn remote(&self) -> Option<SocketAddr> {
            None
        }
    }

    /// A port to which connections are given by hand.
    struct Port {
        incoming: mpsc::UnboundedSender<io::Result<DuplexStream>>,
        served: JoinHandle<()>,
    }

    impl Port {
        fn open() -> Self {
            let (incoming, accepted) = mpsc::unbounded_channel();
            let router = Router::new().route("/", get(|| async { "here" }));
            let served =
                tokio::spawn(serve(UnboundedReceiverStream::new(accepted), router, std::future::pending()));
            Self { incoming, served }
        }

        fn connect(&self) -> DuplexStream {
            let (near, far) = duplex(64 * 1024);
            self.incoming.send(Ok(far)).unwrap();
            near
        }
    }

    impl Drop for Port {
        fn drop(&mut self) {
            self.served.abort();
        }
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// Whether a request on this connection is answered soon.
    async fn answers(stream: &mut DuplexStream) -> bool {
        stream.write_all(REQUEST).await.unwrap();
        let mut answer = [0; 12];
        let read = timeout(Duration::from_secs(1), stream.read_exact(&mut answer)).await;
        matches!(read, Ok(Ok(_))) && &answer == b"HTTP/1.1 200"
    }

    #[tokio::test(start_paused = true)]
    async fn connection_on_top_of_too_many_waits_until_one_ends() {
        let port = Port::open();
        let mut open: Vec<DuplexStream> = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = port.connect();
            assert!(answers(&mut stream).await);
            open.push(stream);
        }
        let mut late = port.connect();
        assert!(!answers(&mut late).await, "there is no room");
        open.pop();
        let mut answer = [0; 12];
        timeout(Duration::from_secs(1), late.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }

    #[tokio::test(start_paused = true)]
    async fn head_that_takes_too_long_ends_the_connection() {
        let port = Port::open();
        let mut stream = port.connect();
        let start = Instant::now();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(!String::from_utf8_lossy(&rest).contains(" 200 "));
        assert!((PATIENCE..PATIENCE * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn failure_to_accept_is_followed_by_a_pause_and_not_by_the_end() {
        let port = Port::open();
        let start = Instant::now();
        for _ in 0..10 {
            port.incoming.send(Err(io::Error::other("no file descriptors"))).unwrap();
        }
        assert!(answers(&mut port.connect()).await);
        assert!(start.elapsed() >= 10 * PAUSE, "{:?}", start.elapsed());
    }
}
