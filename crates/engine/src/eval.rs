//! Bringing a query up to date: check what it read, run it only if that does not settle the matter.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use crate::crew::Site;
use crate::ctx::Aborted;
use crate::frame::Frame;
use crate::intern::NodeId;
use crate::job::{Claim, Done, Job};
use crate::reads::Reads;
use crate::stage::Stage;
use crate::value::{Cycle, Failure, Outcome};
use crate::world::Memo;
use crate::{Ctx, QueryError, Subject};

/// Queries nested this deep continue on a stack of their own, so that depth is bounded by memory and not by the stack of
/// whoever asked.
const NESTED_PER_STACK: u32 = 64;

/// The up-to-date result of a query.
pub(crate) struct Resolved {
    pub(crate) outcome: Outcome,
    /// Whether it differs from the memo of the world before.
    pub(crate) changed: bool,
    /// Whether it was there already.
    pub(crate) hit: bool,
}

impl Resolved {
    fn from_memo(memo: &Memo) -> Self {
        Self { outcome: memo.outcome.clone(), changed: false, hit: true }
    }

    fn from_done(done: &Done, hit: bool) -> Self {
        Self { outcome: done.outcome.clone(), changed: done.changed, hit }
    }
}

/// Who asks for a query.
#[derive(Clone, Copy)]
pub(crate) enum Asker<'a> {
    /// A query that is being evaluated on this thread.
    Query(&'a Frame<'a>),
    /// Nobody whose evaluation this thread makes.
    Outside(&'a dyn Site),
}

impl<'a> Asker<'a> {
    pub(crate) fn frame(self) -> Option<&'a Frame<'a>> {
        match self {
            Self::Query(frame) => Some(frame),
            Self::Outside(_) => None,
        }
    }

    /// Where helpers can be started.
    pub(crate) fn site(self) -> &'a dyn Site {
        match self {
            Self::Query(frame) => frame.site,
            Self::Outside(site) => site,
        }
    }
}

impl Stage {
    /// The result of a query; evaluated here or awaited if there is none yet.
    pub(crate) fn resolve(&self, subject: &Subject, asker: Asker<'_>) -> Resolved {
        let id = subject.id();
        let old = self.world.memo(id);
        if let Some(memo) = old.filter(|_| !self.marks.is_dirty(id)) {
            return Resolved::from_memo(memo);
        }
        match self.jobs.claim(subject) {
            Claim::Mine(job) => self.evaluate(job, old, asker),
            Claim::Theirs(job) => match self.jobs.wait(&job, asker.frame()) {
                Ok(done) => Resolved::from_done(done, true),
                Err(members) => {
                    let outcome = Outcome::Failure(self.cycle(&members));
                    Resolved { outcome, changed: true, hit: false }
                }
            },
        }
    }

    /// The result of a query, if it is there and not in doubt.
    pub(crate) fn settled(&self, id: NodeId) -> Option<Resolved> {
        self.world.memo(id).filter(|_| !self.marks.is_dirty(id)).map(Resolved::from_memo)
    }

    fn evaluate(&self, job: Arc<Job>, old: Option<&Memo>, asker: Asker<'_>) -> Resolved {
        match asker {
            Asker::Outside(_) => self.perform(job, old, asker, 0),
            Asker::Query(frame) if (frame.depth + 1).is_multiple_of(NESTED_PER_STACK) => {
                self.perform_on_new_stack(job, old, frame)
            }
            Asker::Query(frame) => self.perform(job, old, asker, frame.depth + 1),
        }
    }

    fn perform_on_new_stack(&self, job: Arc<Job>, old: Option<&Memo>, asker: &Frame<'_>) -> Resolved {
        asker.show();
        asker.job.needs(&job);
        let (depth, site) = (asker.depth + 1, asker.site);
        thread::scope(|scope| {
            let own = Arc::clone(&job);
            let perform = || self.perform(own, old, Asker::Outside(site), depth);
            match thread::Builder::new().spawn_scoped(scope, perform) {
                Ok(running) => running.join().unwrap_or_else(|payload| resume_unwind(payload)),
                Err(error) => {
                    let message = format!("nested {depth} deep and no thread to go on: {error}");
                    let outcome = Outcome::Failure(Arc::new(panicked(&job.subject, message)));
                    self.conclude(job, Done { outcome, changed: true, reads: Some(Box::default()) })
                }
            }
        })
    }

    fn perform(&self, job: Arc<Job>, old: Option<&Memo>, asker: Asker<'_>, depth: u32) -> Resolved {
        let frame = Frame::new(&job, asker, depth);
        let done = match old {
            Some(memo) if self.still_holds(&frame, memo) => {
                self.counters.add_validation();
                Done { outcome: memo.outcome.clone(), changed: false, reads: None }
            }
            _ => self.run(&frame, old),
        };
        self.counters.add_hits(frame.end());
        self.conclude(job, done)
    }

