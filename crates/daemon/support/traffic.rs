//! Requests that must all be answered well while something else goes on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use canopus_testkit::http;
use tokio::task::JoinHandle;

/// Requests in a row until it is stopped; each has to be answered with 200.
pub(crate) struct Traffic {
    running: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    task: JoinHandle<Result<()>>,
}

impl Traffic {
    pub(crate) fn start(gateway: SocketAddr) -> Self {
        let running = Arc::new(AtomicBool::new(true));
        let answered = Arc::new(AtomicUsize::new(0));
        let (go_on, count) = (Arc::clone(&running), Arc::clone(&answered));
        let task = tokio::spawn(async move {
            while go_on.load(Ordering::Relaxed) {
                let request = http::request(http::Method::GET, gateway, "/items").host("shop.example.com");
                request.send().await?.ok()?;
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        });
        Self { running, answered, task }
    }

    /// How many requests were answered; an error if one was not, or not well.
    pub(crate) async fn stop(self) -> Result<usize> {
        self.running.store(false, Ordering::Relaxed);
        self.task.await??;
        Ok(self.answered.load(Ordering::Relaxed))
    }
}
