//! Quarantine: withholds objects whose effect proxies reject, so that everything else keeps flowing.
//!
//! A proxy that rejects a response (NACK) keeps its earlier resources until the response is another. Every object that shares
//! a resource with one bad object is stuck with it. So the [`QuarantineController`], a part of the apply loop, traces a
//! rejection: from the rejected resources, through the reads they were made from, to the objects that changed since the proxy
//! last accepted them. These are the *suspects*. It serves the proxy the suspects' earlier values, then serves the suspects
//! again a few at a time until the *guilty* ones are known ([`trial`]). A guilty object stays at its earlier value, or absent,
//! until its owner changes it or a later retry succeeds.
//!
//! Invariants:
//!
//! - A hold applies to its members only: the proxies that rejected, each by itself, what follows from the object. They are
//!   served from an overlay; the engine's world is always what owners wrote. So no proxy decides over another.
//! - A proxy that rejects bytes which a sibling accepts ([`siblings`]) is alone with it, and nothing is held for it.
//! - A proxy without a proven identity is not believed, and policies that protect the mesh are never held.
//! - A proxy that connects is first sent what owners wrote. Holds do not outlive the process.
//!
//! `docs/quarantine.md` explains it for users.

mod controller;
mod history;
mod nack;
mod siblings;
mod suspects;
mod trial;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use canopus_api::Object;
use canopus_base::hash::ContentHash;
use canopus_mesh::world::Origin;
use canopus_xds::{ResourceSet, SessionEvent};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use controller::QuarantineController;
pub use nack::{Contested, Nack};

use crate::push::{Connection, ConnectionId, Observer, Replaced, Stamp};

/// Rejections that are kept to be shown.
const SHOWN: usize = 64;

/// Rejections that wait to be looked into; more would say the same again.
const WAITING: usize = 64;

/// Versions of resources that are remembered as nothing to be held for.
const CLEARED: usize = 1024;

/// Objects that are held at once; a mesh that needs more has another problem.
const MOST_HELD: usize = 64;

/// Objects that are held for one identity alone; so many at most, that others have room too.
const MOST_HELD_FOR_ONE: usize = 16;

/// Rejections of one identity that wait to be looked into.
const WAITING_OF_ONE: usize = 4;

/// Rejections that are remembered so that the same is not looked into again.
const REMEMBERED: usize = 1024;

/// Proxies that are named with a hold.
const NAMED: usize = 32;

/// What is rejected, and what is held for it: the record that the controller writes and others read.
#[derive(Default)]
pub struct Quarantine {
    /// Whether anything is ever held.
    enabled: AtomicBool,
    /// Whether acknowledgements can make a difference, as something is held.
    attentive: AtomicBool,
    /// Whether a case is under investigation, so that it matters who is up to date.
    investigating: AtomicBool,
    /// Whether any client may reject something at present; mostly none does, and all clients acknowledge all the time.
    is_contested: AtomicBool,
    state: Mutex<State>,
    bell: Notify,
}

/// Names a hold: the object, and the case in which it was found guilty. Members of other cases have other values of it.
pub(crate) type HoldKey = (Origin, u64);

#[derive(Default)]
struct State {
    holds: BTreeMap<HoldKey, Hold>,
    /// The latest rejections.
    nacks: VecDeque<Arc<Nack>>,
    /// Rejections nobody has looked into.
    waiting: Vec<Arc<Nack>>,
    /// What clients reject at present: gone once they accept something of the type.
    rejecting: BTreeMap<ConnectionId, BTreeMap<Arc<str>, Arc<Nack>>>,
    /// Rejections that were looked into or wait for it, the oldest first.
    remembered: VecDeque<Statement>,
    /// Versions of resources, by type and name, that somebody accepted after all or that no object explains.
    cleared: Cleared,
    /// What was held for something which was accepted by somebody after all.
    pardoned: BTreeSet<HoldKey>,
    total: u64,
    panics: u64,
}

