//! ZDS: how ztunnel learns of the pods of its node.
//!
//! ```text
//!  ztunnel ── connects (SEQPACKET) ──► agent
//!          ── ZdsHello ──────────────►
//!          ◄── AddWorkload + namespace, one by one, each acknowledged; KeepWorkload where there is no namespace
//!          ◄── SnapshotSent
//!          ◄── AddWorkload / DelWorkload, as they happen
//! ```
//!
//! The network namespace of a pod travels as an open file, so ztunnel needs no access to the host's files. While ztunnel is
//! replaced two of them are connected: the later one gets new pods, both hear of pods that end.
//!
//! Invariant: a connection is registered under the same lock under which its snapshot is taken. A pod is thus in the snapshot
//! or is sent afterwards, and a ztunnel that has seen the snapshot forgets no pod that is still there.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use canopus_proto::Message as _;
use canopus_proto::istio::workload::zds::{
    AddWorkload, DelWorkload, KeepWorkload, SnapshotSent, WorkloadInfo, WorkloadRequest, WorkloadResponse,
    ZdsHello, workload_request::Payload, workload_response,
};
use canopus_runtime::metrics::{Registry, catalogue};
use canopus_runtime::tasks;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, SockType, getsockopt, recv, sendmsg};
use parking_lot::Mutex;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::pod::Pod;
use crate::sockets;

/// How long ztunnel may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers larger than this are refused; they are an error text at most.
const MAX_MESSAGE: usize = 16 << 10;

/// Updates that wait for one ztunnel.
const QUEUE: usize = 128;

/// Why a pod was not handed over.
#[derive(Debug, thiserror::Error)]
pub enum ZdsError {
    /// No ztunnel is connected.
    #[error("no ztunnel is connected; is its pod running on this node?")]
    NoZtunnel,
    /// The ztunnel closed the connection.
    #[error("ztunnel closed its connection before it acknowledged")]
    Closed,
    /// The ztunnel refused the workload.
    #[error("ztunnel refused: {0}")]
    Refused(String),
    /// The peer sent no message in time.
    #[error("ztunnel did not acknowledge in {PATIENCE:?}")]
    Silent,
    /// The socket fails.
    #[error("ztunnel's connection: {0}")]
    Io(#[from] io::Error),
    /// The ztunnel's message cannot be decoded.
    #[error("ztunnel's answer cannot be understood: {0}")]
    Malformed(String),
}

/// A pod as ztunnel is told of it.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    namespace: String,
    service_account: String,
    /// The pod's network namespace, if it is known.
    pub network: Option<Arc<OwnedFd>>,
}

impl Workload {
    /// What is told of a pod.
    pub fn new(pod: &Pod, network: Option<Arc<OwnedFd>>) -> Self {
        Self {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            service_account: pod.spec.service_account_name.clone(),
            network,
        }
    }

    fn request(&self, uid: &str) -> Payload {
        match &self.network {
            None => Payload::Keep(KeepWorkload { uid: uid.to_owned() }),
            Some(_) => Payload::Add(AddWorkload {
                uid: uid.to_owned(),
                workload_info: Some(WorkloadInfo {
                    name: self.name.clone(),
                    namespace: self.namespace.clone(),
                    service_account: self.service_account.clone(),
                }),
            }),
        }
    }
}

struct Update {
    payload: Payload,
    network: Option<Arc<OwnedFd>>,
    acknowledged: oneshot::Sender<Result<(), ZdsError>>,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Workload>,
    /// In the order in which they connected.
    connections: Vec<(u64, mpsc::Sender<Update>)>,
    next: u64,
}

/// The server.
#[derive(Clone)]
pub struct ZtunnelServer {
    state: Arc<Mutex<State>>,
    metrics: Registry,
}

impl ZtunnelServer {
    /// A server that knows no pods and does not listen yet.
    pub fn new(metrics: Registry) -> Self {
        Self { state: Arc::default(), metrics }
    }

    /// The network namespace of a pod, if it is known.
    pub fn network(&self, uid: &str) -> Option<Arc<OwnedFd>> {
        self.state.lock().pods.get(uid)?.network.clone()
    }

