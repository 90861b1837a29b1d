//! Mailboxes: how a control plane wakes the sessions of its clients.
//!
//! A mailbox holds one pending wake-up: the latest revision, and the types that may have changed since the session last
//! looked. It carries no resources; a woken session asks the control plane for them.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::types::Types;

/// Wakes one session.
///
/// Revisions that arrive while the session is busy are merged into one, so a mailbox has a fixed size however far behind its
/// session is.
#[derive(Debug, Default)]
pub struct Mailbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// Types whose resources may have changed since the session last looked.
    types: Types,
    is_revised: bool,
    is_ended: bool,
    waiting: Option<Waker>,
}

/// Why a session is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// The world is at this revision, and resources of these types may have changed.
    Revised(u64, Types),
    /// The stream has to end.
    End,
}

impl Mailbox {
    /// Tells the session to compare what the client has of these types with the world at this revision.
    pub fn revise(&self, revision: u64, types: Types) {
        let mut state = self.0.lock();
        state.revision = revision;
        state.types = state.types.union(types);
        state.is_revised = true;
        wake(state.waiting.take(), state);
    }

    /// Tells the session to end its stream.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.is_ended = true;
        wake(state.waiting.take(), state);
    }

    /// The last revision the session was told of.
    pub fn revision(&self) -> u64 {
        self.0.lock().revision
    }

    /// Whether the stream has to end.
    pub fn is_ended(&self) -> bool {
        self.0.lock().is_ended
    }

    /// The revision and the types that the session has not been told of, for sessions that no task drives.
    pub fn take_revision(&self) -> Option<(u64, Types)> {
        let mut state = self.0.lock();
        std::mem::take(&mut state.is_revised).then(|| (state.revision, std::mem::take(&mut state.types)))
    }

    /// Waits for a reason to wake. Only the task that polled last is woken.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Wakeup> {
        let mut state = self.0.lock();
        if state.is_ended {
            return Poll::Ready(Wakeup::End);
        }
        if std::mem::take(&mut state.is_revised) {
            return Poll::Ready(Wakeup::Revised(state.revision, std::mem::take(&mut state.types)));
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Waits until the stream has to end. A revision that arrives meanwhile is kept for [`poll`](Self::poll).
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.is_ended {
            return Poll::Ready(());
        }
        state.wait(cx);
        Poll::Pending
    }
}

impl State {
    fn wait(&mut self, cx: &mut Context<'_>) {
        match &mut self.waiting {
            Some(waiting) => waiting.clone_from(cx.waker()),
            waiting => *waiting = Some(cx.waker().clone()),
        }
    }
}

/// Wakes the session after the lock is released, which the session takes next.
fn wake<L>(waiting: Option<Waker>, lock: L) {
    drop(lock);
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}

/// The mailboxes of all clients.
#[derive(Debug, Default)]
pub struct Mailboxes(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    mailboxes: Vec<Weak<Mailbox>>,
    /// The length at which those of ended sessions are dropped next.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 64;

impl Mailboxes {
    /// Adds a mailbox until its session ends.
    pub fn add(&self, mailbox: &Arc<Mailbox>) {
        let mut open = self.0.lock();
        if open.mailboxes.len() >= open.sweep_at {
            open.mailboxes.retain(|mailbox| mailbox.strong_count() > 0);
            open.sweep_at = SMALLEST_SWEEP.max(open.mailboxes.len() * 2);
        }
        open.mailboxes.push(Arc::downgrade(mailbox));
    }

    /// Tells all sessions of a revision at which resources of these types may have changed.
    pub fn revise(&self, revision: u64, types: Types) {
        self.all().iter().for_each(|mailbox| mailbox.revise(revision, types));
    }

    /// Ends the streams of all of them.
    pub fn end(&self) {
        self.all().iter().for_each(|mailbox| mailbox.end());
    }

    fn all(&self) -> Vec<Arc<Mailbox>> {
        self.0.lock().mailboxes.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CLUSTER, ENDPOINT, LISTENER};

    fn poll(mailbox: &Mailbox) -> Poll<Wakeup> {
        mailbox.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn revisions_are_merged_when_the_session_is_busy() {
        let mailbox = Mailbox::default();
        assert_eq!(poll(&mailbox), Poll::Pending);
        mailbox.revise(1, Types::only(CLUSTER));
        mailbox.revise(3, Types::only(ENDPOINT));
        let types = Types::only(CLUSTER).union(Types::only(ENDPOINT));
        assert!(!types.intersects(Types::only(LISTENER)));
        assert_eq!(poll(&mailbox), Poll::Ready(Wakeup::Revised(3, types)));
        assert_eq!(poll(&mailbox), Poll::Pending);
    }

    #[test]
    fn session_is_told_of_a_revision_without_types() {
        let mailbox = Mailbox::default();
        mailbox.revise(1, Types::default());
        assert_eq!(poll(&mailbox), Poll::Ready(Wakeup::Revised(1, Types::default())));
    }

    #[test]
    fn all_streams_end_and_stay_ended() {
        let mailboxes = Mailboxes::default();
        let own: Vec<Arc<Mailbox>> = (0..3).map(|_| Arc::default()).collect();
        own.iter().for_each(|mailbox| mailboxes.add(mailbox));
        mailboxes.revise(7, Types::ALL);
        mailboxes.end();
        assert!(own.iter().all(|mailbox| mailbox.is_ended() && mailbox.revision() == 7));
        assert_eq!(poll(&own[0]), Poll::Ready(Wakeup::End));
        assert_eq!(poll(&own[0]), Poll::Ready(Wakeup::End));
    }

    #[test]
    fn mailboxes_of_ended_sessions_are_dropped() {
        let mailboxes = Mailboxes::default();
        (0..10 * SMALLEST_SWEEP).for_each(|_| mailboxes.add(&Arc::default()));
        assert!(mailboxes.0.lock().mailboxes.len() <= 2 * SMALLEST_SWEEP);
    }
}
