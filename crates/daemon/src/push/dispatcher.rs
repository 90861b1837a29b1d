//! Takes batches to the engine and wakes the sessions they concern.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use canopus_engine::{Batch, Engine, RootId};
use canopus_mesh::proxy::Proxy;
use canopus_xds::{Peer, SessionEvent};
use parking_lot::Mutex;

use super::cause::Cause;
use super::change_signal::{ChangeSignal, ChangeSignals};
use super::connections::{Connection, ConnectionId, Connections};
use super::ledger::{Fate, KEPT, Ledger, Push, TypeTotal};
use super::observer::Observer;
use super::stamp::Stamp;

/// The way from a batch of changes to the sessions, with the record of it.
pub struct Dispatcher {
    engine: Engine,
    signals: ChangeSignals,
    ledger: Ledger,
    connections: Connections,
    observers: Vec<Arc<dyn Observer>>,
    /// Pushes are written down in the order of their revisions.
    writing: Mutex<()>,
}

impl Dispatcher {
    /// Serves what `engine` knows; `observers` are told what happens.
    pub fn new(engine: Engine, observers: Vec<Arc<dyn Observer>>) -> Arc<Self> {
        Arc::new(Self {
            engine,
            signals: ChangeSignals::default(),
            ledger: Ledger::default(),
            connections: Connections::default(),
            observers,
            writing: Mutex::new(()),
        })
    }

    /// The world.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What was pushed.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Who is connected.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Applies a batch and wakes the sessions it concerns; the revision it led to.
    ///
    /// A batch that changes nothing concerns nobody and is not written down.
    pub fn apply(&self, batch: Batch, cause: Cause) -> u64 {
        let _writing = self.writing.lock();
        let before = self.engine.revision();
        let started = Instant::now();
        let applied = self.engine.apply(batch);
        let revision = applied.revision.number();
        if applied.revision == before {
            return revision;
        }
        let woken = self.connections.named(self.signals.raise(&applied.changed));
        let mut push = Push::new(revision, cause, started.elapsed(), applied.changed.len());
        push.expect(woken.iter().map(|(connection, _)| connection.id));
        self.observe(|observer| observer.applied(&push));
        // Who is woken may settle it at once, so it is written down first.
        let over = self.ledger.record(push);
        for (connection, _) in &woken {
            connection.expect(revision, KEPT);
        }
        for (connection, types) in &woken {
            connection.wake(revision, *types);
        }
        self.announce(over);
        revision
    }

    /// Takes a proxy in.
    pub(crate) fn connect(&self, proxy: Proxy, peer: &Peer) -> Arc<Connection> {
        let revision = self.engine.revision().number();
        let connection = self.connections.open(proxy, peer, revision);
        self.observe(|observer| observer.connected(&connection));
        connection
    }

    /// A proxy is gone.
    pub(crate) fn disconnect(&self, connection: &Connection) {
        self.connections.close(connection.id);
        let open = connection.settle(u64::MAX);
        self.announce(self.ledger.decide(connection.id, &open, Fate::Gone(Stamp::now())));
        self.observe(|observer| observer.disconnected(connection));
    }

    /// Takes note of what happened in a session.
    pub(crate) fn note(&self, connection: &Connection, event: &SessionEvent) {
        connection.note(event);
        match event {
            SessionEvent::Sent { type_url, revision, pushed: true, resources, removed, bytes, .. } => {
                let total = TypeTotal {
                    messages: 1,
                    resources: *resources as u64,
                    removed: *removed as u64,
                    bytes: *bytes as u64,
                };
                self.ledger.sent(connection.id, *revision, type_url, total);
            }
            SessionEvent::Nacked { nonce, type_url, .. } => {
                let sent = connection.status(type_url).and_then(|status| status.sent);
                if let Some(sent) = sent.filter(|sent| *sent.nonce == **nonce) {
                    let fate = Fate::Rejected(Stamp::now());
                    self.announce(self.ledger.decide(connection.id, &[sent.revision], fate));
                }
            }
            SessionEvent::Settled { revision } => {
                let open = connection.settle(*revision);
                self.announce(self.ledger.decide(connection.id, &open, Fate::Settled(Stamp::now())));
            }
            _ => {}
        }
        self.observe(|observer| observer.happened(connection, event));
    }

    /// The sessions that are served from one of these results.
    pub(crate) fn subscribers(&self, roots: impl IntoIterator<Item = RootId>) -> BTreeSet<ConnectionId> {
        self.signals.subscribers(roots)
    }

    /// Tells observers that a response was taken after this time.
    pub(crate) fn handed_over(&self, took: Duration) {
        self.observe(|observer| observer.handed_over(took));
    }

    /// Tells observers that something could not be generated.
    pub(crate) fn failed(&self) {
        self.observe(|observer| observer.failed());
    }

    /// Raises `signal` when one of these results changes, from now on.
    pub(crate) fn signal_changes(&self, roots: impl IntoIterator<Item = RootId>, signal: &Arc<ChangeSignal>) {
        self.signals.add(roots, signal);
    }

    fn announce(&self, over: impl IntoIterator<Item = Push>) {
        for push in over {
            self.observe(|observer| observer.converged(&push));
        }
    }

    fn observe(&self, tell: impl Fn(&dyn Observer)) {
        self.observers.iter().for_each(|observer| tell(observer.as_ref()));
    }
}