/// A rejection: which connection rejected which state of which type, at which revision. A repeated one brings no news.
#[derive(PartialEq, Eq)]
struct Statement {
    identity: Arc<str>,
    type_url: Arc<str>,
    version: ContentHash,
    revision: u64,
}

#[derive(Default)]
struct Cleared(VecDeque<(Arc<str>, Arc<str>, ContentHash)>);

impl Cleared {
    fn add(&mut self, type_url: &Arc<str>, one: &Contested) {
        if self.0.len() >= CLEARED {
            self.0.pop_front();
        }
        self.0.push_back((Arc::clone(type_url), Arc::clone(&one.name), one.rejected));
    }

    fn has(&self, type_url: &str, one: &Contested) -> bool {
        self.0
            .iter()
            .any(|(kind, name, version)| **kind == *type_url && *name == one.name && *version == one.rejected)
    }
}

/// An object that some clients are served at another value than its owner gave it.
#[derive(Clone, Debug)]
pub struct Hold {
    /// What the owner wants.
    pub wanted: Arc<Object>,
    /// What is served: the value that was accepted last, or nothing.
    pub served: Option<Arc<Object>>,
    /// Since when.
    pub since: Stamp,
    /// Whether it is known to be guilty; otherwise that is being found out.
    pub is_guilty: bool,
    /// What was rejected.
    pub grounds: Arc<Grounds>,
    /// The proxies that rejected the object: they are served the other value, and no others.
    pub members: Members,
    /// How often it was tried again before, in vain.
    pub tries: u32,
    held_at: Instant,
}

/// The clients that rejected something together.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Connections of these proxies.
    pub connections: BTreeSet<ConnectionId>,
    /// The identities they have proved.
    pub identities: BTreeSet<Arc<str>>,
}

/// Why something is held.
#[derive(Clone, Debug)]
pub struct Grounds {
    /// The rejection that led to it.
    pub nack: Arc<Nack>,
    /// The resources it is about that nobody has accepted.
    pub resources: Vec<Contested>,
    /// The proxies that rejected them; the first, if there are many.
    pub proxies: BTreeSet<String>,
}

impl Observer for Quarantine {
    fn happened(&self, connection: &Connection, event: &SessionEvent, at: Stamp) {
        self.note(connection, event, at);
    }
}

impl Quarantine {
    /// A record in which nothing is held yet. Nothing ever will be unless it is enabled.
    pub fn new(enabled: bool) -> Arc<Self> {
        Arc::new(Self { enabled: enabled.into(), ..Self::default() })
    }

    /// Whether objects are held at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// The objects that are held; one of them several times if it is held for several sets of clients.
    pub fn holds(&self) -> Vec<(Origin, Hold)> {
        self.state.lock().holds.iter().map(|((origin, _), hold)| (origin.clone(), hold.clone())).collect()
    }

