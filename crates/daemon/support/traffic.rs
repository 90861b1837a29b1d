//! Requests that must all be answered well while something else goes on.
//!
//! A request that fails does not end the traffic: how many do is what one wants to know.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use canopus_testkit::http;
use tokio::task::JoinHandle;

/// What went wrong: how often, and at first.
#[derive(Default)]
struct Failures {
    count: usize,
    first: Option<anyhow::Error>,
}

/// Requests until it is stopped; each has to be answered with 200.
pub(crate) struct Traffic {
    running: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    task: JoinHandle<Failures>,
}

impl Traffic {
    /// Starts to send requests for the shop to its gateway.
    pub(crate) fn start(gateway: SocketAddr) -> Self {
        Self::to(gateway, "shop.example.com", Duration::from_millis(5))
    }

    /// Starts to send requests for `host` to an address, with a pause after each.
    pub(crate) fn to(address: SocketAddr, host: &str, pause: Duration) -> Self {
        let running = Arc::new(AtomicBool::new(true));
        let answered = Arc::new(AtomicUsize::new(0));
        let (go_on, count, host) = (Arc::clone(&running), Arc::clone(&answered), host.to_owned());
        let task = tokio::spawn(async move {
            let mut failures = Failures::default();
            while go_on.load(Ordering::Relaxed) {
                let request = http::request(http::Method::GET, address, "/items").host(&host);
                let answered = async { request.send().await?.ok() }.await;
                let before = count.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = answered {
                    failures.count += 1;
                    failures.first.get_or_insert(error.context(format!("request {before} for {host}")));
                }
                tokio::time::sleep(pause).await;
            }
            failures
        });
        Self { running, answered, task }
    }

    /// How many requests were answered; an error if one was not, or not well.
    pub(crate) async fn stop(self) -> Result<usize> {
        self.running.store(false, Ordering::Relaxed);
        let Failures { count, first } = self.task.await?;
        let sent = self.answered.load(Ordering::Relaxed);
        match first {
            Some(first) => Err(first.context(format!("{count} of {sent} requests failed"))),
            None => Ok(sent),
        }
    }
}
