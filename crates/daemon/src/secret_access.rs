//! Which proxies may have the Secrets of their namespace: the API server is asked on behalf of the service account that a
//! proxy has proved to be.
//!
//! Without an API server the objects are files, and whoever wrote them there meant them for the proxies of their
//! namespace: every proxy that has proved who it is may have them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_engine::Batch;
use canopus_mesh::credential::{Account, SecretAccess};
use canopus_mesh::proxy::Proxy;
use canopus_runtime::tasks;
use canopus_sources::kubernetes::{Cluster, RateLimit, ReviewError};
use canopus_xds::{SessionEvent, types};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::push::{Connection, ConnectionId, Observer, Stamp};
use crate::timer::until;

/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(60);

/// The pause after a question that was not answered.
const RETRY: Duration = Duration::from_secs(5);

/// How often the API server is asked.
const LIMIT: RateLimit = RateLimit { qps: 40.0, burst: 80 };

/// How long an answer may take, the wait for a turn included.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(transparent)]
    Review(#[from] ReviewError),
    #[error("the API server has not answered within {PATIENCE:?}")]
    Late,
    #[error("{0}")]
    Panicked(String),
}

/// Asks whether an account may list the secrets of its namespace.
async fn review(cluster: Cluster, account: Account) -> Result<bool, Unanswered> {
    let asking = async move { cluster.may_list_secrets(&account.namespace, &account.name).await };
    match timeout(PATIENCE, tasks::contain("review of secret access", asking)).await {
        Ok(Ok(answer)) => Ok(answer?),
        Ok(Err(panic)) => Err(Unanswered::Panicked(panic)),
        Err(_) => Err(Unanswered::Late),
    }
}

/// Reports, from the push path, which service accounts want secrets.
pub(crate) struct Wishes(mpsc::UnboundedSender<SecretInterest>);

/// A change in who wants secrets.
#[derive(Debug)]
pub(crate) enum SecretInterest {
    /// A connection of this account asks for secrets.
    Asks(ConnectionId, Account),
    /// A connection is gone.
    Gone(ConnectionId),
}

/// Where wishes are seen, and where they are heard of.
pub(crate) fn channel() -> (Wishes, mpsc::UnboundedReceiver<SecretInterest>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Wishes(sender), receiver)
}

impl Observer for Wishes {
    fn happened(&self, connection: &Connection, event: &SessionEvent, _: Stamp) {
        let SessionEvent::Subscribed { type_url, .. } = event else { return };
        let asks = **type_url == *types::SECRET;
        if let Some(account) = asks.then(|| account(&connection.proxy)).flatten() {
            // The receiver is gone when the process ends.
            let _ = self.0.send(SecretInterest::Asks(connection.id, account));
        }
    }

    fn disconnected(&self, connection: &Connection, _: &[u64]) {
        if connection.proxy.identity.is_some() {
            let _ = self.0.send(SecretInterest::Gone(connection.id));
        }
    }
}

/// The account that a proxy has proved to be.
fn account(proxy: &Proxy) -> Option<Account> {
    let identity = proxy.identity.as_ref()?;
    Some(Account {
        cluster: proxy.metadata.cluster_id.as_str().into(),
        namespace: identity.namespace.clone(),
        name: identity.service_account.clone(),
    })
}

/// Keeps the answers to who may have secrets.
pub(crate) struct AccessKeeper<S> {
    own: Arc<str>,
    cluster: Option<Cluster>,
    wishes: mpsc::UnboundedReceiver<SecretInterest>,
    /// Where changes of inputs go.
    store: S,
    users: BTreeMap<ConnectionId, Account>,
    accounts: BTreeMap<Account, State>,
    under_way: JoinSet<(Account, Result<bool, Unanswered>)>,
}

/// What is known of an account.
#[derive(Debug, Default)]
struct State {
    allowed: Option<bool>,
    /// When to ask; `None` while that is under way.
    due: Option<Instant>,
}

impl<S: Fn(Batch) + Send> AccessKeeper<S> {
    /// Answers for accounts of the cluster `own` by what its API server says, if there is one.
    pub(crate) fn new(
        own: Arc<str>,
        cluster: Option<Cluster>,
        wishes: mpsc::UnboundedReceiver<SecretInterest>,
        store: S,
    ) -> Self {
        let (users, accounts, under_way) = (BTreeMap::new(), BTreeMap::new(), JoinSet::new());
        // Clients decide how much is asked, so that it must not slow down what is read from the API server.
        let cluster = cluster.map(|cluster| cluster.limited(LIMIT));
        Self { own, cluster, wishes, store, users, accounts, under_way }
    }

