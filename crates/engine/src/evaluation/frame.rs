//! An evaluation as its own thread sees it.
//!
//! Reads are recorded here without locks, because no other thread looks. Other threads need them only to report a cycle, so
//! a frame publishes its progress into its [`Job`] just before its thread waits for another.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::eval::Requester;
use super::job::Job;
use super::workers::HelperSpawner;
use crate::graph::Memo;
use crate::ids::NodeId;
use crate::node::Subject;
use crate::reads::ReadLog;

/// How many old reads a query may leave out before the following ones are no longer recognised.
const LOOK_AHEAD: usize = 8;

/// An evaluation under way on this thread.
pub(crate) struct Frame<'a> {
    pub(crate) job: &'a Arc<Job>,
    /// The evaluation that requested this one, if it is on this thread.
    requester: Option<&'a Frame<'a>>,
    /// How deep it is nested, over all threads.
    pub(crate) depth: u32,
    pub(crate) spawner: &'a dyn HelperSpawner,
    /// How many of its requests were answered by memos.
    hits: Cell<u64>,
    reads: RefCell<ReadLog>,
    /// Reads of the query's last run.
    old_reads: &'a [NodeId],
    /// Position in the old reads where the next read is expected.
    expected: Cell<usize>,
    /// While the old memo is verified: the read that is being checked.
    verifying: Cell<Option<NodeId>>,
    /// How many of its reads are published; `None` if nothing ever was.
    published: Cell<Option<usize>>,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(
        job: &'a Arc<Job>,
        old: Option<&'a Memo>,
        requester: Requester<'a>,
        depth: u32,
    ) -> Self {
        Self {
            job,
            requester: requester.frame(),
            depth,
            spawner: requester.spawner(),
            hits: Cell::new(0),
            reads: RefCell::default(),
            old_reads: old.map(|memo| &*memo.reads).unwrap_or_default(),
            expected: Cell::new(0),
            verifying: Cell::new(None),
            published: Cell::new(None),
        }
    }

    /// The id of the query being evaluated.
    pub(crate) fn id(&self) -> NodeId {
        self.job.subject.id()
    }

    pub(crate) fn record(&self, subject: Subject) {
        self.reads.borrow_mut().record(subject);
    }

    /// The old read that is expected next: a query that runs again mostly reads the same as before, in the same order.
    pub(crate) fn expected_read(&self) -> Option<NodeId> {
        self.old_reads.get(self.expected.get()).copied()
    }

    /// Notes that the query read a node, to expect what followed it in the old reads.
    pub(crate) fn update_expected(&self, read: NodeId) {
        let expected = self.expected.get();
        let ahead = self.old_reads.iter().skip(expected).take(LOOK_AHEAD);
        if let Some(skipped) = ahead.copied().position(|old| old == read) {
            self.expected.set(expected + skipped + 1);
        }
    }

    pub(crate) fn take_reads(&self) -> ReadLog {
        self.reads.take()
    }

    /// Notes which read of the old memo is being checked.
    pub(crate) fn set_verifying(&self, read: Option<NodeId>) {
        self.verifying.set(read);
    }

    pub(crate) fn add_hits(&self, hits: u64) {
        self.hits.set(self.hits.get() + hits);
    }

    /// Ends the evaluation. Adds its hits to the requester's, or returns them if there is none on this thread.
    pub(crate) fn end(&self) -> u64 {
        if self.published.get().is_some() {
            self.job.clear_progress();
        }
        match self.requester {
            Some(requester) => {
                requester.add_hits(self.hits.get());
                0
            }
            None => self.hits.get(),
        }
    }

    /// Publishes the progress of this evaluation and of those on this thread that wait for it.
    pub(crate) fn publish_progress(&self) {
        self.publish_reads();
        let mut frame = self;
        while let Some(requester) = frame.requester {
            requester.publish_reads();
            requester.job.publish_wait(frame.job);
            frame = requester;
        }
    }

    fn publish_reads(&self) {
        let reads = self.reads.borrow();
        let new_reads = &reads.as_slice()[self.published.get().unwrap_or(0)..];
        self.job.publish_reads(new_reads, self.verifying.get());
        self.published.set(Some(reads.as_slice().len()));
    }
}
