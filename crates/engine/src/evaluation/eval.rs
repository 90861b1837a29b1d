//! Evaluation: bringing a query up to date.
//!
//! A clean memo is the answer. A dirty memo is verified first: its dirty reads are brought up to date in the order the query
//! made them, and if none has a new value the memo holds and the query does not run (early cut-off). Otherwise, or if there is
//! no memo, the query runs. If the new value equals the old one, the old allocation is kept and readers see no change.
//!
//! The order of reads matters: a later read may have been made only because of what an earlier one gave, and may not be
//! needed, or may not even terminate, once the earlier one is different.
//!
//! Failures are results. A panic or a cycle is memoised with the reads that led to it and lasts until one of them changes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use super::ctx::{Aborted, Ctx};
use super::frame::Frame;
use super::job::{Claim, Job, JobResult};
use super::query::Evaluator;
use super::stage::Stage;
use super::workers::HelperSpawner;
use crate::QueryError;
use crate::graph::Memo;
use crate::ids::NodeId;
use crate::node::{Cycle, Failure, Outcome, Subject};
use crate::reads::ReadLog;

/// After this many nested queries evaluation continues on a new stack, so that memory bounds the depth and not the stack of
/// the calling thread.
const NESTED_PER_STACK: u32 = 64;

/// The up-to-date result of a query.
pub(crate) struct Resolved {
    pub(crate) outcome: Outcome,
    /// Whether it differs from the memo of the previous revision.
    pub(crate) changed: bool,
    /// Whether it was available without an evaluation by this thread.
    pub(crate) hit: bool,
}

impl Resolved {
    fn from_memo(memo: &Memo) -> Self {
        Self { outcome: memo.outcome.clone(), changed: false, hit: true }
    }

    fn from_job(result: &JobResult, hit: bool) -> Self {
        Self { outcome: result.outcome.clone(), changed: result.changed, hit }
    }
}

/// Who requests a query.
#[derive(Clone, Copy)]
pub(crate) enum Requester<'a> {
    /// A query that is being evaluated on this thread.
    Query(&'a Frame<'a>),
    /// A caller outside any query, a helper, or a query that continues on a new stack.
    Outside(&'a dyn HelperSpawner),
}

impl<'a> Requester<'a> {
    pub(crate) fn frame(self) -> Option<&'a Frame<'a>> {
        match self {
            Self::Query(frame) => Some(frame),
            Self::Outside(_) => None,
        }
    }

    pub(crate) fn spawner(self) -> &'a dyn HelperSpawner {
        match self {
            Self::Query(frame) => frame.spawner,
            Self::Outside(spawner) => spawner,
        }
    }
}

impl Stage {
    /// The result of a query: from its memo, from another thread, or evaluated here.
    pub(crate) fn resolve(&self, subject: &Subject, requester: Requester<'_>) -> Resolved {
        let id = subject.id();
        let old = self.graph.memo(id);
        if let Some(memo) = old.filter(|_| !self.marks.is_dirty(id)) {
            return Resolved::from_memo(memo);
        }
        match self.jobs.claim(subject) {
            Claim::Own(job) => self.evaluate(job, old, requester),
            Claim::Other(job) => match self.jobs.wait(&job, requester.frame()) {
                Ok(result) => Resolved::from_job(result, true),
                Err(members) => {
                    let outcome = Outcome::Failure(self.cycle_failure(&members));
                    Resolved { outcome, changed: true, hit: false }
                }
            },
        }
    }

    /// The memo of a query, if there is one and it is not dirty.
    pub(crate) fn clean_memo(&self, id: NodeId) -> Option<Resolved> {
        self.graph.memo(id).filter(|_| !self.marks.is_dirty(id)).map(Resolved::from_memo)
    }

    fn evaluate(&self, job: Arc<Job>, old: Option<&Memo>, requester: Requester<'_>) -> Resolved {
        match requester {
            Requester::Outside(_) => self.verify_or_run(job, old, requester, 0),
            Requester::Query(frame) if (frame.depth + 1).is_multiple_of(NESTED_PER_STACK) => {
                self.evaluate_on_new_stack(job, old, frame)
            }
            Requester::Query(frame) => self.verify_or_run(job, old, requester, frame.depth + 1),
        }
    }

    fn evaluate_on_new_stack(&self, job: Arc<Job>, old: Option<&Memo>, requester: &Frame<'_>) -> Resolved {
        requester.publish_progress();
        requester.job.publish_wait(&job);
        let (depth, spawner) = (requester.depth + 1, requester.spawner);
        thread::scope(|scope| {
            let own = Arc::clone(&job);
            let evaluate = || self.verify_or_run(own, old, Requester::Outside(spawner), depth);
            match thread::Builder::new().spawn_scoped(scope, evaluate) {
                Ok(running) => running.join().unwrap_or_else(|payload| resume_unwind(payload)),
                Err(error) => {
                    let message = format!("nested {depth} deep, and no thread to continue on: {error}");
                    let outcome = Outcome::Failure(Arc::new(panic_failure(&job.subject, message)));
                    self.finish(job, JobResult { outcome, changed: true, reads: Some(Box::default()) })
                }
            }
        })
    }

