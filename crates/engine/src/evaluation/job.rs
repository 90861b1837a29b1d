//! Jobs: the evaluations of one revision, at most one for each query.
//!
//! The thread that needs a query first claims its job; threads that need it later wait for the result. Before a thread
//! waits, it publishes what its own jobs have read and wait for. Every such decision is made under one lock, so the thread
//! whose wait would close a circle sees all other members of it. It reports a cycle instead of waiting, and what it reads
//! of the other members stands still, because all of them wait for it.

use std::sync::{Arc, OnceLock};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use super::frame::Frame;
use crate::ids::NodeId;
use crate::node::{Outcome, Subject};

/// The evaluation of one query.
pub(crate) struct Job {
    pub(crate) subject: Subject,
    result: OnceLock<JobResult>,
    progress: Mutex<Option<Box<Progress>>>,
}

/// State of an unfinished evaluation for other threads. Up to date while its thread waits for another.
#[derive(Default)]
struct Progress {
    reads: Vec<Subject>,
    /// The job it waits for. Meaningless once that is finished.
    waits_for: Option<Arc<Job>>,
    /// While an old memo is verified: the read that is being checked.
    verifying: Option<NodeId>,
}

/// The result of an evaluation.
pub(crate) struct JobResult {
    pub(crate) outcome: Outcome,
    /// Whether the outcome differs from the old memo's.
    pub(crate) changed: bool,
    /// The recorded reads. `None` if the old memo was verified and the query did not run.
    pub(crate) reads: Option<Box<[Subject]>>,
}

impl Job {
    fn new(subject: &Subject) -> Arc<Self> {
        Arc::new(Self { subject: subject.clone(), result: OnceLock::new(), progress: Mutex::new(None) })
    }

    pub(crate) fn result(&self) -> Option<&JobResult> {
        self.result.get()
    }

    /// Publishes reads made since the last call, and the read being verified.
    pub(crate) fn publish_reads(&self, new_reads: &[Subject], verifying: Option<NodeId>) {
        let mut progress = self.progress.lock();
        let progress = progress.get_or_insert_default();
        progress.reads.extend_from_slice(new_reads);
        progress.verifying = verifying;
    }

    /// Publishes which job this one waits for.
    pub(crate) fn publish_wait(&self, job: &Arc<Self>) {
        self.progress.lock().get_or_insert_default().waits_for = Some(Arc::clone(job));
    }

    /// Frees what was published, once the evaluation has ended.
    pub(crate) fn clear_progress(&self) {
        // Bound to a name so that it is dropped after the lock is released.
        let _progress = self.progress.lock().take();
    }

    /// The published reads, and the read being verified.
    pub(crate) fn published_reads(&self) -> (Vec<Subject>, Option<NodeId>) {
        let progress = self.progress.lock();
        progress.as_ref().map_or_else(Default::default, |shown| (shown.reads.clone(), shown.verifying))
    }

    fn waits_for(&self) -> Option<Arc<Self>> {
        self.progress.lock().as_ref()?.waits_for.clone()
    }
}

const SHARDS: usize = 16;

type Shard = Mutex<HashTable<(NodeId, Arc<Job>)>>;

/// The evaluations made at one revision.
#[derive(Default)]
pub(crate) struct Jobs {
    shards: [Shard; SHARDS],
    /// Finished jobs that no writer has taken yet, each after the jobs it needed.
    finished: Mutex<Vec<Arc<Job>>>,
    /// Held while a thread decides whether to wait.
    deciding_to_wait: Mutex<()>,
}

/// Who evaluates a query.
pub(crate) enum Claim {
    /// The caller, who must finish the job.
    Own(Arc<Job>),
    /// Another thread, which may have finished by now.
    Other(Arc<Job>),
}

impl Jobs {
    pub(crate) fn claim(&self, subject: &Subject) -> Claim {
        let id = subject.id();
        let mut shard = self.shard(id).lock();
        match shard.entry(hash(id), |(known, _)| *known == id, |(known, _)| hash(*known)) {
            Entry::Occupied(entry) => Claim::Other(Arc::clone(&entry.get().1)),
            Entry::Vacant(entry) => {
                let job = Job::new(subject);
                entry.insert((id, Arc::clone(&job)));
                Claim::Own(job)
            }
        }
    }

    pub(crate) fn find(&self, id: NodeId) -> Option<Arc<Job>> {
        let shard = self.shard(id).lock();
        shard.find(hash(id), |(known, _)| *known == id).map(|(_, job)| Arc::clone(job))
    }

    /// Sets the result of a job and wakes the threads that wait for it. Only for the thread that claimed it.
    pub(crate) fn finish(&self, job: Arc<Job>, result: JobResult) {
        // Under the lock of the list, so that no job that needed this one can get into the list before it.
        let mut finished = self.finished.lock();
        // Cannot fail: a job is finished once, by the thread that claimed it.
        let _ = job.result.set(result);
        finished.push(job);
    }

    /// Waits for a job. If the job waits for `requester`, directly or not, returns the members of that cycle instead, each
    /// waiting for the next.
    pub(crate) fn wait<'a>(
        &self,
        job: &'a Arc<Job>,
        requester: Option<&Frame<'_>>,
    ) -> Result<&'a JobResult, Vec<Arc<Job>>> {
        if let Some(result) = job.result() {
            return Ok(result);
        }
        if let Some(requester) = requester {
            let _deciding = self.deciding_to_wait.lock();
            requester.publish_progress();
            if let Some(cycle) = find_wait_chain(job, requester.job) {
                return Err(cycle);
            }
            requester.job.publish_wait(job);
        }
        Ok(job.result.wait())
    }

    /// The number of jobs, finished or not.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The number of finished jobs that no writer has taken.
    pub(crate) fn finished_len(&self) -> usize {
        self.finished.lock().len()
    }

    /// Takes the jobs finished since the last call, each after the jobs it needed.
    pub(crate) fn take_finished(&self) -> Vec<Arc<Job>> {
        std::mem::take(&mut *self.finished.lock())
    }

    fn shard(&self, id: NodeId) -> &Shard {
        &self.shards[id.0 as usize % SHARDS]
    }
}

/// Ids are dense, so a multiplication distributes them well over all bits.
fn hash(id: NodeId) -> u64 {
    u64::from(id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26)
}

/// The jobs from `first` to `last`, each waiting for the next, if there is such a chain.
fn find_wait_chain(first: &Arc<Job>, last: &Arc<Job>) -> Option<Vec<Arc<Job>>> {
    let mut chain = vec![Arc::clone(first)];
    loop {
        let current = chain.last()?;
        if Arc::ptr_eq(current, last) {
            return Some(chain);
        }
        // Nobody waits for a finished job, whatever was published about it.
        if current.result().is_some() {
            return None;
        }
        let next = current.waits_for()?;
        chain.push(next);
    }
}
