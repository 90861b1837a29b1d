//! Who wakes a connection, and what for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

/// A part of a connection that can have something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The bytes: something came in, or something can go out.
    Link = 1,
    /// The calls under way.
    Calls = 2,
    /// Timers and the end of the server.
    Limits = 4,
}

const ALL: u8 = Part::Link as u8 | Part::Calls as u8 | Part::Limits as u8;
const RUNNING: u8 = 8;

/// Parts that have something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due(u8);

impl Due {
    pub(super) fn has(self, part: Part) -> bool {
        self.0 & part as u8 != 0
    }
}

/// Remembers which parts of a connection were woken.
///
/// Parts of a connection wake each other all the time: a call that sends wakes the link, bytes that come in wake a call. As
/// long as the connection runs that is a bit that is set, not another turn at the scheduler, and a part that nobody woke is
/// not looked at.
#[derive(Debug)]
pub(super) struct Latch {
    due: AtomicU8,
    task: AtomicWaker,
    heard: AtomicBool,
}

impl Latch {
    /// A latch of a connection that has not run yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { due: AtomicU8::new(ALL), task: AtomicWaker::new(), heard: AtomicBool::new(false) })
    }

    /// What wakes a part.
    pub(super) fn waker(self: &Arc<Self>, part: Part) -> Waker {
        Waker::from(Arc::new(Bell { latch: Arc::clone(self), part }))
    }

    /// The connection runs, as the task that `task` wakes.
    pub(super) fn enter(&self, task: &Waker) {
        self.due.fetch_or(RUNNING, Ordering::AcqRel);
        self.task.register(task);
    }

    /// Takes what is due. If that is nothing, the connection runs no longer.
    pub(super) fn take(&self) -> Option<Due> {
        let left = self.due.compare_exchange(RUNNING, 0, Ordering::AcqRel, Ordering::Acquire);
        left.is_err().then(|| Due(self.due.swap(RUNNING, Ordering::AcqRel) & ALL))
    }

    /// The connection runs no longer, although something is due.
    pub(super) fn pause(&self) {
        self.due.fetch_and(!RUNNING, Ordering::AcqRel);
    }

    /// Has a part run, as if it had been woken.
    pub(super) fn ring(&self, part: Part) {
        // Whoever runs looks again before it stops; whoever has been woken will run.
        if self.due.fetch_or(part as u8, Ordering::AcqRel) == 0 {
            self.task.wake();
        }
    }

    /// Something came from the client.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether something came from the client since this was last asked.
    pub(super) fn has_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }
}

/// Wakes one part.
struct Bell {
    latch: Arc<Latch>,
    part: Part,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.latch.ring(self.part);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.latch.ring(self.part);
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
        let (latch, count) = (Latch::new(), Arc::new(Count::default()));
        latch.enter(&Waker::from(Arc::clone(&count)));
        assert_eq!(latch.take(), Some(Due(ALL)));
        latch.waker(Part::Link).wake();
        let due = latch.take().unwrap();
        assert!(due.has(Part::Link) && !due.has(Part::Calls));
        assert_eq!(latch.take(), None);
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn connection_that_does_not_run_is_woken_once() {
        let (latch, count) = (Latch::new(), Arc::new(Count::default()));
        let task = Waker::from(Arc::clone(&count));
        latch.enter(&task);
        while latch.take().is_some() {}
        latch.waker(Part::Calls).wake_by_ref();
        latch.waker(Part::Link).wake();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        latch.enter(&task);
        let due = latch.take().unwrap();
        assert!(due.has(Part::Calls) && due.has(Part::Link) && !due.has(Part::Limits));
    }
}
