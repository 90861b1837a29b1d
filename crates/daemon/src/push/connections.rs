//! The connected proxies: what each was sent, what it accepted and what it rejected.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use canopus_base::hash::ContentHash;
use canopus_mesh::proxy::Proxy;
use canopus_xds::session::Protocol;
use canopus_xds::types::Types;
use canopus_xds::{Interest, Mailbox, Peer, ResourceSet, SessionEvent};
use parking_lot::{Mutex, RwLock};

use super::observer::Observers;
use super::stamp::Stamp;

/// Revisions that a proxy is known not to have acknowledged; of more, the oldest are forgotten.
const MOST_OUTSTANDING: usize = 256;

/// Names a connection; never used twice in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A connected proxy.
pub struct Connection {
    /// Identifies the connection within this process.
    pub id: ConnectionId,
    /// Who it says it is, and who it proved to be.
    pub proxy: Proxy,
    /// The variant of xDS it speaks.
    pub protocol: Protocol,
    /// Where it connected from.
    pub address: Option<SocketAddr>,
    /// When it connected.
    pub connected: Stamp,
    mailbox: Arc<Mailbox>,
    /// The last revision it was pushed something of; zero once it has everything.
    underway: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order the client asked for them. There are a handful: a map would make room for eleven.
    types: Vec<(Arc<str>, TypeStatus)>,
    /// Revisions that concern it and that it has not acknowledged, ascending.
    outstanding: Vec<u64>,
    /// The last revision it has acknowledged everything of.
    settled: u64,
}

/// A message to a proxy.
#[derive(Clone, Debug)]
pub struct Message {
    /// Nonce of the response.
    pub nonce: Arc<str>,
    /// The version of the state it leads to.
    pub version: ContentHash,
    /// The revision of the world it shows.
    pub revision: u64,
    /// When it was handed to the stream.
    pub time: Stamp,
    /// How many resources it carries.
    pub resources: usize,
    /// The size of those.
    pub bytes: usize,
}

/// What a proxy certainly has of a type.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The resources.
    pub set: ResourceSet,
    /// The revision of the world they show.
    pub revision: u64,
}

/// A message a proxy did not accept.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The nonce of the message.
    pub nonce: Arc<str>,
    /// The gRPC code it gave.
    pub code: i32,
    /// The reason it gave.
    pub message: Arc<str>,
    /// When it did.
    pub time: Stamp,
}

/// What a connection is about, for one type.
#[derive(Clone, Debug, Default)]
pub struct TypeStatus {
    /// What the proxy wants.
    pub interest: Option<Interest>,
    /// What it was last sent.
    pub sent: Option<Message>,
    /// What it last accepted, with the time it said so.
    pub acked: Option<Message>,
    /// What it certainly has.
    pub accepted: Option<Accepted>,
    /// The version of the state it has, as far as it has said.
    pub version: Option<ContentHash>,
    /// What it last rejected; gone once it accepts something.
    pub rejected: Option<Box<Rejection>>,
    /// Messages it was sent so far.
    pub messages: u64,
    /// Size of the resources it was sent so far.
    pub bytes: u64,
    /// Messages it rejected so far.
    pub rejections: u64,
}

impl TypeStatus {
    /// Whether the proxy has accepted the last message it was sent.
    pub fn is_synced(&self) -> bool {
        let nonce = |message: &Option<Message>| message.as_ref().map(|message| Arc::clone(&message.nonce));
        nonce(&self.sent) == nonce(&self.acked)
    }
}

impl Connection {
    /// The name Istio gives to connections: the id of the node's workload and a number.
    pub fn name(&self) -> String {
        format!("{}-{}", self.proxy.id.id, self.id)
    }

    /// What it is about, by type.
    pub fn types(&self) -> BTreeMap<Arc<str>, TypeStatus> {
        self.state.lock().types.iter().cloned().collect()
    }

    /// What it is about, for one type.
    pub fn status(&self, type_url: &str) -> Option<TypeStatus> {
        self.state.lock().status(type_url).cloned()
    }

    /// Whether it has accepted these very bytes: a resource of this type, name and version.
    pub fn has_accepted(&self, type_url: &str, name: &str, version: ContentHash) -> bool {
        let state = self.state.lock();
        let accepted = state.status(type_url).and_then(|status| status.accepted.as_ref());
        accepted.and_then(|accepted| accepted.set.get(name)).is_some_and(|held| held.version == version)
    }

