//! Objects whose effect proxies reject, held back so that everything else flows.
//!
//! A proxy that rejects a message keeps what it had, until the message is another. Whatever shares a resource with one bad
//! object is stuck with it. So a rejection is traced: from the resources it is about, through what they were made from, to the
//! objects that changed since the proxy last accepted them. Those are the suspects. A [`Warden`], which belongs to the apply
//! loop, serves suspects at the value they had when all was well, and finds the guilty among them by serving the others again
//! ([`trial`]). Who is guilty stays at its earlier value, or absent, until its owner changes it.
//!
//! A rejection counts only if no client has accepted the same bytes: what one proxy cannot take and others can is that proxy's
//! affair. Nothing of this outlives the process; after a restart everything is tried again.

mod history;
mod nack;
mod suspects;
mod trial;
mod warden;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use canopus_api::Object;
use canopus_base::hash::ContentHash;
use canopus_mesh::world::Origin;
use canopus_xds::{ResourceSet, SessionEvent};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use nack::{Contested, Nack};
pub(crate) use warden::Warden;

use crate::push::{Connection, ConnectionId, Stamp};

/// Rejections that are kept to be shown.
const SHOWN: usize = 64;

/// Rejections that wait to be looked into; more would say the same again.
const WAITING: usize = 64;

/// Versions of resources that are remembered as nothing to be held for.
const CLEARED: usize = 1024;

/// Objects that are held at once; a mesh that needs more has another problem.
const MOST_HELD: usize = 64;

/// Proxies that are named with a hold.
const NAMED: usize = 32;

/// What is rejected, and what is held for it: the record that the warden writes and others read.
#[derive(Default)]
pub struct Quarantine {
    /// Whether anything is ever held.
    enabled: AtomicBool,
    /// Whether acknowledgements can make a difference, as something is held.
    attentive: AtomicBool,
    /// Whether a case is under investigation, so that it matters who is up to date.
    investigating: AtomicBool,
    state: Mutex<State>,
    bell: Notify,
}

#[derive(Default)]
struct State {
    holds: BTreeMap<Origin, Hold>,
    /// The latest rejections.
    nacks: VecDeque<Arc<Nack>>,
    /// Rejections nobody has looked into.
    waiting: Vec<Arc<Nack>>,
    /// Versions of resources, by type and name, that somebody accepted after all or that no object explains.
    cleared: Cleared,
    /// Objects that were held for something which was accepted by somebody after all.
    pardoned: BTreeSet<Origin>,
    total: u64,
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

/// An object that is served at another value than its owner gave it.
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

impl Quarantine {
    /// Whether objects are held at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// The objects that are held.
    pub fn holds(&self) -> Vec<(Origin, Hold)> {
        self.state.lock().holds.iter().map(|(origin, hold)| (origin.clone(), hold.clone())).collect()
    }

    /// How many are.
    pub fn len(&self) -> usize {
        self.state.lock().holds.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often an object was found guilty.
    pub fn total(&self) -> u64 {
        self.state.lock().total
    }

    /// The latest rejections, the newest first.
    pub fn nacks(&self) -> Vec<Arc<Nack>> {
        self.state.lock().nacks.iter().rev().cloned().collect()
    }

    /// The hold of an object, if it is held.
    pub fn hold(&self, origin: &Origin) -> Option<Hold> {
        self.state.lock().holds.get(origin).cloned()
    }

    /// Writes down what is held now and what is not; `open` says whether a case is under investigation.
    fn write(&self, holds: impl IntoIterator<Item = (Origin, Option<Hold>)>, open: bool) {
        let mut state = self.state.lock();
        for (origin, hold) in holds {
            match hold {
                Some(hold) => {
                    state.total += u64::from(hold.is_guilty);
                    state.holds.insert(origin, hold);
                }
                None => {
                    state.pardoned.remove(&origin);
                    state.holds.remove(&origin);
                }
            }
        }
        self.attentive.store(!state.holds.is_empty(), Ordering::Release);
        self.investigating.store(open, Ordering::Release);
    }

    /// The last rejection of a type by a client that is remembered.
    fn last_of(&self, connection: ConnectionId, type_url: &str) -> Option<Arc<Nack>> {
        let state = self.state.lock();
        let by_it = |nack: &&Arc<Nack>| nack.connection == connection && *nack.type_url == *type_url;
        state.nacks.iter().rfind(by_it).cloned()
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

    fn take_pardoned(&self) -> BTreeSet<Origin> {
        std::mem::take(&mut self.state.lock().pardoned)
    }

    /// Nothing is held for these resources as they are.
    fn clear(&self, grounds: &Grounds) {
        let mut state = self.state.lock();
        for one in &grounds.resources {
            state.cleared.add(&grounds.nack.type_url, one);
        }
    }

    fn is_cleared(&self, type_url: &str, one: &Contested) -> bool {
        self.state.lock().cleared.has(type_url, one)
    }

    /// Takes note of what happened in a session; the connection knows of it already.
    pub(crate) fn note(&self, connection: &Connection, event: &SessionEvent) {
        match event {
            SessionEvent::Nacked { type_url, nonce, code, message, accepted, refused } => {
                let status = connection.status(type_url).unwrap_or_default();
                let before = status.accepted;
                let has = before.as_ref().map_or(accepted, |before| &before.set);
                self.rejected(Nack {
                    connection: connection.id,
                    proxy: connection.proxy.id.id.clone(),
                    type_url: Arc::clone(type_url),
                    nonce: nonce.as_str().into(),
                    code: *code,
                    message: message.as_str().into(),
                    time: Stamp::now(),
                    revision: status.sent.map_or(0, |sent| sent.revision),
                    accepted: before.as_ref().map(|before| before.revision),
                    resources: nack::contested(message, has, refused),
                });
            }
            SessionEvent::Acked { type_url, accepted, .. } if self.attentive.load(Ordering::Acquire) => {
                self.accepted(type_url, accepted);
            }
            SessionEvent::Settled { .. } if self.investigating.load(Ordering::Acquire) => {
                self.bell.notify_one();
            }
            _ => {}
        }
    }

    fn rejected(&self, nack: Nack) {
        let nack = Arc::new(nack);
        let mut state = self.state.lock();
        if state.nacks.len() >= SHOWN {
            state.nacks.pop_front();
        }
        state.nacks.push_back(Arc::clone(&nack));
        if self.is_enabled() && state.waiting.len() < WAITING {
            state.waiting.push(nack);
            self.bell.notify_one();
        }
    }

    /// A client has accepted a set. Nothing is held for a version that somebody accepts.
    fn accepted(&self, type_url: &Arc<str>, set: &ResourceSet) {
        let mut state = self.state.lock();
        let State { holds, cleared, pardoned, .. } = &mut *state;
        for (origin, hold) in holds.iter().filter(|(_, hold)| hold.grounds.nack.type_url == *type_url) {
            for one in &hold.grounds.resources {
                if set.get(&one.name).is_some_and(|held| held.version == one.rejected) {
                    pardoned.insert(origin.clone());
                    cleared.add(type_url, one);
                }
            }
        }
        if !pardoned.is_empty() {
            self.bell.notify_one();
        }
    }
}
