//! Evaluations under way: one per query and revision, whoever asks.

use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Subject;
use crate::intern::NodeId;
use crate::value::Outcome;

/// The evaluation of one query. Made by whoever needs the query first; everybody else waits for it.
pub(crate) struct Job {
    pub(crate) subject: Subject,
    progress: Mutex<Progress>,
    done: OnceLock<Done>,
    finished: Condvar,
}

/// Where an unfinished evaluation stands.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) reads: Reads,
    /// What it needs before it can go on.
    pub(crate) needs: Option<Arc<Job>>,
    /// The old read being checked, while the old memo is checked.
    pub(crate) checking: Option<NodeId>,
}

/// What an evaluation came to.
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    /// Whether the outcome differs from the memo's before.
    pub(crate) changed: bool,
    /// What was read; `None` where the old memo was found to hold and its query did not run.
    pub(crate) reads: Option<Box<[Subject]>>,
}

impl Job {
    fn new(subject: &Subject) -> Arc<Self> {
        Arc::new(Self {
            subject: subject.clone(),
            progress: Mutex::default(),
            done: OnceLock::new(),
            finished: Condvar::new(),
        })
    }

    pub(crate) fn done(&self) -> Option<&Done> {
        self.done.get()
    }

    /// Changes where the evaluation stands; for the evaluation itself.
    pub(crate) fn update<T>(&self, act: impl FnOnce(&mut Progress) -> T) -> T {
        act(&mut self.progress.lock())
    }

    /// Ends the evaluation and wakes those who wait for it.
    fn finish(&self, done: Done) {
        // A job is finished once, by the thread that made it.
        let _ = self.done.set(done);
        // Whoever has seen the job unfinished under this lock is asleep once it is free again.
        *self.progress.lock() = Progress::default();
        self.finished.notify_all();
    }

    fn wait(&self) -> &Done {
        let mut progress = self.progress.lock();
        loop {
            if let Some(done) = self.done.get() {
                return done;
            }
            self.finished.wait(&mut progress);
        }
    }
}

/// Distinct subjects in the order they were first read.
#[derive(Default)]
pub(crate) struct Reads {
    list: Vec<(NodeId, Subject)>,
    /// The ids in the list once it is too long to be searched.
    seen: FxHashSet<NodeId>,
}

impl Reads {
    const SEARCHED: usize = 16;

    pub(crate) fn record(&mut self, subject: &Subject) {
        let id = subject.id();
        if self.list.len() < Self::SEARCHED {
            if self.list.iter().any(|(known, _)| *known == id) {
                return;
            }
        } else {
            if self.seen.is_empty() {
                self.seen.extend(self.list.iter().map(|(id, _)| *id));
            }
            if !self.seen.insert(id) {
                return;
            }
        }
        self.list.push((id, subject.clone()));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subject> {
        self.list.iter().map(|(_, subject)| subject)
    }

    pub(crate) fn into_subjects(self) -> Box<[Subject]> {
        self.list.into_iter().map(|(_, subject)| subject).collect()
    }
}

const SHARDS: usize = 16;

/// The evaluations made at one revision.
#[derive(Default)]
pub(crate) struct Jobs {
    shards: [Mutex<FxHashMap<NodeId, Arc<Job>>>; SHARDS],
    /// Finished jobs not taken yet.
    finished: Mutex<Vec<Arc<Job>>>,
    /// Held while somebody decides whether waiting would close a circle.
    waiting: Mutex<()>,
}

/// Who is to evaluate a query.
pub(crate) enum Claim {
    /// The caller, who must finish the job.
    Mine(Arc<Job>),
    /// Somebody else, perhaps finished by now.
    Theirs(Arc<Job>),
}

impl Jobs {
    pub(crate) fn claim(&self, subject: &Subject) -> Claim {
        let mut shard = self.shard(subject.id()).lock();
        if let Some(job) = shard.get(&subject.id()) {
            return Claim::Theirs(Arc::clone(job));
        }
        let job = Job::new(subject);
        shard.insert(subject.id(), Arc::clone(&job));
        Claim::Mine(job)
    }

    pub(crate) fn find(&self, id: NodeId) -> Option<Arc<Job>> {
        self.shard(id).lock().get(&id).cloned()
    }

    pub(crate) fn finish(&self, job: &Arc<Job>, done: Done) {
        // Under the lock of the list: nobody finds it there unfinished, nor builds on it before it is there.
        let mut finished = self.finished.lock();
        finished.push(Arc::clone(job));
        job.finish(done);
    }

    /// Waits for a job, unless it in turn waits for `asker`: then gives the members of that cycle, each needing the next.
    /// They all wait for `asker`, so their progress stands still until it ends.
    pub(crate) fn wait<'a>(
        &self,
        job: &'a Arc<Job>,
        asker: Option<&Arc<Job>>,
    ) -> Result<&'a Done, Vec<Arc<Job>>> {
        if let Some(asker) = asker {
            // Every wait is decided under one lock and entered before it is released, so whoever would close a circle
            // sees the rest of it.
            let _deciding = self.waiting.lock();
            if let Some(cycle) = chain(job, asker) {
                return Err(cycle);
            }
            asker.update(|progress| progress.needs = Some(Arc::clone(job)));
        }
        let done = job.wait();
        if let Some(asker) = asker {
            asker.update(|progress| progress.needs = None);
        }
        Ok(done)
    }

    /// How many evaluations have been made here.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// How many finished evaluations nobody has taken.
    pub(crate) fn untaken(&self) -> usize {
        self.finished.lock().len()
    }

    /// Takes the evaluations finished since the last time; a job comes after all it needed.
    pub(crate) fn take_finished(&self) -> Vec<Arc<Job>> {
        std::mem::take(&mut *self.finished.lock())
    }

    fn shard(&self, id: NodeId) -> &Mutex<FxHashMap<NodeId, Arc<Job>>> {
        &self.shards[id.0 as usize % SHARDS]
    }
}

/// The jobs from `first` to `last`, each needing the next, if there are such.
fn chain(first: &Arc<Job>, last: &Arc<Job>) -> Option<Vec<Arc<Job>>> {
    let mut chain = vec![Arc::clone(first)];
    loop {
        let current = chain.last()?;
        if Arc::ptr_eq(current, last) {
            return Some(chain);
        }
        let next = current.update(|progress| progress.needs.clone())?;
        chain.push(next);
    }
}