    fn conclude(&self, job: Arc<Job>, done: Done) -> Resolved {
        let resolved = Resolved::from_done(&done, false);
        self.jobs.finish(job, done);
        resolved
    }

    /// Whether nothing that a suspected memo read has changed, found out by bringing its reads up to date in the order it
    /// made them: a later read may exist only because of what an earlier one gave.
    fn still_holds(&self, frame: &Frame<'_>, memo: &Memo) -> bool {
        let Some(dirty) = self.marks.dirty_reads(frame.id()) else { return true };
        // A member of a cycle is kept with the reads of all members: they are not its own, so it cannot be in the middle
        // of them.
        let in_cycle =
            matches!(&memo.outcome, Outcome::Failure(failure) if failure.cycle_of(frame.id()).is_some());
        if in_cycle || dirty.iter().any(|read| self.marks.is_changed(*read)) {
            return false;
        }
        let mut sorted = dirty.clone();
        sorted.sort_unstable();
        let in_doubt = memo.reads.iter().filter(|read| sorted.binary_search(read).is_ok());
        let holds = in_doubt.copied().all(|read| self.read_holds(frame, read));
        frame.check(None);
        holds
    }

    fn read_holds(&self, frame: &Frame<'_>, read: NodeId) -> bool {
        let Some(node) = self.world.node(read) else { return false };
        frame.check(Some(read));
        !self.resolve(&node.subject, Asker::Query(frame)).changed
    }

    fn run(&self, frame: &Frame<'_>, old: Option<&Memo>) -> Done {
        let subject = &frame.job.subject;
        let query = subject.as_query().expect("only queries are evaluated");
        self.counters.add_evaluation(query.family(), subject.name());
        let ctx = Ctx::new(self, frame);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let value = query.run(&ctx);
            match old.map(|memo| &memo.outcome) {
                Some(Outcome::Value(old)) if query.unchanged(old, &value) => (Arc::clone(old), false),
                _ => (value, true),
            }
        }));
        let cycle = ctx.end();
        let reads = frame.take_reads().into_subjects();
        let failure = match (cycle, ran) {
            (None, Ok((value, changed))) => {
                return Done { outcome: Outcome::Value(value), changed, reads: Some(reads) };
            }
            (Some(cycle), _) => cycle,
            (None, Err(payload)) => failure_from(subject, payload),
        };
        let reads = failure.cycle_of(subject.id()).map_or(reads, |cycle| cycle.reads.clone());
        let changed =
            !matches!(old, Some(Memo { outcome: Outcome::Failure(old), .. }) if old.error == failure.error);
        Done { outcome: Outcome::Failure(failure), changed, reads: Some(reads) }
    }

    /// The failure of queries that depend on each other, each needing the next and the last the first.
    fn cycle(&self, jobs: &[Arc<Job>]) -> Arc<Failure> {
        let members: Box<[Subject]> = jobs.iter().map(|job| job.subject.clone()).collect();
        let mut reads = Reads::default();
        for subject in jobs.iter().flat_map(|job| self.reads_so_far(job)) {
            if !members.contains(&subject) {
                reads.record(subject);
            }
        }
        let mut path: Vec<String> = members.iter().map(shown).collect();
        let first = (0..path.len()).min_by_key(|&at| &path[at]).unwrap_or(0);
        path.rotate_left(first);
        let cycle = Cycle { members, reads: reads.into_subjects() };
        Arc::new(Failure { error: QueryError::Cycle { path }, cycle: Some(cycle) })
    }

    /// What a query has read, or would read again up to the read of its old memo that is being checked.
    fn reads_so_far(&self, job: &Job) -> Vec<Subject> {
        let (mut reads, checking) = job.shown();
        if let Some((checking, memo)) = checking.zip(self.world.memo(job.subject.id())) {
            let checked = memo.reads.iter().take_while(|read| **read != checking);
            reads.extend(checked.filter_map(|read| self.world.node(*read)).map(|node| node.subject.clone()));
        }
        reads
    }
}

fn failure_from(subject: &Subject, payload: Box<dyn Any + Send>) -> Arc<Failure> {
    let payload = match payload.downcast::<Aborted>() {
        Ok(aborted) => return aborted.0,
        Err(payload) => payload,
    };
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Arc::new(panicked(subject, text.unwrap_or("no message").to_owned()))
}

fn panicked(subject: &Subject, message: String) -> Failure {
    let key = guarded(|| format!("{:?}", subject.0.key.debug_key()));
    Failure { error: QueryError::Panicked { query: subject.name(), key, message }, cycle: None }
}

fn shown(subject: &Subject) -> String {
    guarded(|| subject.to_string())
}

/// A text made by code that is not ours, or a stand-in if that code panics.
fn guarded(make: impl FnOnce() -> String) -> String {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| "?".to_owned())
}
