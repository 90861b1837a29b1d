//! The scripted proxies of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
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
use super::stream::{AbortOnDrop, Conversation};

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
    conversations: Vec<Conversation>,
    record: Arc<Mutex<Record>>,
    target: Target,
    /// The tasks of those that are connected, by place.
    connected: BTreeMap<usize, AbortOnDrop<()>>,
    protocol: Protocol,
}

impl Fleet {
    /// Proxies in these roles, none of them connected. The first of each kind in each namespace keeps the
    /// bytes it gets.
    pub fn new(
        roles: impl IntoIterator<Item = Role>,
        protocol: Protocol,
        target: Target,
        record: Arc<Mutex<Record>>,
    ) -> Self {
        let mut kinds = BTreeSet::new();
        let conversation = |role: Role| {
            let first = kinds.insert((role.namespace.clone(), kind(&role).to_owned()));
            let proxy = Proxy::new(role, protocol);
            let proxy = if first { proxy.with_bodies() } else { proxy };
            Conversation { proxy: Arc::new(Mutex::new(proxy)), record: Arc::clone(&record) }
        };
        let conversations = roles.into_iter().map(conversation).collect();
        Self { conversations, record, target, connected: BTreeMap::new(), protocol }
    }

    /// How many proxies there are.
    pub fn len(&self) -> usize {
        self.conversations.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.conversations.is_empty()
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
        self.conversations[index].proxy.lock()
    }

    /// Connects some of them; each connects again, after a while, when it loses its stream.
    pub fn connect(&mut self, which: impl IntoIterator<Item = usize>) {
        for index in which {
            let task = tokio::spawn(stay_connected(self.conversations[index].clone(), self.target.clone()));
            self.connected.insert(index, AbortOnDrop(task));
        }
    }

    /// Ends the connections of some of them, without a word; they keep what they have.
    pub fn disconnect(&mut self, which: impl IntoIterator<Item = usize>) {
        for index in which {
            self.connected.remove(&index);
        }
    }

    /// Puts another proxy, which has nothing and is not connected, at the place of one.
    pub fn replace(&mut self, role: Role) {
        let index = role.index;
        self.connected.remove(&index);
        self.record().ready.remove(&index);
        let keeps_bodies = self.proxy(index).keeps_bodies();
        let proxy = Proxy::new(role, self.protocol);
        let proxy = if keeps_bodies { proxy.with_bodies() } else { proxy };
        self.conversations[index].proxy = Arc::new(Mutex::new(proxy));
    }

    /// How many responses these proxies have had, of each kind.
    pub fn responses(&self, which: impl IntoIterator<Item = usize>) -> [u64; 4] {
        let mut sum = [0; 4];
        for index in which {
            let of_one = self.proxy(index).responses();
            for (sum, one) in sum.iter_mut().zip(of_one) {
                *sum += one;
            }
        }
        sum
    }

    /// Whether all of them were told to connect.
    pub fn is_connected(&self) -> bool {
        self.connected.len() == self.conversations.len()
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

/// What a proxy is there for, as its node id says.
fn kind(role: &Role) -> &str {
    role.node.id.split('~').next().unwrap_or_default()
}

async fn stay_connected(conversation: Conversation, target: Target) {
    let index = conversation.proxy.lock().role().index;
    loop {
        // How it ended does not matter to a proxy: it tries again.
        let _ = connect(&conversation, &target).await;
        conversation.record.lock().totals.lost += 1;
        sleep(pause(index)).await;
    }
}

/// Proxies come back one after another, as they do with a random wait of up to a second.
fn pause(index: usize) -> Duration {
    Duration::from_millis(50 + (index as u64 * 617) % 950)
}

async fn connect(conversation: &Conversation, target: &Target) -> Result<()> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    match &target.tls {
        None => conversation.converse(stream).await,
        Some((name, config)) => {
            let connector = TlsConnector::from(Arc::clone(config));
            conversation.converse(connector.connect(name.clone(), stream).await?).await
        }
    }
}