    /// Whether a pod is known, with or without its namespace.
    pub fn knows(&self, uid: &str) -> bool {
        self.state.lock().pods.contains_key(uid)
    }

    /// Makes a pod part of snapshots, without telling a ztunnel that is connected.
    pub fn remember(&self, uid: &str, workload: Workload) {
        self.state.lock().pods.insert(uid.to_owned(), workload);
    }

    /// Leaves a pod out of snapshots from now on, without telling a ztunnel that is connected.
    pub fn forget(&self, uid: &str) {
        self.state.lock().pods.remove(uid);
    }

    /// Hands a pod to the ztunnel that connected last, and waits until it has taken it.
    pub async fn add(&self, uid: &str, workload: Workload) -> Result<(), ZdsError> {
        let (payload, network) = (workload.request(uid), workload.network.clone());
        let latest = {
            let mut state = self.state.lock();
            state.pods.insert(uid.to_owned(), workload);
            state.connections.last().map(|(_, connection)| connection.clone())
        };
        send(&latest.ok_or(ZdsError::NoZtunnel)?, payload, network).await
    }

    /// Tells every ztunnel that a pod is gone.
    pub async fn remove(&self, uid: &str) -> Result<(), ZdsError> {
        let connections: Vec<_> = {
            let mut state = self.state.lock();
            state.pods.remove(uid);
            state.connections.iter().map(|(_, connection)| connection.clone()).collect()
        };
        for connection in connections {
            let payload = Payload::Del(DelWorkload { uid: uid.to_owned() });
            match send(&connection, payload, None).await {
                // A ztunnel that left has forgotten the pod with all others.
                Ok(()) | Err(ZdsError::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens the socket and serves it until the future is dropped.
    pub async fn serve(&self, path: &Path) -> io::Result<std::convert::Infallible> {
        sockets::prepare(path)?;
        let listener = Socket::new(Domain::UNIX, Type::from(SockType::SeqPacket as i32), None)?;
        listener.bind(&SockAddr::unix(path)?)?;
        sockets::restrict(path)?;
        listener.listen(16)?;
        listener.set_nonblocking(true)?;
        let listener = ready(listener)?;
        tracing::info!("waiting for ztunnel at {}", path.display());
        loop {
            let accepted = listener.async_io(Interest::READABLE, |listener| {
                let (connection, _) = listener.accept()?;
                connection.set_nonblocking(true)?;
                Ok(connection)
            });
            match accepted.await {
                Ok(connection) => self.accept(connection.into()),
                Err(error) => {
                    tracing::warn!("cannot accept a ztunnel: {error}");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    fn accept(&self, connection: OwnedFd) {
        match getsockopt(&connection, PeerCredentials) {
            Ok(peer) if sockets::is_trusted(peer.uid()) => {
                let server = self.clone();
                tasks::detach("a ztunnel's connection", async move {
                    if let Err(error) = server.converse(connection).await {
                        tracing::warn!("a ztunnel's connection ended: {error}");
                    }
                });
            }
            Ok(peer) => tracing::warn!("user {} is not a ztunnel; refused", peer.uid()),
            Err(error) => tracing::warn!("a peer without credentials is refused: {error}"),
        }
    }

    async fn converse(&self, connection: OwnedFd) -> Result<(), ZdsError> {
        let mut connection = Connection::new(connection)?;
        let hello: ZdsHello = connection.receive().await?.ok_or(ZdsError::Closed)?;
        let (sender, mut updates) = mpsc::channel(QUEUE);
        let (_registration, snapshot) = self.register(sender);
        tracing::info!("ztunnel connected (version {}), sending {} pods", hello.version, snapshot.len());
        for (uid, workload) in snapshot {
            match connection.exchange(workload.request(&uid), workload.network).await {
                Err(ZdsError::Refused(reason)) => tracing::error!("ztunnel refused pod {uid}: {reason}"),
                result => result?,
            }
        }
        connection.exchange(Payload::SnapshotSent(SnapshotSent {}), None).await?;
        loop {
            tokio::select! {
                update = updates.recv() => {
                    let Some(update) = update else { return Ok(()) };
                    let result = connection.exchange(update.payload, update.network).await;
                    let is_over = matches!(result, Err(ZdsError::Io(_) | ZdsError::Closed | ZdsError::Silent));
                    let _ = update.acknowledged.send(result);
                    // After silence one cannot tell which message an answer is for.
                    if is_over {
                        return Err(ZdsError::Closed);
                    }
                }
                message = connection.next() => match message? {
                    None => {
                        tracing::info!("ztunnel disconnected");
                        return Ok(());
                    }
                    Some(_) => return Err(ZdsError::Malformed("a message that was not asked for".to_owned())),
                }
            }
        }
    }

    fn register(&self, sender: mpsc::Sender<Update>) -> (Registration, BTreeMap<String, Workload>) {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.connections.push((id, sender));
        self.count(state.connections.len());
        (Registration { server: self.clone(), id }, state.pods.clone())
    }

    fn count(&self, connections: usize) {
        self.metrics.family(catalogue::ZTUNNEL_CONNECTED).with([]).set(connections as f64);
    }
}

/// Ends with the connection.
struct Registration {
    server: ZtunnelServer,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.server.state.lock();
        state.connections.retain(|(id, _)| *id != self.id);
        self.server.count(state.connections.len());
    }
}

async fn send(
    connection: &mpsc::Sender<Update>,
    payload: Payload,
    network: Option<Arc<OwnedFd>>,
) -> Result<(), ZdsError> {
    let (acknowledged, answer) = oneshot::channel();
    let update = Update { payload, network, acknowledged };
    connection.send(update).await.map_err(|_| ZdsError::Closed)?;
    answer.await.unwrap_or(Err(ZdsError::Closed))
}

/// Lets a socket be waited for.
#[expect(
    deprecated,
    reason = "unsound only for types that do not own their file; its successor takes unsafe code"
)]
fn ready<T: std::os::fd::AsRawFd + Into<OwnedFd>>(socket: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(socket)
}

struct Connection {
    socket: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: ready(socket)?, buffer: vec![0; MAX_MESSAGE] })
    }

    /// Sends a message and waits for its acknowledgement.
    async fn exchange(&mut self, payload: Payload, network: Option<Arc<OwnedFd>>) -> Result<(), ZdsError> {
        let bytes = WorkloadRequest { payload: Some(payload) }.encode_to_vec();
        let sending = self.socket.async_io(Interest::WRITABLE, |socket| {
            let files: Vec<_> = network.iter().map(|network| network.as_fd().as_raw_fd()).collect();
            let rights = [ControlMessage::ScmRights(&files)];
            let control = if files.is_empty() { &[][..] } else { &rights[..] };
            let parts = [IoSlice::new(&bytes)];
            Ok(sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)?)
        });
        timeout(PATIENCE, sending).await.map_err(|_| ZdsError::Silent)??;
        let answer: WorkloadResponse = self.receive().await?.ok_or(ZdsError::Closed)?;
        match answer.payload {
            Some(workload_response::Payload::Ack(ack)) if ack.error.is_empty() => Ok(()),
            Some(workload_response::Payload::Ack(ack)) => Err(ZdsError::Refused(ack.error)),
            None => Err(ZdsError::Malformed("an answer without an acknowledgement".to_owned())),
        }
    }

    async fn receive<M: canopus_proto::Message + Default>(&mut self) -> Result<Option<M>, ZdsError> {
        let received = timeout(PATIENCE, self.next()).await.map_err(|_| ZdsError::Silent)??;
        let Some(bytes) = received else { return Ok(None) };
        M::decode(bytes).map(Some).map_err(|error| ZdsError::Malformed(error.to_string()))
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<&[u8]>, ZdsError> {
        let buffer = &mut self.buffer;
        let length = self
            .socket
            .async_io(Interest::READABLE, |socket| Ok(recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC)?))
            .await?;
        match length {
            0 => Ok(None),
            length if length > self.buffer.len() => {
                Err(ZdsError::Malformed(format!("a message of {length} bytes; {MAX_MESSAGE} are the most")))
            }
            length => Ok(Some(&self.buffer[..length])),
        }
    }
}
