//! Being told what happens on the push path.

use std::time::Duration;

use canopus_xds::SessionEvent;
use tokio::sync::watch;

use super::connections::Connection;
use super::ledger::Push;

/// Is told what happens as it happens, such as by counting. Calls come from many threads and must not block.
pub trait Observer: Send + Sync {
    /// A batch was applied; the sessions it concerns are about to be woken.
    fn applied(&self, _push: &Push) {}

    /// The last session a push concerned has acknowledged it, or is gone.
    fn converged(&self, _push: &Push) {}

    /// A proxy was taken in.
    fn connected(&self, _connection: &Connection) {}

    /// Something happened in a proxy's session; the connection knows of it already.
    fn happened(&self, _connection: &Connection, _event: &SessionEvent) {}

    /// The transport of some proxy took a response after this time.
    fn handed_over(&self, _took: Duration) {}

    /// Something a proxy asked for could not be generated.
    fn failed(&self) {}

    /// A proxy is gone.
    fn disconnected(&self, _connection: &Connection) {}
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
    fn applied(&self, push: &Push) {
        self.0.send_replace(push.revision);
    }
}
