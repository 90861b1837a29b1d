//! A warning sign that a part of the world is missing: a proxy that connects has much that is not there any more.
//!
//! A client of the delta variant says what it has, so its first answer tells what goes. Where most of its clusters or listeners
//! go at once, the reason is seldom that somebody removed them. Nobody is served before every source is whole, so this is only
//! told; it is for a fault that nobody has thought of.

use std::time::Duration;

use canopus_xds::types;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Fewer resources than this may go without a word.
const FEW: usize = 20;

/// The time between two warnings: when the world is incomplete, every proxy is a reason for one.
const PAUSE: Duration = Duration::from_secs(60);

/// Decides when to warn.
#[derive(Debug, Default)]
pub(super) struct MissingWorld {
    warned: Mutex<Option<Instant>>,
}

impl MissingWorld {
    /// Whether to warn that a first answer removes so many resources of a type, of which so many are left.
    pub(super) fn is_sign(&self, type_url: &str, removed: usize, left: usize) -> bool {
        let is_told = matches!(type_url, types::CLUSTER | types::LISTENER);
        if !is_told || removed < FEW || removed <= left {
            return false;
        }
        let mut warned = self.warned.lock();
        let is_due = warned.is_none_or(|at| at.elapsed() >= PAUSE);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn most_of_what_a_proxy_had_is_a_sign_once_in_a_while() {
        let missing = MissingWorld::default();
        assert!(!missing.is_sign(types::CLUSTER, 19, 0), "a small mesh may be emptied");
        assert!(!missing.is_sign(types::CLUSTER, 100, 100), "half of it may go");
        assert!(!missing.is_sign(types::ENDPOINT, 100, 0));
        assert!(missing.is_sign(types::CLUSTER, 101, 100));
        assert!(!missing.is_sign(types::LISTENER, 101, 0), "it was said a moment ago");
        tokio::time::advance(PAUSE).await;
        assert!(missing.is_sign(types::LISTENER, 101, 0));
    }
}
