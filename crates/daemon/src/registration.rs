//! Which machines register themselves, as their sessions tell.
//!
//! The observer keeps who is connected; a task tells the engine, whose input the controller that writes WorkloadEntries
//! reads ([`WorkloadRegistrationController`](canopus_controllers::WorkloadRegistrationController)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use canopus_api::{Kind, ObjectKey};
use canopus_controllers::{Health, Machine, Machines};
use canopus_engine::Batch;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::registration::entry_name;
use canopus_xds::{SessionEvent, types};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::push::{Connection, ConnectionId, Observer, Stamp};

/// How long a machine that is gone is kept in mind, so that a write which failed can be made again.
const MEMORY: Duration = Duration::from_secs(300);

/// What is seen of machines on the push path.
pub(crate) struct Sightings(mpsc::UnboundedSender<Sighting>);

/// Something that happened to a connection of a machine.
pub(crate) enum Sighting {
    Connected(ConnectionId, Proxy, Timestamp),
    Reported(ConnectionId, Health),
    Disconnected(ConnectionId, Timestamp),
}

/// Where sightings are made, and where they are heard of.
pub(crate) fn channel() -> (Arc<Sightings>, mpsc::UnboundedReceiver<Sighting>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Sightings(sender)), receiver)
}

impl Sightings {
    fn tell(&self, connection: &Connection, sighting: impl FnOnce() -> Sighting) {
        if key(&connection.proxy).is_some() {
            // Nobody listens any more when the process ends, or where nothing is written to a cluster.
            let _ = self.0.send(sighting());
        }
    }
}

impl Observer for Sightings {
    fn connected(&self, connection: &Connection) {
        let time = timestamp(connection.connected);
        self.tell(connection, || Sighting::Connected(connection.id, connection.proxy.clone(), time));
    }

    fn happened(&self, connection: &Connection, event: &SessionEvent, at: Stamp) {
        let SessionEvent::Reported { type_url, error } = event else { return };
        if **type_url == *types::HEALTH {
            let health = Health { fault: error.clone(), time: timestamp(at) };
            self.tell(connection, || Sighting::Reported(connection.id, health));
        }
    }

    fn disconnected(&self, connection: &Connection, _: &[u64]) {
        self.tell(connection, || Sighting::Disconnected(connection.id, Timestamp::now()));
    }
}

fn timestamp(stamp: Stamp) -> Timestamp {
    Timestamp::try_from(stamp.time).unwrap_or_else(|_| Timestamp::now())
}

/// The WorkloadEntry that a proxy registers as, or says that it is; `None` for all others.
fn key(proxy: &Proxy) -> Option<ObjectKey> {
    let written = || Some(proxy.metadata.workload_entry.clone()).filter(|name| !name.is_empty());
    let name = entry_name(proxy).or_else(written)?;
    Some(ObjectKey::new(Kind::WorkloadEntry, &proxy.metadata.namespace, &name))
}

/// Tells the engine of machines. What it knows of them outlives a panic of its task.
pub(crate) struct MachineKeeper<Store> {
    sightings: mpsc::UnboundedReceiver<Sighting>,
    roster: Roster,
    store: Store,
}

impl<Store: Fn(Batch)> MachineKeeper<Store> {
    pub(crate) fn new(sightings: mpsc::UnboundedReceiver<Sighting>, store: Store) -> Self {
        Self { sightings, roster: Roster::default(), store }
    }

    /// Takes note of sightings for ever.
    pub(crate) async fn run(&mut self) {
        loop {
            let next = self.roster.next_to_forget();
            let changed = tokio::select! {
                sighting = self.sightings.recv() => match sighting {
                    Some(sighting) => self.roster.take(sighting),
                    None => return std::future::pending().await,
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    self.roster.forget(Instant::now())
                }
            };
            let mut batch = Batch::new();
            for key in changed {
                match self.roster.machines.get(&key) {
                    Some(known) => batch.set::<Machines>(key, known.machine.clone()),
                    None => batch.remove::<Machines>(&key),
                };
            }
            (self.store)(batch);
        }
    }
}

/// The machines that are connected, or were a short while ago.
#[derive(Default)]
struct Roster {
    machines: BTreeMap<ObjectKey, Known>,
    connections: BTreeMap<ConnectionId, ObjectKey>,
}

struct Known {
    machine: Machine,
    connections: BTreeSet<ConnectionId>,
    /// When it is forgotten, once it is gone.
    until: Option<Instant>,
}

impl Roster {
    /// Takes note of something; whose entry it is about.
    fn take(&mut self, sighting: Sighting) -> Vec<ObjectKey> {
        match sighting {
            Sighting::Connected(id, proxy, time) => {
                let Some(key) = key(&proxy) else { return Vec::new() };
                self.connections.insert(id, key.clone());
                let health = self.machines.get(&key).and_then(|known| known.machine.health.clone());
                let machine = Machine { proxy, connected: time, disconnected: None, health };
                let known = self.machines.entry(key.clone()).or_insert_with(|| Known {
                    machine: machine.clone(),
                    connections: BTreeSet::new(),
                    until: None,
                });
                known.machine = machine;
                known.connections.insert(id);
                known.until = None;
                vec![key]
            }
            Sighting::Reported(id, health) => {
                let Some(key) = self.connections.get(&id) else { return Vec::new() };
                if let Some(known) = self.machines.get_mut(key) {
                    known.machine.health = Some(health);
                }
                vec![key.clone()]
            }
            Sighting::Disconnected(id, time) => {
                let Some(key) = self.connections.remove(&id) else { return Vec::new() };
                let Some(known) = self.machines.get_mut(&key) else { return Vec::new() };
                known.connections.remove(&id);
                // A machine that connects anew may have two connections for a moment.
                if !known.connections.is_empty() {
                    return Vec::new();
                }
                known.machine.disconnected = Some(time);
                known.until = Some(Instant::now() + MEMORY);
                vec![key]
            }
        }
    }

    fn next_to_forget(&self) -> Option<Instant> {
        self.machines.values().filter_map(|known| known.until).min()
    }

    fn forget(&mut self, now: Instant) -> Vec<ObjectKey> {
        let is_over = |known: &Known| known.until.is_some_and(|until| until <= now);
        let over = self.machines.iter().filter(|(_, known)| is_over(known));
        let over: Vec<ObjectKey> = over.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| _ = self.machines.remove(key));
        over
    }
}
