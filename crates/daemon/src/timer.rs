//! Waiting.

use tokio::time::{Instant, sleep_until};

/// Waits until then; for ever if there is no such time.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
