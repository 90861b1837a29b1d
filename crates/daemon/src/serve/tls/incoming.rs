//! Connections that have shaken hands.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

use super::super::grpc::prompt;
use super::{Acceptor, verifier};
use crate::authentication::Caller;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many handshakes may be under way at once. Whoever comes on top waits in the listener's own queue.
const AT_ONCE: usize = 1024;

/// How long to wait after a connection could not be accepted, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection over TLS.
pub struct TlsConnection {
    stream: TlsStream<TcpStream>,
    caller: Caller,
}

impl TlsConnection {
    /// The peer of the connection.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl Connected for TlsConnection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

/// The connections of a listener, each as soon as its handshake is done. Those that fail or take too long are dropped.
pub fn incoming(listener: TcpListener, acceptor: Acceptor) -> impl Stream<Item = io::Result<TlsConnection>> {
    let (ready, connections) = mpsc::channel(16);
    let handshakes = Arc::new(Semaphore::new(AT_ONCE));
    tokio::spawn(async move {
        loop {
            let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ready.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => prompt(stream),
                Err(error) => {
                    warn!(%error, "a connection cannot be accepted");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let (acceptor, ready) = (acceptor.clone(), ready.clone());
            tokio::spawn(async move {
                let address = stream.peer_addr().ok();
                match timeout(PATIENCE, shake_hands(stream, &acceptor)).await {
                    Ok(Ok(connection)) => {
                        let _ = ready.send(Ok(connection)).await;
                    }
                    Ok(Err(error)) => debug!(peer = ?address, %error, "the handshake failed"),
                    Err(_) => debug!(peer = ?address, "the handshake took too long"),
                }
                drop(permit);
            });
        }
    });
    ReceiverStream::new(connections)
}

async fn shake_hands(stream: TcpStream, acceptor: &Acceptor) -> io::Result<TlsConnection> {
    let address = stream.peer_addr().ok();
    stream.set_nodelay(true)?;
    let stream = TlsAcceptor::from(acceptor.current()).accept(stream).await?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let identities = leaf.map(verifier::identities).unwrap_or_default();
    Ok(TlsConnection { stream, caller: Caller { address, identities: Some(identities) } })
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