    /// Answers until nobody can ask any more. If it was run before and panicked, what was under way then is asked anew.
    pub(crate) async fn run(&mut self) {
        self.under_way = JoinSet::new();
        let now = Instant::now();
        self.accounts.values_mut().for_each(|state| _ = state.due.get_or_insert(now));
        loop {
            self.ask();
            let due = self.accounts.values().filter_map(|state| state.due).min();
            tokio::select! {
                wish = self.wishes.recv() => match wish {
                    Some(wish) => self.hear(wish),
                    None => return,
                },
                Some(done) = self.under_way.join_next() => {
                    if let Ok((account, answer)) = done {
                        self.take(&account, answer);
                    }
                }
                () = until(due) => {}
            }
        }
    }

    fn hear(&mut self, wish: SecretInterest) {
        match wish {
            // Accounts of other clusters are not known here.
            SecretInterest::Asks(_, account) if account.cluster != self.own => {}
            SecretInterest::Asks(connection, account) => {
                let new = || State { allowed: None, due: Some(Instant::now()) };
                self.accounts.entry(account.clone()).or_insert_with(new);
                self.users.insert(connection, account);
            }
            SecretInterest::Gone(connection) => {
                let Some(account) = self.users.remove(&connection) else { return };
                if self.users.values().any(|other| *other == account) {
                    return;
                }
                self.accounts.remove(&account);
                let mut batch = Batch::new();
                batch.remove::<SecretAccess>(&account);
                (self.store)(batch);
            }
        }
    }

    /// Asks what is due.
    fn ask(&mut self) {
        let now = Instant::now();
        for (account, state) in &mut self.accounts {
            if state.due.is_none_or(|due| due > now) {
                continue;
            }
            state.due = None;
            let (account, cluster) = (account.clone(), self.cluster.clone());
            self.under_way.spawn(async move {
                let answer = match cluster {
                    Some(cluster) => review(cluster, account.clone()).await,
                    None => Ok(true),
                };
                (account, answer)
            });
        }
    }

    /// Takes an answer. While there is none, the last one counts.
    fn take(&mut self, account: &Account, answer: Result<bool, Unanswered>) {
        let Some(state) = self.accounts.get_mut(account) else { return };
        let allowed = match answer {
            Ok(allowed) => allowed,
            Err(error) => {
                warn!(namespace = %account.namespace, account = %account.name, %error, "secrets are held back");
                state.due = Some(Instant::now() + RETRY);
                return;
            }
        };
        state.due = Some(Instant::now() + FRESH);
        if state.allowed == Some(allowed) {
            return;
        }
        if !allowed {
            warn!(namespace = %account.namespace, account = %account.name, "may not list the secrets of its namespace");
        }
        state.allowed = Some(allowed);
        let mut batch = Batch::new();
        batch.set::<SecretAccess>(account.clone(), allowed);
        (self.store)(batch);
    }
}

#[cfg(test)]
mod tests {
    use canopus_engine::Engine;

    use super::*;
    use crate::push::Dispatcher;

    fn account(cluster: &str) -> Account {
        Account { cluster: cluster.into(), namespace: "demo".into(), name: "gateway".into() }
    }

    #[tokio::test]
    async fn accounts_have_an_answer_while_they_are_connected() {
        let engine = Engine::new();
        let dispatcher = Dispatcher::unobserved(engine.clone());
        let connections = ["a", "b"].map(|name| dispatcher.connect(crate::test_proxy(name)).id);
        let (wishes, heard) = mpsc::unbounded_channel();
        let (stored, mut changes) = mpsc::unbounded_channel();
        let store = {
            let engine = engine.clone();
            move |batch| {
                engine.apply(batch);
                stored.send(()).unwrap();
            }
        };
        let mut keeper = AccessKeeper::new("own".into(), None, heard, store);
        let running = tokio::spawn(async move { keeper.run().await });
        let may = |cluster| engine.read::<SecretAccess>(&account(cluster)).is_some_and(|allowed| *allowed);

        wishes.send(SecretInterest::Asks(connections[0], account("other"))).unwrap();
        wishes.send(SecretInterest::Asks(connections[0], account("own"))).unwrap();
        wishes.send(SecretInterest::Asks(connections[1], account("own"))).unwrap();
        changes.recv().await.unwrap();
        assert!(may("own") && !may("other"));

        wishes.send(SecretInterest::Gone(connections[0])).unwrap();
        wishes.send(SecretInterest::Gone(connections[1])).unwrap();
        changes.recv().await.unwrap();
        assert!(!may("own"));
        drop(wishes);
        running.await.unwrap();
    }
}