    fn verify_or_run(
        &self,
        job: Arc<Job>,
        old: Option<&Memo>,
        requester: Requester<'_>,
        depth: u32,
    ) -> Resolved {
        let frame = Frame::new(&job, old, requester, depth);
        let result = match old {
            Some(memo) if self.verify(&frame, memo) => {
                self.counters.add_validation();
                JobResult { outcome: memo.outcome.clone(), changed: false, reads: None }
            }
            _ => self.run(&frame, old),
        };
        self.counters.add_hits(frame.end());
        self.finish(job, result)
    }

    fn finish(&self, job: Arc<Job>, result: JobResult) -> Resolved {
        let resolved = Resolved::from_job(&result, false);
        self.jobs.finish(job, result);
        resolved
    }

    /// Whether a dirty memo holds: whether none of its dirty reads has a new value once it is up to date.
    fn verify(&self, frame: &Frame<'_>, memo: &Memo) -> bool {
        let Some(dirty_reads) = self.marks.dirty_reads(frame.id()) else { return true };
        // A member of a cycle is memoised with the reads of all members. They are not in the order of its own reads, so
        // the query has to run.
        let in_cycle =
            matches!(&memo.outcome, Outcome::Failure(failure) if failure.cycle_with(frame.id()).is_some());
        if in_cycle || dirty_reads.iter().any(|read| self.marks.is_changed(*read)) {
            return false;
        }
        let mut sorted = dirty_reads.clone();
        sorted.sort_unstable();
        let mut in_read_order = memo.reads.iter().filter(|read| sorted.binary_search(read).is_ok());
        let holds = in_read_order.all(|read| self.verify_read(frame, *read));
        frame.set_verifying(None);
        holds
    }

    fn verify_read(&self, frame: &Frame<'_>, read: NodeId) -> bool {
        let Some(node) = self.graph.node(read) else { return false };
        frame.set_verifying(Some(read));
        !self.resolve(&node.subject, Requester::Query(frame)).changed
    }

    fn run(&self, frame: &Frame<'_>, old: Option<&Memo>) -> JobResult {
        let subject = &frame.job.subject;
        let evaluator = Evaluator::find(subject).expect("only queries are evaluated");
        self.counters.add_evaluation(evaluator.family(), subject.name());
        let ctx = Ctx::new(self, frame);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let value = evaluator.run(subject, &ctx);
            match old.map(|memo| &memo.outcome) {
                Some(Outcome::Value(old)) if evaluator.unchanged(old, &value) => (Arc::clone(old), false),
                _ => (value, true),
            }
        }));
        let cycle = ctx.into_cycle();
        let reads = frame.take_reads().into_subjects();
        let failure = match (cycle, ran) {
            (None, Ok((value, changed))) => {
                return JobResult { outcome: Outcome::Value(value), changed, reads: Some(reads) };
            }
            (Some(cycle), _) => cycle,
            (None, Err(payload)) => failure_from_panic(subject, payload),
        };
        let reads = failure.cycle_with(subject.id()).map_or(reads, |cycle| cycle.reads.clone());
        let changed =
            !matches!(old, Some(Memo { outcome: Outcome::Failure(old), .. }) if old.error == failure.error);
        JobResult { outcome: Outcome::Failure(failure), changed, reads: Some(reads) }
    }

    /// The failure of queries that depend on each other, each waiting for the next and the last for the first.
    fn cycle_failure(&self, jobs: &[Arc<Job>]) -> Arc<Failure> {
        let members: Box<[Subject]> = jobs.iter().map(|job| job.subject.clone()).collect();
        let mut reads = ReadLog::default();
        for subject in jobs.iter().flat_map(|job| self.reads_so_far(job)) {
            if !members.contains(&subject) {
                reads.record(subject);
            }
        }
        let mut path: Vec<String> = members.iter().map(display_guarded).collect();
        let first = (0..path.len()).min_by_key(|&at| &path[at]).unwrap_or(0);
        path.rotate_left(first);
        let cycle = Cycle { members, reads: reads.into_subjects() };
        Arc::new(Failure { error: QueryError::Cycle { path }, cycle: Some(cycle) })
    }

    /// What a query has read, or, while its old memo is verified, the reads up to the one being checked.
    fn reads_so_far(&self, job: &Job) -> Vec<Subject> {
        let (mut reads, verifying) = job.published_reads();
        if let Some((verifying, memo)) = verifying.zip(self.graph.memo(job.subject.id())) {
            let verified = memo.reads.iter().take_while(|read| **read != verifying);
            reads.extend(verified.filter_map(|read| self.graph.node(*read)).map(|node| node.subject.clone()));
        }
        reads
    }
}

fn failure_from_panic(subject: &Subject, payload: Box<dyn Any + Send>) -> Arc<Failure> {
    let payload = match payload.downcast::<Aborted>() {
        Ok(aborted) => return aborted.0,
        Err(payload) => payload,
    };
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Arc::new(panic_failure(subject, text.unwrap_or("no message").to_owned()))
}

fn panic_failure(subject: &Subject, message: String) -> Failure {
    let key = guard_panic(|| format!("{:?}", subject.0.key.debug_key()));
    Failure { error: QueryError::Panicked { query: subject.name(), key, message }, cycle: None }
}

fn display_guarded(subject: &Subject) -> String {
    guard_panic(|| subject.to_string())
}

/// Text from a key's `Debug`, which is foreign code; `?` if it panics.
fn guard_panic(format: impl FnOnce() -> String) -> String {
    catch_unwind(AssertUnwindSafe(format)).unwrap_or_else(|_| "?".to_owned())
}
