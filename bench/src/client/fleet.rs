//! Many proxies.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use canopus_xds::session::Protocol;
use parking_lot::{Mutex, MutexGuard};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use super::kind::Kind;
use super::node::Role;
use super::proxy::Proxy;
use super::record::{Expectation, Record, Totals};
use super::stream::{AbortOnDrop, Seat};

/// How often something is looked for; what is measured is written down as it happens.
const LOOK: Duration = Duration::from_millis(2);

/// Where a fleet connects to.
#[derive(Clone)]
pub struct Target {
    /// The address.
    pub address: SocketAddr,
    /// The name of the server and how to shake hands with it, if with TLS.
    pub tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
}

/// Proxies of one server.
pub struct Fleet {
    seats: Vec<Seat>,
    record: Arc<Mutex<Record>>,
    target: Target,
    connected: Vec<AbortOnDrop<()>>,
}

impl Fleet {
    /// Proxies in these roles, none of them connected. The first of each namespace keeps the bytes it gets.
    pub fn new(
        roles: impl IntoIterator<Item = Role>,
        protocol: Protocol,
        target: Target,
        record: Arc<Mutex<Record>>,
    ) -> Self {
        let mut namespaces = std::collections::BTreeSet::new();
        let seat = |role: Role| {
            let first = namespaces.insert(role.namespace.clone());
            let proxy = Proxy::new(role, protocol);
            let proxy = if first { proxy.with_bodies() } else { proxy };
            Seat { proxy: Arc::new(Mutex::new(proxy)), record: Arc::clone(&record) }
        };
        let seats = roles.into_iter().map(seat).collect();
        Self { seats, record, target, connected: Vec::new() }
    }

    /// How many proxies there are.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// What they have seen.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock()
    }

    /// What they received so far.
    pub fn totals(&self) -> Totals {
        self.record().totals.clone()
    }

    /// One of them.
    pub fn proxy(&self, index: usize) -> MutexGuard<'_, Proxy> {
        self.seats[index].proxy.lock()
    }

    /// Connects some of them; each connects again, after a while, when it loses its stream.
    pub fn connect(&mut self, which: Range<usize>) {
        for seat in &self.seats[which] {
            let task = tokio::spawn(stay_connected(seat.clone(), self.target.clone()));
            self.connected.push(AbortOnDrop(task));
        }
    }

    /// Whether all of them were told to connect.
    pub fn is_connected(&self) -> bool {
        self.connected.len() == self.seats.len()
    }

    /// Forgets who was ready, so that it can be waited for again.
    pub fn forget_ready(&self) {
        self.record().ready.clear();
    }

    /// Waits until so many proxies have an answer to all they asked.
    pub async fn ready(&self, count: usize, patience: Duration) -> Result<()> {
        self.until("proxies with an answer to all they asked", count, patience, |record| record.ready.len())
            .await
    }

    /// Waits until so many streams were opened since these totals.
    pub async fn opened(&self, since: &Totals, count: usize, patience: Duration) -> Result<()> {
        let before = since.streams;
        let opened = |record: &Record| usize::try_from(record.totals.streams - before).unwrap_or(usize::MAX);
        self.until("open streams", count, patience, opened).await
    }

    /// From now on a change of this resource should reach so many of them.
    pub fn expect(&self, kind: Kind, name: &str, count: usize) {
        self.record().expect(kind, name, count);
    }

    /// Waits until an expected change has reached those it should, and ends the expectation; `None` if it was not met in time.
    pub async fn reached(&self, kind: Kind, name: &str, patience: Duration) -> Option<Expectation> {
        let started = Instant::now();
        while started.elapsed() < patience {
            if self.record().expectation(kind, name)?.is_met() {
                break;
            }
            sleep(LOOK).await;
        }
        self.record().take(kind, name).filter(Expectation::is_met)
    }

    /// Waits until nothing has arrived for a while; when the last thing did.
    pub async fn quiet(&self, pause: Duration, patience: Duration) -> Result<Instant> {
        let started = Instant::now();
        loop {
            let last = self.record().last.max(started);
            let waited = last.elapsed();
            if waited >= pause {
                return Ok(self.record().last);
            }
            if started.elapsed() >= patience {
                bail!("responses still arrive after {patience:?}");
            }
            sleep(pause - waited).await;
        }
    }

    async fn until(
        &self,
        what: &str,
        count: usize,
        patience: Duration,
        so_far: impl Fn(&Record) -> usize,
    ) -> Result<()> {
        let started = Instant::now();
        loop {
            let now = so_far(&self.record());
            if now >= count {
                return Ok(());
            }
            if started.elapsed() >= patience {
                let lost = self.record().totals.lost;
                bail!("{now} of {count} {what} after {patience:?}; {lost} streams were refused or broke");
            }
            sleep(LOOK).await;
        }
    }
}

async fn stay_connected(seat: Seat, target: Target) {
    let index = seat.proxy.lock().role().index;
    loop {
        // How it ended does not matter to a proxy: it tries again.
        let _ = connect(&seat, &target).await;
        seat.record.lock().totals.lost += 1;
        sleep(pause(index)).await;
    }
}

/// Proxies come back one after another, as they do with a random wait of up to a second.
fn pause(index: usize) -> Duration {
    Duration::from_millis(50 + (index as u64 * 617) % 950)
}

async fn connect(seat: &Seat, target: &Target) -> Result<()> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    match &target.tls {
        None => seat.converse(stream).await,
        Some((name, config)) => {
            let connector = TlsConnector::from(Arc::clone(config));
            seat.converse(connector.connect(name.clone(), stream).await?).await
        }
    }
}
