//! How many streams may be starting at once.
//!
//! A proxy that connects costs far more than one that is there: what it says of itself is decoded, its configuration is
//! generated, all of it is sent at once. When a thousand come together, memory for all of that at the same time would be
//! several times what they need later. So a stream waits for its turn before its first request is decoded, and gives the turn
//! up when the client has acknowledged all it asked for. Turns are taken in the order of arrival.
//!
//! A client that does not read, or is far away, does not keep others waiting: a turn ends after [`LONGEST`] in any case.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// How long a starting stream may keep others waiting.
const LONGEST: Duration = Duration::from_secs(1);

/// Admits streams that start.
pub(super) struct StartGate(Arc<Semaphore>);

/// The permission to start, until this is dropped or given up.
pub(super) struct StartPermit(Option<Box<(OwnedSemaphorePermit, Pin<Box<Sleep>>)>>);

impl StartGate {
    /// A gate for so many streams at once, of which there is at least one.
    pub(super) fn new(streams: usize) -> Self {
        Self(Arc::new(Semaphore::new(streams.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Waits for the turn of a stream.
    pub(super) async fn enter(&self) -> StartPermit {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.0).acquire_owned().await.ok();
        StartPermit(permit.map(|permit| Box::new((permit, Box::pin(sleep(LONGEST))))))
    }
}

impl StartPermit {
    /// Lets the next stream start.
    pub(super) fn release(&mut self) {
        self.0 = None;
    }

    /// Lets the next stream start once this one has taken too long.
    pub(super) fn poll_overdue(&mut self, cx: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|started| started.1.as_mut().poll(cx).is_ready()) {
            self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn streams_start_in_turn() {
        let gate = StartGate::new(1);
        let mut first = gate.enter().await;
        let (mut second, mut third) = (pin!(gate.enter()), pin!(gate.enter()));
        assert!(poll!(second.as_mut()).is_pending() && poll!(third.as_mut()).is_pending());
        first.release();
        assert!(poll!(third.as_mut()).is_pending(), "it is not its turn");
        let Poll::Ready(second) = poll!(second) else { panic!("it is its turn") };
        drop(second);
        assert!(poll!(third).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn stream_that_takes_too_long_lets_others_start() {
        let gate = StartGate::new(1);
        let mut slow = gate.enter().await;
        let overdue = poll_fn(|cx| {
            slow.poll_overdue(cx);
            if slow.0.is_none() { Poll::Ready(()) } else { Poll::Pending }
        });
        overdue.await;
        assert!(poll!(pin!(gate.enter())).is_ready());
    }
}
