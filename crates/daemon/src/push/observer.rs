//! What happens on the push path, told to those who keep a record of it or act on it.
//!
//! The [`Dispatcher`](super::Dispatcher) tells what it applied, [`Connections`](super::Connections) what happens in sessions, the
//! [`Ledger`](super::Ledger) which pushes converged. Who is told is decided where the process is put together.

use std::sync::Arc;
use std::time::Duration;

use canopus_xds::SessionEvent;
use tokio::sync::watch;

use super::cause::Cause;
use super::connections::{Connection, ConnectionId};
use super::ledger::Push;
use super::stamp::Stamp;

/// A batch that changed an input of the engine.
#[derive(Clone, Debug)]
pub struct AppliedBatch {
    /// The revision of the world the batch led to.
    pub revision: u64,
    /// What changed.
    pub cause: Cause,
    /// When the engine had applied it.
    pub applied: Stamp,
    /// How long the engine took.
    pub took: Duration,
    /// How many watched results have another value now.
    pub changed_results: usize,
    /// The sessions that are about to be woken, ascending.
    pub woken: Vec<ConnectionId>,
}

/// Observes the push path, such as by counting. Calls come from many threads and must not block.
pub trait Observer: Send + Sync {
    /// A batch was applied; the sessions it concerns are about to be woken.
    fn applied(&self, _batch: &AppliedBatch) {}

    /// The last session a push concerned has acknowledged it, or is gone.
    fn converged(&self, _push: &Push) {}

    /// A proxy connected.
    fn connected(&self, _connection: &Connection) {}

    /// An event in a proxy's session, at this time; the connection has recorded it already.
    fn happened(&self, _connection: &Connection, _event: &SessionEvent, _at: Stamp) {}

    /// A proxy has everything of these revisions since this time, which it had not acknowledged before.
    fn settled(&self, _connection: &Connection, _revisions: &[u64], _at: Stamp) {}

    /// The transport of some proxy took a response after this time.
    fn handed_over(&self, _took: Duration) {}

    /// A resource that a proxy asked for could not be generated.
    fn failed(&self) {}

    /// A proxy disconnected before it acknowledged these revisions.
    fn disconnected(&self, _connection: &Connection, _outstanding: &[u64]) {}
}

/// Observers, in the order in which they are told.
#[derive(Clone, Default)]
pub struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    /// Combines observers, which are told in order.
    pub fn new(observers: impl IntoIterator<Item = Arc<dyn Observer>>) -> Self {
        Self(observers.into_iter().collect())
    }

    pub(super) fn tell(&self, tell: impl Fn(&dyn Observer)) {
        self.0.iter().for_each(|observer| tell(observer.as_ref()));
    }
}

/// Tells the revision of the world to those who look at all of it.
pub struct Revisions(watch::Sender<u64>);

impl Revisions {
    /// Tells it from this one on.
    pub fn new(revision: u64) -> (Self, watch::Receiver<u64>) {
        let (sender, receiver) = watch::channel(revision);
        (Self(sender), receiver)
    }
}

impl Observer for Revisions {
    fn applied(&self, batch: &AppliedBatch) {
        self.0.send_replace(batch.revision);
    }
}