    /// Whether it has rejected something of this type since it last accepted anything of it.
    pub fn rejects(&self, type_url: &str) -> bool {
        self.state.lock().status(type_url).is_some_and(|status| status.rejected.is_some())
    }

    /// Whether it has an answer to this revision of the world, as far as that concerns it.
    pub fn has_answered(&self, revision: u64) -> bool {
        self.state.lock().outstanding.first().is_none_or(|oldest| *oldest > revision)
    }

    /// The last revision of the world it has acknowledged everything of.
    pub fn settled(&self) -> u64 {
        self.state.lock().settled
    }

    /// The revisions that concern it and that it has not acknowledged, ascending.
    pub fn outstanding(&self) -> Vec<u64> {
        self.state.lock().outstanding.clone()
    }

    /// Ends its stream; the proxy will connect again.
    pub fn dismiss(&self) {
        self.mailbox.end();
    }

    /// Whether its stream is to end.
    #[cfg(test)]
    pub(crate) fn is_dismissed(&self) -> bool {
        self.mailbox.is_ended()
    }

    /// The last revision its session was told of.
    #[cfg(test)]
    pub(super) fn told(&self) -> u64 {
        self.mailbox.revision()
    }

    /// A revision concerns it.
    pub(super) fn expect(&self, revision: u64) {
        let mut state = self.state.lock();
        state.outstanding.push(revision);
        let excess = state.outstanding.len().saturating_sub(MOST_OUTSTANDING);
        state.outstanding.drain(..excess);
    }

    /// Tells the session to compare its resources of these types with the world.
    pub(super) fn wake(&self, revision: u64, types: Types) {
        self.mailbox.revise(revision, types);
    }

    /// Notes that a push of this revision is under way; returns whether it is the first.
    pub(crate) fn begin(&self, revision: u64) -> bool {
        self.underway.swap(revision, Ordering::Relaxed) != revision
    }

    /// Notes that the client has everything; returns the last revision it was pushed, if any.
    pub(crate) fn finish(&self) -> Option<u64> {
        Some(self.underway.swap(0, Ordering::Relaxed)).filter(|revision| *revision != 0)
    }

    /// Takes the revisions up to this one that it had not acknowledged.
    fn settle(&self, revision: u64) -> Vec<u64> {
        let mut state = self.state.lock();
        state.settled = revision;
        let open = state.outstanding.partition_point(|outstanding| *outstanding <= revision);
        state.outstanding.drain(..open).collect()
    }

    /// Records what happened in its session.
    fn record(&self, event: &SessionEvent, at: Stamp) {
        let mut state = self.state.lock();
        match event {
            SessionEvent::Subscribed { type_url, interest } => {
                state.status_mut(type_url).interest = Some(interest.clone());
            }
            SessionEvent::Sent { type_url, nonce, version, revision, resources, bytes, .. } => {
                let status = state.status_mut(type_url);
                status.messages += 1;
                status.bytes += *bytes as u64;
                status.sent = Some(Message {
                    nonce: Arc::clone(nonce),
                    version: *version,
                    revision: *revision,
                    time: at,
                    resources: *resources,
                    bytes: *bytes,
                });
            }
            SessionEvent::Acked { type_url, nonce, accepted } => {
                let status = state.status_mut(type_url);
                let last = status.sent.as_ref().filter(|sent| *sent.nonce == **nonce);
                status.acked = last.map(|sent| Message { time: at, ..sent.clone() });
                status.accepted =
                    last.map(|sent| Accepted { set: accepted.clone(), revision: sent.revision });
                status.version = status.acked.as_ref().map(|acked| acked.version);
                status.rejected = None;
            }
            SessionEvent::Current { type_url, version, revision, accepted } => {
                let status = state.status_mut(type_url);
                status.accepted = Some(Accepted { set: accepted.clone(), revision: *revision });
                status.version = Some(*version);
            }
            SessionEvent::Nacked { type_url, nonce, code, message, .. } => {
                let status = state.status_mut(type_url);
                status.rejections += 1;
                status.rejected = Some(Box::new(Rejection {
                    nonce: nonce.as_str().into(),
                    code: *code,
                    message: message.as_str().into(),
                    time: at,
                }));
            }
            SessionEvent::Expired { .. } | SessionEvent::Reported { .. } | SessionEvent::Settled { .. } => {}
        }
    }
}

