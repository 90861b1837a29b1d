//! The dispatcher: applies batches to the engine and wakes the sessions that they concern.
//!
//! [`Dispatcher::apply`] is the whole push path in order: apply the batch, mark the change signals of the roots that changed,
//! tell observers (the ledger first of all), then wake sessions. The order matters, since a woken session may settle the push
//! at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use canopus_engine::{Batch, Engine, RootId};
use canopus_xds::types::Types;
use parking_lot::Mutex;

use super::cause::Cause;
use super::change_signal::{ChangeSignal, ChangeSignals, merged};
use super::connections::{ConnectionId, Connections};
use super::observer::{AppliedBatch, Observers};
use super::overlay::{OverlayChanges, Overlays, Replaced};
use super::stamp::Stamp;

/// Applies batches and wakes sessions. It keeps no record: observers do.
pub struct Dispatcher {
    engine: Engine,
    signals: ChangeSignals,
    connections: Arc<Connections>,
    observers: Observers,
    overlays: Overlays,
    /// Held while a batch is applied, so that observers are told of batches in the order of their revisions.
    applying: Mutex<()>,
}

/// Result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// The revision of the world after it.
    pub revision: u64,
    /// How many sessions it woke.
    pub woken: usize,
}

impl Dispatcher {
    /// Applies batches to `engine`, wakes the sessions of `connections`, and tells `observers` of each batch.
    pub fn new(engine: Engine, connections: Arc<Connections>, observers: Observers) -> Arc<Self> {
        let (signals, overlays, applying) = Default::default();
        Arc::new(Self { engine, signals, connections, observers, overlays, applying })
    }

    /// A dispatcher without observers, with connections of its own.
    pub fn unobserved(engine: Engine) -> Arc<Self> {
        Self::new(engine, Arc::default(), Observers::default())
    }

    /// Connects a proxy that starts from what the engine knows now.
    #[cfg(test)]
    pub(crate) fn connect(&self, proxy: canopus_mesh::proxy::Proxy) -> Arc<super::Connection> {
        let peer = canopus_xds::Peer::default();
        self.connections.connect(proxy, &peer, self.engine.revision().number())
    }

    /// The engine that batches are applied to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The clients that are served from a fork of the present world.
    pub(crate) fn overlays(&self) -> &Overlays {
        &self.overlays
    }

    /// The world that a client is served from.
    pub(crate) fn engine_of(&self, client: ConnectionId) -> Engine {
        let overlay = self.overlays.get(client);
        overlay.map_or_else(|| self.engine.clone(), |overlay| overlay.engine(&self.engine).1)
    }

    /// Serves exactly these clients other values of objects; the revision from which on they are.
    pub(crate) fn overlay(&self, wanted: BTreeMap<ConnectionId, Replaced>, cause: Cause) -> u64 {
        let now = self.engine.revision().number();
        self.overlays.forget_all_but(|client| self.connections.get(client).is_some());
        if !self.overlays.replace(wanted, now + 1) {
            return now;
        }
        let mut batch = Batch::new();
        let changes = self.engine.read::<OverlayChanges>(&()).map_or(0, |changes| *changes);
        batch.set::<OverlayChanges>((), changes + 1);
        self.apply(batch, cause).revision
    }

    /// Like [`Dispatcher::overlay`], but the clients are woken with the next batch.
    pub(crate) fn overlay_with_next(&self, wanted: BTreeMap<ConnectionId, Replaced>) {
        self.overlays.replace(wanted, self.engine.revision().number() + 1);
    }

    /// The sessions that are woken.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Applies a batch and wakes the sessions it concerns. A batch that changes no input concerns nobody, and observers are
    /// not told of it.
    pub fn apply(&self, batch: Batch, cause: Cause) -> Dispatched {
        let _applying = self.applying.lock();
        let before = self.engine.revision();
        let started = Instant::now();
        let applied = self.engine.apply(batch);
        let revision = applied.revision.number();
        if applied.revision == before {
            return Dispatched { revision, woken: 0 };
        }
        let took = started.elapsed();
        let mut woken = self.signals.raise(&applied.changed);
        let overlaid = self.overlays.take_woken();
        if !overlaid.is_empty() {
            woken.extend(overlaid.into_iter().map(|client| (client, Types::ALL)));
            woken = merged(woken);
        }
        let sessions = self.connections.named(woken);
        let batch = AppliedBatch {
            revision,
            cause,
            applied: Stamp::now(),
            took,
            changed_results: applied.changed.len(),
            woken: sessions.iter().map(|(connection, _)| connection.id).collect(),
        };
        // A session may acknowledge the batch as soon as it is woken, so observers and connections know of it before.
        self.observers.tell(|observer| observer.applied(&batch));
        for (connection, _) in &sessions {
            connection.expect(revision);
        }
        for (connection, types) in &sessions {
            connection.wake(revision, *types);
        }
        Dispatched { revision, woken: sessions.len() }
    }

    /// Waits until observers know of the batch that is being applied, if one is.
    pub(crate) fn settle(&self) {
        drop(self.applying.lock());
    }

    /// The sessions that are served from one of these results.
    pub(crate) fn subscribers(&self, roots: impl IntoIterator<Item = RootId>) -> BTreeSet<ConnectionId> {
        self.signals.subscribers(roots)
    }

    /// The sessions that a change of these results would concern, ascending, each with the types it would look at.
    pub(crate) fn concerned(&self, results: &[RootId]) -> Vec<(ConnectionId, Types)> {
        self.signals.concerned(results)
    }

    /// Raises `signal` when one of these results changes, from now on.
    pub(crate) fn signal_changes(&self, roots: impl IntoIterator<Item = RootId>, signal: &Arc<ChangeSignal>) {
        self.signals.add(roots, signal);
    }
}