    /// The holds by their names.
    fn entries(&self) -> Vec<(HoldKey, Hold)> {
        self.state.lock().holds.iter().map(|(key, hold)| (key.clone(), hold.clone())).collect()
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.state.lock().holds.keys().map(|(origin, _)| origin).collect::<BTreeSet<_>>().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often an object was found guilty.
    pub fn total(&self) -> u64 {
        self.state.lock().total
    }

    /// How often deciding panicked. Applying goes on after that; what was undecided is served.
    pub fn panics(&self) -> u64 {
        self.state.lock().panics
    }

    fn panicked(&self) {
        self.state.lock().panics += 1;
    }

    /// The latest rejections, the newest first.
    pub fn nacks(&self) -> Vec<Arc<Nack>> {
        self.state.lock().nacks.iter().rev().cloned().collect()
    }

    /// The holds of an object.
    fn holds_of(&self, origin: &Origin) -> Vec<(HoldKey, Hold)> {
        let state = self.state.lock();
        let of_it = state.holds.range((origin.clone(), 0)..=(origin.clone(), u64::MAX));
        of_it.map(|(key, hold)| (key.clone(), hold.clone())).collect()
    }

    /// Whether an object is held for a client.
    fn is_held_for(&self, origin: &Origin, client: ConnectionId) -> bool {
        self.holds_of(origin).iter().any(|(_, hold)| hold.members.connections.contains(&client))
    }

    /// What clients are served in place of what owners want, as far as something is held for them.
    fn replaced(&self) -> BTreeMap<ConnectionId, Replaced> {
        let state = self.state.lock();
        let mut replaced: BTreeMap<ConnectionId, Replaced> = BTreeMap::new();
        for ((origin, _), hold) in &state.holds {
            for client in &hold.members.connections {
                replaced.entry(*client).or_default().insert(origin.clone(), hold.served.clone());
            }
        }
        replaced
    }

    /// Whether no more may be held: in all, or for these members alone.
    fn is_full(&self, more: usize, members: &Members) -> bool {
        let state = self.state.lock();
        let for_them = |hold: &&Hold| hold.members.identities.is_subset(&members.identities);
        let of_one = members.identities.len() == 1
            && state.holds.values().filter(for_them).count() + more > MOST_HELD_FOR_ONE;
        of_one || state.holds.len() + more > MOST_HELD
    }

    /// Adds clients to those for whom an object is held.
    fn join(&self, key: &HoldKey, more: &Members) {
        if let Some(hold) = self.state.lock().holds.get_mut(key) {
            hold.members.connections.extend(&more.connections);
            hold.members.identities.extend(more.identities.iter().cloned());
        }
    }

    /// Writes down what is held now and what is not; `open` says whether a case is under investigation.
    fn write(&self, holds: impl IntoIterator<Item = (HoldKey, Option<Hold>)>, open: bool) {
        let mut state = self.state.lock();
        for (key, hold) in holds {
            match hold {
                Some(hold) => {
                    state.total += u64::from(hold.is_guilty);
                    state.holds.insert(key, hold);
                }
                None => {
                    state.pardoned.remove(&key);
                    state.holds.remove(&key);
                }
            }
        }
        self.attentive.store(!state.holds.is_empty(), Ordering::Release);
        self.investigating.store(open, Ordering::Release);
    }

    /// What a client rejects of a type at present.
    fn rejection(&self, connection: ConnectionId, type_url: &str) -> Option<Arc<Nack>> {
        self.state.lock().rejecting.get(&connection)?.get(type_url).cloned()
    }

    /// Forgets what clients said that are gone.
    fn forget_all_but(&self, is_connected: impl Fn(ConnectionId) -> bool) {
        self.state.lock().rejecting.retain(|connection, _| is_connected(*connection));
    }

    fn has_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    fn take_waiting(&self) -> Vec<Arc<Nack>> {
        std::mem::take(&mut self.state.lock().waiting)
    }

    fn put_back(&self, nacks: impl IntoIterator<Item = Arc<Nack>>) {
        let mut state = self.state.lock();
        state.waiting.extend(nacks);
        state.waiting.truncate(WAITING);
    }

    fn take_pardoned(&self) -> BTreeSet<HoldKey> {
        std::mem::take(&mut self.state.lock().pardoned)
    }

    /// Records that these resources are rejected whatever is held, so that they are not examined again.
    fn clear(&self, grounds: &Grounds) {
        let mut state = self.state.lock();
        for one in &grounds.resources {
            state.cleared.add(&grounds.nack.type_url, one);
        }
    }

    fn is_cleared(&self, type_url: &str, one: &Contested) -> bool {
        self.state.lock().cleared.has(type_url, one)
    }

    fn note(&self, connection: &Connection, event: &SessionEvent, at: Stamp) {
        match event {
            SessionEvent::Nacked { type_url, nonce, code, message, accepted, refused } => {
                let status = connection.status(type_url).unwrap_or_default();
                // Only the last response can be rejected; a client that answers another one is behind, or invents it.
                let Some(sent) = status.sent.filter(|sent| *sent.nonce == **nonce) else { return };
                if self.rejection(connection.id, type_url).is_some_and(|last| *last.nonce == **nonce) {
                    return;
                }
                let before = status.accepted;
                let has = before.as_ref().map_or(accepted, |before| &before.set);
                let identity = connection.proxy.identity.as_ref().map(|identity| identity.to_string().into());
                let nack = Nack {
                    connection: connection.id,
                    proxy: connection.proxy.id.id.clone(),
                    identity,
                    type_url: Arc::clone(type_url),
                    nonce: nonce.as_str().into(),
                    code: *code,
                    message: message.as_str().into(),
                    time: at,
                    revision: sent.revision,
                    accepted: before.as_ref().map(|before| before.revision),
                    resources: nack::contested(message, has, refused),
                    outcome: OnceLock::new(),
                };
                self.rejected(nack, sent.version);
            }
            SessionEvent::Acked { type_url, accepted, .. } => {
                if self.is_contested.load(Ordering::Acquire) {
                    self.withdrawn(connection.id, type_url);
                }
                if self.attentive.load(Ordering::Acquire) {
                    self.accepted(type_url, accepted);
                }
            }
            SessionEvent::Settled { .. } if self.investigating.load(Ordering::Acquire) => {
                self.bell.notify_one();
            }
            _ => {}
        }
    }

    /// A client has accepted something of a type, and with that rejects nothing of it any more.
    fn withdrawn(&self, client: ConnectionId, type_url: &Arc<str>) {
        let mut state = self.state.lock();
        if let Some(rejected) = state.rejecting.get_mut(&client) {
            rejected.remove(type_url);
            if rejected.is_empty() {
                state.rejecting.remove(&client);
            }
        }
        self.is_contested.store(!state.rejecting.is_empty(), Ordering::Release);
    }

    fn rejected(&self, nack: Nack, version: ContentHash) {
        let nack = Arc::new(nack);
        let mut state = self.state.lock();
        self.is_contested.store(true, Ordering::Release);
        if state.nacks.len() >= SHOWN {
            state.nacks.pop_front();
        }
        state.nacks.push_back(Arc::clone(&nack));
        let of_client = state.rejecting.entry(nack.connection).or_default();
        of_client.insert(Arc::clone(&nack.type_url), Arc::clone(&nack));
        if self.is_enabled() && state.queue(&nack, version) {
            self.bell.notify_one();
        }
    }

    /// A client has accepted a set. Nothing is held for a version that somebody accepts.
    fn accepted(&self, type_url: &Arc<str>, set: &ResourceSet) {
        let mut state = self.state.lock();
        let State { holds, cleared, pardoned, .. } = &mut *state;
        for (key, hold) in holds.iter().filter(|(_, hold)| hold.grounds.nack.type_url == *type_url) {
            for one in &hold.grounds.resources {
                if set.get(&one.name).is_some_and(|held| held.version == one.rejected) {
                    pardoned.insert(key.clone());
                    cleared.add(type_url, one);
                }
            }
        }
        if !pardoned.is_empty() {
            self.bell.notify_one();
        }
    }
}

impl State {
    /// Queues a rejection for examination, unless that would change nothing; returns whether it was queued.
    fn queue(&mut self, nack: &Arc<Nack>, version: ContentHash) -> bool {
        let Some(identity) = &nack.identity else {
            nack.conclude("the proxy has proved no identity: nothing is held for it");
            return false;
        };
        let statement = Statement {
            identity: Arc::clone(identity),
            type_url: Arc::clone(&nack.type_url),
            version,
            revision: nack.revision,
        };
        let of_it = self.waiting.iter().filter(|waiting| waiting.identity.as_ref() == Some(identity)).count();
        if of_it >= WAITING_OF_ONE || self.waiting.len() >= WAITING || self.remembered.contains(&statement) {
            return false;
        }
        if self.remembered.len() >= REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(statement);
        self.waiting.push(Arc::clone(nack));
        true
    }
}
