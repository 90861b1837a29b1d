//! The live side of a connection: what it looks at.

use std::sync::Arc;

use canopus_engine::{QueryError, Root};
use canopus_envoy::audience::AudiencesOf;
use canopus_xds::types::Types;
use canopus_xds::{Interest, ResourceSet};
use parking_lot::Mutex;

use super::shelf::{Key, Shelf, Shelves};
use crate::push::{Beacon, Connection, Dispatcher, Light, Seat};

/// A connected proxy with what it is served from.
pub struct Client {
    /// What is known of the connection.
    pub connection: Arc<Connection>,
    audiences: Root<AudiencesOf>,
    /// Lit when its audiences are others.
    beacon: Arc<Beacon>,
    _seat: Seat,
    taken: Mutex<Vec<Taken>>,
}

/// A shelf, and the place from which its changes are noticed.
struct Taken {
    type_url: Box<str>,
    interest: Interest,
    shelf: Arc<Shelf>,
    /// Whether it is still the shelf of the proxy's audience.
    fits: bool,
    _seat: Seat,
}

impl Client {
    pub(super) fn new(dispatcher: &Dispatcher, connection: Arc<Connection>) -> Self {
        let audiences = dispatcher.engine().watch::<AudiencesOf>(connection.proxy.clone());
        let beacon = Beacon::new(Types::ALL);
        dispatcher.light([audiences.id()], &beacon);
        let seat = beacon.seat(connection.id);
        Self { connection, audiences, beacon, _seat: seat, taken: Mutex::default() }
    }

    /// What it gets of a type; `None` if nobody knows the type.
    pub(super) fn resources(
        &self,
        dispatcher: &Dispatcher,
        shelves: &Shelves,
        type_url: &str,
        interest: &Interest,
    ) -> Result<Option<ResourceSet>, QueryError> {
        if let Some(shelf) = self.shelf(type_url, interest) {
            return shelf.read(&shelves.pool).map(Some);
        }
        let audiences = self.audiences.value()?;
        let key = Key::new(&self.connection.proxy, &audiences, type_url, interest);
        let Some(key) = key else { return Ok(None) };
        let shelf = tokio::task::block_in_place(|| shelves.open(dispatcher, key, interest));
        let seat = shelf.beacon().seat(self.connection.id);
        // The seat is taken before reading: what changes after that wakes the session.
        let set = shelf.read(&shelves.pool);
        self.take(Taken {
            type_url: type_url.into(),
            interest: interest.clone(),
            shelf,
            fits: true,
            _seat: seat,
        });
        set.map(Some)
    }

    /// The shelf it stands before for this, as long as its audiences are the same.
    fn shelf(&self, type_url: &str, interest: &Interest) -> Option<Arc<Shelf>> {
        let mut taken = self.taken.lock();
        if self.beacon.take() != Light::Off {
            taken.iter_mut().for_each(|taken| taken.fits = false);
        }
        let taken = taken.iter().find(|taken| *taken.type_url == *type_url)?;
        (taken.fits && taken.interest == *interest).then(|| Arc::clone(&taken.shelf))
    }

    /// Stands before another shelf of a type than before.
    fn take(&self, new: Taken) {
        let mut taken = self.taken.lock();
        match taken.iter_mut().find(|taken| taken.type_url == new.type_url) {
            Some(old) => *old = new,
            None => taken.push(new),
        }
    }
}
