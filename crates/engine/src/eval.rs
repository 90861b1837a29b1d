//! Bringing a query up to date: check what it read, run it only if that does not settle the matter.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crate::ctx::Aborted;
use crate::intern::NodeId;
use crate::job::{Claim, Done, Job, Reads};
use crate::stage::Stage;
use crate::value::{Cycle, Failure, Outcome};
use crate::world::Memo;
use crate::{Ctx, QueryError, Subject};

/// Queries nested this deep continue on a stack of their own, so that depth is bounded by memory and not by the stack of
/// whoever asked.
const NESTED_PER_STACK: u32 = 64;

/// A query that needs another, and how deep it is nested.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) job: &'a Arc<Job>,
    pub(crate) depth: u32,
}

/// The up-to-date result of a query.
pub(crate) struct Resolved {
    pub(crate) outcome: Outcome,
    /// Whether it differs from the memo of the world before.
    pub(crate) changed: bool,
    /// Whether it was there already.
    pub(crate) hit: bool,
}

impl Resolved {
    fn from_done(done: &Done, hit: bool) -> Self {
        Self { outcome: done.outcome.clone(), changed: done.changed, hit }
    }
}

impl Stage {
    /// The result of a query, evaluated here or awaited if there is none yet.
    pub(crate) fn resolve(&self, subject: &Subject, asker: Option<Asker<'_>>) -> Resolved {
        let memo = self.world.memo(subject.id()).filter(|_| !self.marks.suspects(subject.id()));
        if let Some(memo) = memo {
            return Resolved { outcome: memo.outcome.clone(), changed: false, hit: true };
        }
        match self.jobs.claim(subject) {
            Claim::Mine(job) => {
                let done = self.evaluate(job, asker);
                Resolved::from_done(done.done().expect("evaluating finishes the job"), false)
            }
            Claim::Theirs(job) => match self.jobs.wait(&job, asker.map(|asker| asker.job)) {
                Ok(done) => Resolved::from_done(done, true),
                Err(members) => {
                    let outcome = Outcome::Failure(self.cycle(&members));
                    Resolved { outcome, changed: true, hit: false }
                }
            },
        }
    }

    fn evaluate(&self, job: Arc<Job>, asker: Option<Asker<'_>>) -> Arc<Job> {
        let Some(asker) = asker else {
            self.perform(&job, 0);
            return job;
        };
        asker.job.update(|progress| progress.needs = Some(Arc::clone(&job)));
        let depth = asker.depth + 1;
        if depth.is_multiple_of(NESTED_PER_STACK) {
            self.perform_on_new_stack(&job, depth);
        } else {
            self.perform(&job, depth);
        }
        asker.job.update(|progress| progress.needs = None);
        job
    }

    fn perform_on_new_stack(&self, job: &Arc<Job>, depth: u32) {
        thread::scope(|scope| {
            let started = thread::Builder::new().spawn_scoped(scope, || self.perform(job, depth));
            if let Err(error) = started {
                let message = format!("nested {depth} deep and no thread to go on: {error}");
                let outcome = Outcome::Failure(Arc::new(panicked(&job.subject, message)));
                self.jobs.finish(job, Done { outcome, changed: true, reads: Some(Box::default()) });
            }
        });
    }

    fn perform(&self, job: &Arc<Job>, depth: u32) {
        let old = self.world.memo(job.subject.id());
        let done = match old {
            Some(memo) if self.still_holds(job, memo, depth) => {
                self.counters.add_validation();
                Done { outcome: memo.outcome.clone(), changed: false, reads: None }
            }
            _ => self.run(job, old, depth),
        };
        self.jobs.finish(job, done);
    }

    /// Whether nothing that a suspected memo read has changed, found out by bringing its reads up to date in the order it
    /// made them: a later read may exist only because of what an earlier one gave.
    fn still_holds(&self, job: &Arc<Job>, memo: &Memo, depth: u32) -> bool {
        let Some(suspicions) = self.marks.suspicions(job.subject.id()) else { return true };
        // A member of a cycle is kept with the reads of all members: they are not its own, so it cannot be in the middle
        // of them.
        let in_cycle = matches!(&memo.outcome, Outcome::Failure(failure) if failure.cycle_of(job.subject.id()).is_some());
        if in_cycle || suspicions.iter().any(|read| self.marks.changed(*read)) {
            return false;
        }
        let mut sorted = suspicions.clone();
        sorted.sort_unstable();
        let in_doubt = memo.reads.iter().filter(|read| sorted.binary_search(read).is_ok());
        let holds = in_doubt.copied().all(|read| self.read_holds(job, read, depth));
        job.update(|progress| progress.checking = None);
        holds
    }

    fn read_holds(&self, job: &Arc<Job>, read: NodeId, depth: u32) -> bool {
        let Some(node) = self.world.node(read) else { return false };
        job.update(|progress| progress.checking = Some(read));
        !self.resolve(&node.subject, Some(Asker { job, depth })).changed
    }

    fn run(&self, job: &Arc<Job>, old: Option<&Memo>, depth: u32) -> Done {
        let query = job.subject.0.as_query().expect("only queries are evaluated");
        self.counters.add_evaluation(query.family(), job.subject.name());
        let ctx = Ctx::new(self, job, depth);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let value = query.run(&ctx);
            match old.map(|memo| &memo.outcome) {
                Some(Outcome::Value(old)) if query.unchanged(old, &value) => (Arc::clone(old), false),
                _ => (value, true),
            }
        }));
        let cycle = ctx.end();
        let reads = job.update(|progress| std::mem::take(&mut progress.reads)).into_subjects();
        let failure = match (cycle, ran) {
            (None, Ok((value, changed))) => {
                return Done { outcome: Outcome::Value(value), changed, reads: Some(reads) };
            }
            (Some(cycle), _) => cycle,
            (None, Err(payload)) => failure_from(&job.subject, payload),
        };
        let reads = failure.cycle_of(job.subject.id()).map_or(reads, |cycle| cycle.reads.clone());
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
                reads.record(&subject);
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
        let (mut reads, checking) =
            job.update(|progress| (progress.reads.iter().cloned().collect::<Vec<_>>(), progress.checking));
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
    let key = guarded(|| format!("{:?}", subject.0.debug_key()));
    Failure { error: QueryError::Panicked { query: subject.name(), key, message }, cycle: None }
}

fn shown(subject: &Subject) -> String {
    guarded(|| subject.to_string())
}

/// A text made by code that is not ours, or a stand-in if that code panics.
fn guarded(make: impl FnOnce() -> String) -> String {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| "?".to_owned())
}
