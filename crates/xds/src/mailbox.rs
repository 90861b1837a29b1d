//! How a control plane reaches the sessions of its clients.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::types::Types;

/// Where a session finds what its control plane has to tell it.
///
/// What comes while the session is busy is told as one. Nothing is kept for each message, and a session that waits is woken
/// without a look at any other.
#[derive(Debug, Default)]
pub struct Mailbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// Types of which there may be something new that the session does not know of.
    types: Types,
    is_new: bool,
    is_over: bool,
    waiting: Option<Waker>,
}

/// What a session is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    /// The world is another, and there may be something new of these types.
    News(u64, Types),
    /// The stream has to end.
    Over,
}

impl Mailbox {
    /// The world is at this revision now, and there may be something new of these types for the client.
    pub fn revise(&self, revision: u64, types: Types) {
        let mut state = self.0.lock();
        state.revision = revision;
        state.types = state.types.and(types);
        state.is_new = true;
        wake(state.waiting.take(), state);
    }

    /// The client's stream has to end.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.is_over = true;
        wake(state.waiting.take(), state);
    }

    /// The last revision that was told.
    pub fn revision(&self) -> u64 {
        self.0.lock().revision
    }

    /// Whether the stream has to end.
    pub fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    /// What there is to tell. Only the last who asked is woken.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Letter> {
        let mut state = self.0.lock();
        if state.is_over {
            return Poll::Ready(Letter::Over);
        }
        if std::mem::take(&mut state.is_new) {
            return Poll::Ready(Letter::News(state.revision, std::mem::take(&mut state.types)));
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Whether the stream has to end. What else there is to tell stays.
    pub(crate) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.is_over {
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

/// Wakes whoever waited, who will want the lock.
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
    /// Size at which those nobody looks into are dropped next.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 64;

impl Mailboxes {
    /// One more mailbox, for as long as somebody else has it.
    pub fn add(&self, mailbox: &Arc<Mailbox>) {
        let mut open = self.0.lock();
        if open.mailboxes.len() >= open.sweep_at {
            open.mailboxes.retain(|mailbox| mailbox.strong_count() > 0);
            open.sweep_at = SMALLEST_SWEEP.max(open.mailboxes.len() * 2);
        }
        open.mailboxes.push(Arc::downgrade(mailbox));
    }

    /// Tells all of them of a revision that may have something new of these types.
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

    fn poll(mailbox: &Mailbox) -> Poll<Letter> {
        mailbox.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn revisions_are_told_as_one_when_nobody_looked_in_between() {
        let mailbox = Mailbox::default();
        assert_eq!(poll(&mailbox), Poll::Pending);
        mailbox.revise(1, Types::of(CLUSTER));
        mailbox.revise(3, Types::of(ENDPOINT));
        let types = Types::of(CLUSTER).and(Types::of(ENDPOINT));
        assert!(!types.meet(Types::of(LISTENER)));
        assert_eq!(poll(&mailbox), Poll::Ready(Letter::News(3, types)));
        assert_eq!(poll(&mailbox), Poll::Pending);
    }

    #[test]
    fn revision_is_told_when_it_is_about_no_type() {
        let mailbox = Mailbox::default();
        mailbox.revise(1, Types::default());
        assert_eq!(poll(&mailbox), Poll::Ready(Letter::News(1, Types::default())));
    }

    #[test]
    fn all_streams_end_and_stay_ended() {
        let mailboxes = Mailboxes::default();
        let own: Vec<Arc<Mailbox>> = (0..3).map(|_| Arc::default()).collect();
        own.iter().for_each(|mailbox| mailboxes.add(mailbox));
        mailboxes.revise(7, Types::ALL);
        mailboxes.end();
        assert!(own.iter().all(|mailbox| mailbox.is_over() && mailbox.revision() == 7));
        assert_eq!(poll(&own[0]), Poll::Ready(Letter::Over));
        assert_eq!(poll(&own[0]), Poll::Ready(Letter::Over));
    }

    #[test]
    fn mailboxes_nobody_has_any_more_are_forgotten() {
        let mailboxes = Mailboxes::default();
        (0..10 * SMALLEST_SWEEP).for_each(|_| mailboxes.add(&Arc::default()));
        assert!(mailboxes.0.lock().mailboxes.len() <= 2 * SMALLEST_SWEEP);
    }
}
