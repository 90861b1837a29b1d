use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::http::{Method, request};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A hundred requests a second.
const PACE: Duration = Duration::from_millis(10);

/// How long a request may take on a busy machine before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests that go on until they are stopped.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    requests: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, host: &'static str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_over);
        let requests = tokio::spawn(async move {
            let mut ticks = interval(PACE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut running = JoinSet::new();
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                running.spawn(send(address, host));
            }
            let answers = running.join_all().await;
            let failures =
                answers.iter().filter_map(|answer| answer.as_ref().err().map(|error| format!("{error:#}")));
            (answers.len(), failures.collect())
        });
        Self { is_over, requests }
    }

    /// Stops, and gives how many requests were sent. One that failed is an error.
    pub(crate) async fn stop(self) -> Result<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        let (count, failures) = self.requests.await?;
        let shown: Vec<&String> = failures.iter().take(5).collect();
        ensure!(failures.is_empty(), "{} of {count} requests failed, such as {shown:#?}", failures.len());
        Ok(count)
    }
}

async fn send(address: SocketAddr, host: &str) -> Result<()> {
    timeout(PATIENCE, request(Method::GET, address, "/").host(host).send()).await??.ok().map(drop)
}
