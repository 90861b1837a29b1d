//! Keys of token issuers: fetched for the RequestAuthentications that name a server of keys, kept fresh, and made known to
//! the mesh.
//!
//! Tokens of an issuer whose keys are not known are refused. Keys that were known stay in use while their server cannot be
//! reached, though not for ever.

mod client;
mod fetch;
mod resolver;

use std::collections::BTreeMap;
use std::time::Duration;

use canopus_engine::{Batch, Engine};
use canopus_mesh::request_authentication::{Jwks, KeySource, WantedKeys};
use canopus_runtime::flags::{Flags, PILOT_JWT_PUB_KEY_REFRESH_INTERVAL};
use canopus_runtime::metrics::{Counter, Registry, catalogue};
use canopus_runtime::tasks;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use self::client::Client;
pub(crate) use self::fetch::FetchError;
use crate::timer::until;

/// The pause after a first failure to fetch keys of which none are known; it doubles with each that follows.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The pause after a first failure to fetch keys anew; it doubles with each that follows.
const FIRST_REFRESH_RETRY: Duration = Duration::from_secs(60);

/// The longest pause after failures.
const LONGEST_RETRY: Duration = Duration::from_secs(60 * 60);

/// How long keys stay in use that cannot be fetched anew.
const LONGEST_USE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How servers are spoken to that the system's authorities vouch for.
pub(crate) fn tls_client() -> Result<rustls::ClientConfig, rustls::Error> {
    client::tls(false)
}

/// Asks servers for keys.
#[derive(Clone)]
pub(crate) struct KeyServer(Client);

impl KeyServer {
    /// Asks as the flags allow.
    pub(crate) fn new(flags: &Flags) -> Self {
        Self(Client::new(flags))
    }

    /// The document at an address.
    pub(crate) async fn document(&self, address: &str, patience: Duration) -> Result<String, FetchError> {
        self.0.get(address, patience).await
    }

    /// The keys of a source, as its server sent them.
    pub(crate) async fn keys(&self, source: &KeySource, patience: Duration) -> Result<String, FetchError> {
        fetch::keys(&self.0, source, patience).await
    }
}

/// Keeps the keys of a mesh.
pub(crate) struct KeyKeeper<S> {
    engine: Engine,
    revisions: watch::Receiver<u64>,
    /// Where changes of inputs go.
    store: S,
    client: Client,
    refresh: Duration,
    fetched: Counter,
    failed: Counter,
    sources: BTreeMap<KeySource, State>,
    under_way: JoinSet<(KeySource, Result<String, FetchError>)>,
}

/// What is known of a source.
#[derive(Debug)]
struct State {
    timeout: Duration,
    keys: Option<String>,
    /// When they were fetched; before that, when they were first wanted.
    since: Instant,
    failures: u32,
    /// When to fetch; `None` while that is under way.
    due: Option<Instant>,
}

impl<S: Fn(Batch) + Send> KeyKeeper<S> {
    /// Keeps the keys that `engine` wants. `revisions` tells when to look again what that is; `store` takes what changes.
    pub(crate) fn new(
        engine: Engine,
        revisions: watch::Receiver<u64>,
        flags: &Flags,
        metrics: &Registry,
        store: S,
    ) -> Self {
        let refresh = flags.get(PILOT_JWT_PUB_KEY_REFRESH_INTERVAL);
        Self {
            engine,
            revisions,
            store,
            client: Client::new(flags),
            // Go's durations may be negative; that is not a pace.
            refresh: refresh.max(FIRST_RETRY),
            fetched: metrics.value(catalogue::PILOT_JWKS_RESOLVER_NETWORK_FETCH_SUCCESS_TOTAL),
            failed: metrics.value(catalogue::PILOT_JWKS_RESOLVER_NETWORK_FETCH_FAIL_TOTAL),
            sources: BTreeMap::new(),
            under_way: JoinSet::new(),
        }
    }

