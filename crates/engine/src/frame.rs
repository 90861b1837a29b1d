//! An evaluation as the thread that makes it sees it.
//!
//! What it has read is kept here, where nobody else looks, and shown to other threads only when they might have to know:
//! before this thread stops to wait for something.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::Subject;
use crate::crew::Site;
use crate::eval::Asker;
use crate::intern::NodeId;
use crate::job::Job;
use crate::reads::Reads;

/// An evaluation under way on this thread.
pub(crate) struct Frame<'a> {
    pub(crate) job: &'a Arc<Job>,
    /// The one that needs it, on this thread.
    asker: Option<&'a Frame<'a>>,
    /// How deep it is nested, on this and other threads.
    pub(crate) depth: u32,
    /// Where helpers can be started.
    pub(crate) site: &'a dyn Site,
    /// How often something it asked for was there.
    hits: Cell<u64>,
    reads: RefCell<Reads>,
    /// The old read being checked, while the old memo is checked.
    checking: Cell<Option<NodeId>>,
    /// How many of its reads other threads can see; `None` if it never showed anything.
    shown: Cell<Option<usize>>,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(job: &'a Arc<Job>, asker: Asker<'a>, depth: u32) -> Self {
        Self {
            job,
            asker: asker.frame(),
            depth,
            site: asker.site(),
            hits: Cell::new(0),
            reads: RefCell::default(),
            checking: Cell::new(None),
            shown: Cell::new(None),
        }
    }

    /// The id of the query being evaluated.
    pub(crate) fn id(&self) -> NodeId {
        self.job.subject.id()
    }

    pub(crate) fn record(&self, subject: Subject) {
        self.reads.borrow_mut().record(subject);
    }

    pub(crate) fn take_reads(&self) -> Reads {
        self.reads.take()
    }

    /// Says which read of the old memo is being checked.
    pub(crate) fn check(&self, read: Option<NodeId>) {
        self.checking.set(read);
    }

    pub(crate) fn add_hits(&self, hits: u64) {
        self.hits.set(self.hits.get() + hits);
    }

    /// Ends the evaluation: hands its hits on to the one that needs it, or back if there is none on this thread.
    pub(crate) fn end(&self) -> u64 {
        if self.shown.get().is_some() {
            self.job.hide();
        }
        match self.asker {
            Some(asker) => {
                asker.add_hits(self.hits.get());
                0
            }
            None => self.hits.get(),
        }
    }

    /// Lets other threads see where this evaluation and those that need it stand.
    pub(crate) fn show(&self) {
        self.show_reads();
        let mut frame = self;
        while let Some(asker) = frame.asker {
            asker.show_reads();
            asker.job.needs(frame.job);
            frame = asker;
        }
    }

    fn show_reads(&self) {
        let reads = self.reads.borrow();
        let news = &reads.as_slice()[self.shown.get().unwrap_or(0)..];
        self.job.show(news, self.checking.get());
        self.shown.set(Some(reads.as_slice().len()));
    }
}
