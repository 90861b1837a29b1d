//! The sockets of the name server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use canopus_runtime::tasks::{Tasks, detach};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{DnsError, NameServer, Reaction, Transport};

/// Queries are small; a longer datagram is cut off and then refused.
const MAX_DATAGRAM: usize = 4096;
/// Connections at a time; others wait.
const MAX_CONNECTIONS: usize = 128;
/// Queries of a connection before it is closed.
const MAX_QUERIES: usize = 128;
/// A connection without a query is closed.
const IDLE: Duration = Duration::from_secs(8);
/// Forwarded datagrams under way; the forwarder has its own limit, which this keeps tasks close to.
const MAX_TASKS: usize = 2048;

/// Serves both transports on an address.
pub(super) async fn start(
    server: &Arc<NameServer>,
    address: SocketAddr,
    tasks: &Tasks,
) -> Result<(), DnsError> {
    let failed = |protocol| move |error| DnsError::Bind { address, protocol, error };
    let socket = UdpSocket::bind(address).await.map_err(failed("udp"))?;
    let listener = TcpListener::bind(address).await.map_err(failed("tcp"))?;
    tasks.spawn("names over UDP", serve_datagrams(Arc::new(socket), Arc::clone(server)));
    tasks.spawn("names over TCP", serve_connections(listener, Arc::clone(server)));
    Ok(())
}

async fn serve_datagrams(socket: Arc<UdpSocket>, server: Arc<NameServer>) {
    let tasks = Arc::new(Semaphore::new(MAX_TASKS));
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // An earlier answer could not be delivered; that says nothing about the socket.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                warn!(target: "dns", "cannot receive: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let query = match server.react(&buffer[..length], Transport::Udp) {
            Reaction::Ignore => continue,
            Reaction::Answer(answer) => {
                send(&socket, &answer, peer).await;
                continue;
            }
            Reaction::Forward(query) => query,
        };
        let Ok(task) = Arc::clone(&tasks).try_acquire_owned() else {
            send(&socket, &query.failure(), peer).await;
            continue;
        };
        let (socket, server) = (Arc::clone(&socket), Arc::clone(&server));
        detach("forwarded query", async move {
            let answer = server.forward(&query, Transport::Udp).await;
            send(&socket, &answer, peer).await;
            drop(task);
        });
    }
}

async fn send(socket: &UdpSocket, answer: &[u8], peer: SocketAddr) {
    let sent = match socket.try_send_to(answer, peer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.send_to(answer, peer).await,
        sent => sent,
    };
    if let Err(error) = sent {
        debug!(target: "dns", "no answer to {peer}: {error}");
    }
}

async fn serve_connections(listener: TcpListener, server: Arc<NameServer>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(target: "dns", "cannot accept: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let server = Arc::clone(&server);
        detach("DNS connection", async move {
            if let Err(error) = serve_connection(stream, &server).await {
                debug!(target: "dns", "a connection ended: {error}");
            }
            drop(permit);
        });
    }
}

async fn serve_connection(mut stream: TcpStream, server: &NameServer) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    for _ in 0..MAX_QUERIES {
        let Ok(packet) = timeout(IDLE, read_message(&mut stream)).await else { return Ok(()) };
        let answer = match server.react(&packet?, Transport::Tcp) {
            Reaction::Ignore => return Ok(()),
            Reaction::Answer(answer) => answer,
            Reaction::Forward(query) => server.forward(&query, Transport::Tcp).await,
        };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the client does not read");
        timeout(IDLE, stream.write_all(&framed)).await.unwrap_or_else(|_| Err(late()))?;
    }
    Ok(())
}

/// A message after its length. Room is made as bytes come, not as the length promises.
async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut packet = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut packet).await?;
    if packet.len() < usize::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(packet)
}