    /// Keeps keys until the task is dropped. If it was run before and panicked, what was under way then is fetched anew.
    pub(crate) async fn run(&mut self) {
        self.under_way = JoinSet::new();
        let now = Instant::now();
        self.sources.values_mut().for_each(|state| _ = state.due.get_or_insert(now));
        loop {
            self.look();
            self.begin();
            let due = self.sources.values().filter_map(|state| state.due).min();
            tokio::select! {
                changed = self.revisions.changed() => if changed.is_err() { return },
                Some(done) = self.under_way.join_next() => {
                    // A panic of a fetch is contained: it is a failure like any other.
                    if let Ok((source, outcome)) = done {
                        self.take(&source, outcome);
                    }
                }
                () = until(due) => {}
            }
        }
    }

    /// Learns which sources are wanted now.
    fn look(&mut self) {
        self.revisions.borrow_and_update();
        let wanted = match self.engine.get::<WantedKeys>(&()) {
            Ok(wanted) => wanted,
            Err(error) => {
                warn!(%error, "which keys are wanted cannot be told");
                return;
            }
        };
        let mut batch = Batch::new();
        let gone: Vec<_> =
            self.sources.keys().filter(|source| !wanted.contains_key(source)).cloned().collect();
        for source in &gone {
            self.sources.remove(source);
            batch.remove::<Jwks>(source);
        }
        if !gone.is_empty() {
            (self.store)(batch);
        }
        let now = Instant::now();
        for (source, timeout) in wanted.iter() {
            let new = || State { timeout: *timeout, keys: None, since: now, failures: 0, due: Some(now) };
            self.sources.entry(source.clone()).or_insert_with(new).timeout = *timeout;
        }
    }

    /// Begins to fetch what is due.
    fn begin(&mut self) {
        let now = Instant::now();
        for (source, state) in &mut self.sources {
            if state.due.is_none_or(|due| due > now) {
                continue;
            }
            state.due = None;
            let (source, client, timeout) = (source.clone(), self.client.clone(), state.timeout);
            self.under_way.spawn(async move {
                let asked = source.clone();
                let fetching = async move { fetch::keys(&client, &asked, timeout).await };
                let outcome = tasks::contain("fetch of keys", fetching).await;
                (source, outcome.unwrap_or_else(|panic| Err(FetchError::Panicked(panic))))
            });
        }
    }

    /// Takes what came of a fetch.
    fn take(&mut self, source: &KeySource, outcome: Result<String, FetchError>) {
        let now = Instant::now();
        let Some(state) = self.sources.get_mut(source) else { return };
        let mut batch = Batch::new();
        match outcome {
            Ok(keys) => {
                self.fetched.inc();
                state.failures = 0;
                state.since = now;
                state.due = Some(now + self.refresh);
                if state.keys.as_ref().is_some_and(|old| fetch::are_the_same(old, &keys)) {
                    return;
                }
                info!(source = %name(source), "keys fetched");
                batch.set::<Jwks>(source.clone(), keys.as_str().into());
                state.keys = Some(keys);
            }
            Err(error) => {
                self.failed.inc();
                let pause = pause(state.failures, state.keys.is_some());
                warn!(source = %name(source), %error, retry_in = ?pause, "keys cannot be fetched");
                state.failures = state.failures.saturating_add(1);
                state.due = Some(now + pause);
                if state.keys.is_none() || now - state.since < LONGEST_USE {
                    return;
                }
                warn!(source = %name(source), "the keys are too old; tokens are refused");
                state.keys = None;
                batch.remove::<Jwks>(source);
            }
        }
        (self.store)(batch);
    }
}

/// The pause after this many failures that went before.
fn pause(failures: u32, has_keys: bool) -> Duration {
    let first = if has_keys { FIRST_REFRESH_RETRY } else { FIRST_RETRY };
    first.saturating_mul(1 << failures.min(16)).min(LONGEST_RETRY)
}

fn name(source: &KeySource) -> &str {
    match source {
        KeySource::Uri(name) | KeySource::Issuer(name) => name,
    }
}

#[cfg(test)]
mod tests;
