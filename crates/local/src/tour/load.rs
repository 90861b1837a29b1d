//! Requests that are sent while a step is taken.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::http::{Connection, Response};
use crate::mesh_file::Request;
use crate::url::Url;

/// Requests in a second.
const RATE: u32 = 50;

/// Fewer requests than this say nothing: the load goes on until they are sent.
const LEAST: usize = 100;

/// How long the load goes on for that.
const PATIENCE: Duration = Duration::from_secs(30);

/// The status of a request that did not fail.
pub(super) const SUCCESS: u16 = 200;

/// A client of a gateway with one connection, which it opens again when it is closed.
pub(super) struct Client {
    url: Url,
    headers: BTreeMap<String, String>,
    connection: Option<Connection>,
}

impl Client {
    pub(super) fn new(request: &Request) -> Result<Self> {
        Ok(Self { url: Url::parse(&request.get)?, headers: request.headers.clone(), connection: None })
    }

    /// Sends the request. Gateways are on this machine, whatever the host in the URL is.
    pub(super) async fn send(&mut self) -> Result<Response> {
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(open) => open,
            None => Connection::open(SocketAddr::from((Ipv4Addr::LOCALHOST, self.url.port))).await?,
        };
        let response = connection.get(&self.url.authority, &self.url.path, &self.headers).await?;
        self.connection = Some(connection);
        Ok(response)
    }
}

/// Requests under way.
pub(super) struct Load {
    url: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Outcome>,
}

#[derive(Default)]
struct Outcome {
    answered: usize,
    failures: Vec<String>,
}

impl Load {
    /// Begins to send.
    pub(super) fn start(request: Request) -> Self {
        let (stop, stopped) = oneshot::channel();
        let url = request.get.clone();
        let task = tokio::task::spawn_local(send_steadily(request, stopped));
        Self { url, stop, task }
    }

    /// Ends once enough was sent, and fails if an answer was not what it should be.
    pub(super) async fn finish(self) -> Result<String> {
        // The load has ended early only if it could not begin.
        let _ = self.stop.send(());
        self.task.await.context("the load failed")?.judge(&self.url)
    }
}

impl Outcome {
    fn total(&self) -> usize {
        self.answered + self.failures.len()
    }

    /// Fails if an answer was not what it should be, or too few were asked for.
    fn judge(&self, url: &str) -> Result<String> {
        let total = self.total();
        if let Some(first) = self.failures.first() {
            bail!(
                "{} of {total} requests to {url} failed meanwhile, the first: {first}",
                self.failures.len()
            );
        }
        if total < LEAST {
            bail!("only {total} requests to {url} could be sent in {} s", PATIENCE.as_secs());
        }
        Ok(format!("{total} requests to {url} meanwhile, 0 failed"))
    }
}

async fn send_steadily(request: Request, mut stopped: oneshot::Receiver<()>) -> Outcome {
    let mut outcome = Outcome::default();
    let start = Instant::now();
    let mut client = match Client::new(&request) {
        Ok(client) => client,
        Err(error) => {
            outcome.failures.push(format!("{error:#}"));
            return outcome;
        }
    };
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut stopped, if outcome.total() >= LEAST || start.elapsed() > PATIENCE => return outcome,
        }
        let after = start.elapsed().as_millis();
        match client.send().await {
            Ok(response) if response.status == SUCCESS => outcome.answered += 1,
            Ok(response) => {
                let body = String::from_utf8_lossy(&response.body);
                outcome.failures.push(format!("{} after {after} ms: {}", response.status, body.trim()));
            }
            Err(error) => outcome.failures.push(format!("after {after} ms: {error:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_that_was_too_small_or_failed_once_is_a_failure() {
        let outcome = |answered: usize, failures: &[&str]| Outcome {
            answered,
            failures: failures.iter().map(|failure| (*failure).to_owned()).collect(),
        };
        assert!(outcome(LEAST, &[]).judge("http://localhost/").unwrap().contains("100 requests"));
        let few = outcome(LEAST - 1, &[]).judge("http://localhost/").unwrap_err().to_string();
        assert!(few.contains("only 99 requests"), "{few}");
        let failed =
            outcome(LEAST, &["403 Forbidden after 7 ms"]).judge("http://localhost/").unwrap_err().to_string();
        assert!(failed.contains("1 of 101") && failed.contains("403 Forbidden"), "{failed}");
    }
}