impl State {
    fn status(&self, type_url: &str) -> Option<&TypeStatus> {
        self.types.iter().find(|(held, _)| **held == *type_url).map(|(_, status)| status)
    }

    fn status_mut(&mut self, type_url: &Arc<str>) -> &mut TypeStatus {
        // A session names a type by the same allocation each time, mostly.
        let same = self.types.iter().position(|(held, _)| Arc::ptr_eq(held, type_url));
        let at = same.or_else(|| self.types.iter().position(|(held, _)| held == type_url));
        let at = at.unwrap_or_else(|| {
            self.types.reserve_exact(1);
            self.types.push((Arc::clone(type_url), TypeStatus::default()));
            self.types.len() - 1
        });
        &mut self.types[at].1
    }
}

/// All connected proxies. Observers are told when one connects, what happens in its session, and when it disconnects.
#[derive(Default)]
pub struct Connections {
    observers: Observers,
    last: AtomicU64,
    open: RwLock<BTreeMap<ConnectionId, Arc<Connection>>>,
}

impl Connections {
    /// No connections yet.
    pub fn new(observers: Observers) -> Arc<Self> {
        Arc::new(Self { observers, ..Self::default() })
    }

    /// Adds a proxy; `revision` is the world it starts from.
    pub(crate) fn connect(&self, proxy: Proxy, peer: &Peer, revision: u64) -> Arc<Connection> {
        peer.mailbox.revise(revision, Types::ALL);
        let id = ConnectionId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let connection = Arc::new(Connection {
            id,
            proxy,
            protocol: peer.protocol,
            address: peer.address,
            connected: Stamp::now(),
            mailbox: Arc::clone(&peer.mailbox),
            underway: AtomicU64::new(0),
            state: Mutex::default(),
        });
        self.open.write().insert(id, Arc::clone(&connection));
        self.observers.tell(|observer| observer.connected(&connection));
        connection
    }

    /// Removes a proxy that is gone.
    pub(crate) fn disconnect(&self, connection: &Connection) {
        self.open.write().remove(&connection.id);
        let outstanding = connection.settle(u64::MAX);
        self.observers.tell(|observer| observer.disconnected(connection, &outstanding));
    }

    /// Records what happened in a proxy's session.
    pub(crate) fn record(&self, connection: &Connection, event: &SessionEvent) {
        // Reading the clock costs as much as most of what follows, so all of them get the same time.
        let now = Stamp::now();
        connection.record(event, now);
        if let SessionEvent::Settled { revision } = event {
            let settled = connection.settle(*revision);
            self.observers.tell(|observer| observer.settled(connection, &settled, now));
        }
        self.observers.tell(|observer| observer.happened(connection, event, now));
    }

    /// A response was taken by a proxy's transport after this time.
    pub(crate) fn handed_over(&self, took: Duration) {
        self.observers.tell(|observer| observer.handed_over(took));
    }

    /// Reports that a resource that a proxy asked for could not be generated.
    pub(crate) fn generation_failed(&self) {
        self.observers.tell(|observer| observer.failed());
    }

    /// One connection, if it is still open.
    pub fn get(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.open.read().get(&id).cloned()
    }

    /// The connections of these that are still open, each with the value beside its id.
    pub(super) fn named<T>(
        &self,
        ids: impl IntoIterator<Item = (ConnectionId, T)>,
    ) -> Vec<(Arc<Connection>, T)> {
        let open = self.open.read();
        let found = ids.into_iter().filter_map(|(id, with)| Some((Arc::clone(open.get(&id)?), with)));
        found.collect()
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<Arc<Connection>> {
        self.open.read().values().cloned().collect()
    }

    /// The connections of a proxy, by its workload's id (`pod.namespace`), its whole node id, or the id of the connection.
    pub fn connections_of_proxy(&self, name: &str) -> Vec<Arc<Connection>> {
        let mut found = self.all();
        found.retain(|connection| {
            let proxy = &connection.proxy;
            proxy.id.id == name || proxy.node_id == name || connection.name() == name
        });
        found
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
