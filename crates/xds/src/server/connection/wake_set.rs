//! The parts of a connection that have to run.
//!
//! The parts of a connection wake each other all the time: a call that sends wakes the transport, bytes that arrive wake a
//! call. While the connection runs, waking a part sets a bit; the task is scheduled only if the connection does not run, and
//! once for any number of parts. A part that nobody woke is not polled.
//!
//! Invariant: a part that is woken at any time is polled afterwards. [`WakeSet::take`] stops the connection only in the same
//! atomic step that finds no part woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

/// A part of a connection that runs when it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPart {
    /// HTTP/2: bytes arrived, or bytes can be written.
    Transport = 1,
    /// The calls under way.
    Calls = 2,
    /// Keepalive, the maximum age, and the end of the server.
    Limits = 4,
}

const ALL: u8 = ConnectionPart::Transport as u8 | ConnectionPart::Calls as u8 | ConnectionPart::Limits as u8;
const RUNNING: u8 = 8;

/// The parts that were woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WokenParts(u8);

impl WokenParts {
    pub(super) fn contains(self, part: ConnectionPart) -> bool {
        self.0 & part as u8 != 0
    }
}

/// Collects which parts of a connection were woken.
#[derive(Debug)]
pub(super) struct WakeSet {
    woken: AtomicU8,
    task: AtomicWaker,
    has_received: AtomicBool,
}

impl WakeSet {
    /// The set of a connection that has not run yet: all parts are woken.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            woken: AtomicU8::new(ALL),
            task: AtomicWaker::new(),
            has_received: AtomicBool::new(false),
        })
    }

    /// A waker for one part.
    pub(super) fn waker(self: &Arc<Self>, part: ConnectionPart) -> Waker {
        Waker::from(Arc::new(PartWaker { wake_set: Arc::clone(self), part }))
    }

    /// The connection runs, in the task that `task` wakes.
    pub(super) fn enter(&self, task: &Waker) {
        self.woken.fetch_or(RUNNING, Ordering::AcqRel);
        self.task.register(task);
    }

    /// Takes the parts that were woken. If there are none, the connection does not run any more.
    pub(super) fn take(&self) -> Option<WokenParts> {
        let stopped = self.woken.compare_exchange(RUNNING, 0, Ordering::AcqRel, Ordering::Acquire);
        stopped.is_err().then(|| WokenParts(self.woken.swap(RUNNING, Ordering::AcqRel) & ALL))
    }

    /// The connection does not run any more, although parts may be woken.
    pub(super) fn pause(&self) {
        self.woken.fetch_and(!RUNNING, Ordering::AcqRel);
    }

    /// Wakes a part.
    pub(super) fn wake(&self, part: ConnectionPart) {
        // A connection that runs looks again before it stops, and one that was woken is going to run.
        if self.woken.fetch_or(part as u8, Ordering::AcqRel) == 0 {
            self.task.wake();
        }
    }

    /// Notes that the client sent something.
    pub(super) fn note_received(&self) {
        self.has_received.store(true, Ordering::Relaxed);
    }

    /// Whether the client sent something since this was last asked.
    pub(super) fn take_received(&self) -> bool {
        self.has_received.swap(false, Ordering::Relaxed)
    }
}

/// Wakes one part.
struct PartWaker {
    wake_set: Arc<WakeSet>,
    part: ConnectionPart,
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_set.wake(self.part);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_set.wake(self.part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn part_that_is_woken_while_the_connection_runs_needs_no_further_turn() {
        let (wake_set, count) = (WakeSet::new(), Arc::new(Count::default()));
        wake_set.enter(&Waker::from(Arc::clone(&count)));
        assert_eq!(wake_set.take(), Some(WokenParts(ALL)));
        wake_set.waker(ConnectionPart::Transport).wake();
        let woken = wake_set.take().unwrap();
        assert!(woken.contains(ConnectionPart::Transport) && !woken.contains(ConnectionPart::Calls));
        assert_eq!(wake_set.take(), None);
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn connection_that_does_not_run_is_woken_once() {
        let (wake_set, count) = (WakeSet::new(), Arc::new(Count::default()));
        let task = Waker::from(Arc::clone(&count));
        wake_set.enter(&task);
        while wake_set.take().is_some() {}
        wake_set.waker(ConnectionPart::Calls).wake_by_ref();
        wake_set.waker(ConnectionPart::Transport).wake();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        wake_set.enter(&task);
        let woken = wake_set.take().unwrap();
        assert!(
            woken.contains(ConnectionPart::Calls)
                && woken.contains(ConnectionPart::Transport)
                && !woken.contains(ConnectionPart::Limits)
        );
    }
}
