//! The live side of a connection: what it looks at.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_engine::{QueryError, Root};
use canopus_mesh::proxy::{View, ViewOf};
use canopus_xds::{Interest, ResourceSet};
use parking_lot::Mutex;

use super::shelf::{Key, Shelf, Shelves};
use crate::push::{Beacon, Connection, Dispatcher, Seat};

/// A shelf, and the place from which its changes are noticed.
type Taken = (Arc<Shelf>, Seat);

/// A connected proxy with what it is served from.
pub struct Client {
    /// What is known of the connection.
    pub connection: Arc<Connection>,
    view: Root<ViewOf>,
    /// Woken when its view is another.
    _seat: Seat,
    shelves: Mutex<BTreeMap<Box<str>, Taken>>,
}

impl Client {
    pub(super) fn new(dispatcher: &Dispatcher, connection: Arc<Connection>) -> Self {
        let view = dispatcher.engine().watch::<ViewOf>(connection.proxy.clone());
        let beacon = Arc::new(Beacon::default());
        dispatcher.light([view.id()], &beacon);
        let seat = beacon.seat(connection.id);
        Self { connection, view, _seat: seat, shelves: Mutex::default() }
    }

    pub(super) fn view(&self) -> Result<Arc<View>, QueryError> {
        self.view.value()
    }

    /// What it gets of a type; `None` if nobody knows the type.
    pub(super) fn resources(
        &self,
        dispatcher: &Dispatcher,
        shelves: &Shelves,
        type_url: &str,
        interest: &Interest,
    ) -> Result<Option<ResourceSet>, QueryError> {
        let view = self.view()?;
        let Some(key) = Key::new(&self.connection.proxy, &view, type_url, interest) else { return Ok(None) };
        let current = self.shelves.lock().get(type_url).map(|(shelf, _)| Arc::clone(shelf));
        if let Some(shelf) = current.filter(|shelf| shelf.is(&key)) {
            return shelf.read(&shelves.pool).map(Some);
        }
        let shelf = tokio::task::block_in_place(|| shelves.open(dispatcher, key, interest));
        let seat = shelf.beacon().seat(self.connection.id);
        // The seat is taken before reading: what changes after that wakes the session.
        let set = shelf.read(&shelves.pool);
        self.shelves.lock().insert(type_url.into(), (shelf, seat));
        set.map(Some)
    }
}
