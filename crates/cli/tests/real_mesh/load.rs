use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::http::{Method, request};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A hundred requests a second, where the machine keeps up.
const PACE: Duration = Duration::from_millis(10);

/// How many requests may wait for their answers. On a machine that does not keep up, more of them would only bury it.
const CUSTOMERS: usize = 8;

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
            let (mut count, mut failures) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                if running.len() == CUSTOMERS {
                    failures.extend(running.join_next().await.and_then(failure));
                }
                running.spawn(send(address, host));
                count += 1;
            }
            while let Some(ended) = running.join_next().await {
                failures.extend(failure(ended));
            }
            (count, failures)
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

fn failure(ended: Result<Result<()>, JoinError>) -> Option<String> {
    match ended {
        Ok(answer) => answer.err().map(|error| format!("{error:#}")),
        Err(error) => Some(error.to_string()),
    }
}

async fn send(address: SocketAddr, host: &str) -> Result<()> {
    timeout(PATIENCE, request(Method::GET, address, "/").host(host).send()).await??.ok().map(drop)
}
