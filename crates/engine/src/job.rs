//! Evaluations under way: one per query and revision, whoever asks.

use std::sync::{Arc, OnceLock};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use crate::Subject;
use crate::frame::Frame;
use crate::intern::NodeId;
use crate::value::Outcome;

/// The evaluation of one query. Made by whoever needs the query first; everybody else waits for it.
pub(crate) struct Job {
    pub(crate) subject: Subject,
    done: OnceLock<Done>,
    progress: Mutex<Option<Box<Progress>>>,
}

/// What others can see of where an unfinished evaluation stands. Up to date while its thread waits for another.
#[derive(Default)]
struct Progress {
    reads: Vec<Subject>,
    /// What it needs before it can go on. Once that is finished this says nothing.
    needs: Option<Arc<Job>>,
    /// The old read being checked, while the old memo is checked.
    checking: Option<NodeId>,
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
        Arc::new(Self { subject: subject.clone(), done: OnceLock::new(), progress: Mutex::new(None) })
    }

    pub(crate) fn done(&self) -> Option<&Done> {
        self.done.get()
    }

    /// Shows what the evaluation has read since it last did, and what it is checking.
    pub(crate) fn show(&self, news: &[Subject], checking: Option<NodeId>) {
        let mut progress = self.progress.lock();
        let progress = progress.get_or_insert_default();
        progress.reads.extend_from_slice(news);
        progress.checking = checking;
    }

    /// Shows what the evaluation waits for.
    pub(crate) fn needs(&self, job: &Arc<Self>) {
        self.progress.lock().get_or_insert_default().needs = Some(Arc::clone(job));
    }

    /// Forgets what was shown, once the evaluation has ended.
    pub(crate) fn hide(&self) {
        // Dropped after the lock is released.
        let _progress = self.progress.lock().take();
    }

    /// What the evaluation has shown of its reads, and of what it is checking.
    pub(crate) fn shown(&self) -> (Vec<Subject>, Option<NodeId>) {
        let progress = self.progress.lock();
        progress.as_ref().map_or_else(Default::default, |shown| (shown.reads.clone(), shown.checking))
    }

    fn needed(&self) -> Option<Arc<Self>> {
        self.progress.lock().as_ref()?.needs.clone()
    }
}

const SHARDS: usize = 16;

/// Some of the evaluations, by the ids of their queries.
type Shard = Mutex<HashTable<(NodeId, Arc<Job>)>>;

/// The evaluations made at one revision.
#[derive(Default)]
pub(crate) struct Jobs {
    shards: [Shard; SHARDS],
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
        let id = subject.id();
        let mut shard = self.shard(id).lock();
        match shard.entry(spread(id), |(known, _)| *known == id, |(known, _)| spread(*known)) {
            Entry::Occupied(known) => Claim::Theirs(Arc::clone(&known.get().1)),
            Entry::Vacant(place) => {
                let job = Job::new(subject);
                place.insert((id, Arc::clone(&job)));
                Claim::Mine(job)
            }
        }
    }

    pub(crate) fn find(&self, id: NodeId) -> Option<Arc<Job>> {
        let shard = self.shard(id).lock();
        shard.find(spread(id), |(known, _)| *known == id).map(|(_, job)| Arc::clone(job))
    }

    /// Ends an evaluation and wakes those who wait for it; for the one who claimed it.
    pub(crate) fn finish(&self, job: Arc<Job>, done: Done) {
        // Under the lock of the list: nobody finds it there unfinished, nor builds on it before it is there.
        let mut finished = self.finished.lock();
        // A job is finished once, by the thread that made it.
        let _ = job.done.set(done);
        finished.push(job);
    }

    /// Waits for a job, unless it in turn waits for `asker`: then gives the members of that cycle, each needing the next.
    /// They all wait for `asker`, so what they show stands still until it ends.
    pub(crate) fn wait<'a>(
        &self,
        job: &'a Arc<Job>,
        asker: Option<&Frame<'_>>,
    ) -> Result<&'a Done, Vec<Arc<Job>>> {
        if let Some(done) = job.done() {
            return Ok(done);
        }
        if let Some(asker) = asker {
            // Every wait is decided under one lock and shown before it is released, so whoever would close a circle sees
            // the rest of it.
            let _deciding = self.waiting.lock();
            asker.show();
            if let Some(cycle) = chain(job, asker.job) {
                return Err(cycle);
            }
            asker.job.needs(job);
        }
        Ok(job.done.wait())
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

    fn shard(&self, id: NodeId) -> &Shard {
        &self.shards[id.0 as usize % SHARDS]
    }
}

/// The hash of an id: ids are dense, so a multiplication spreads them well over all bits.
fn spread(id: NodeId) -> u64 {
    u64::from(id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26)
}

/// The jobs from `first` to `last`, each needing the next, if there are such.
fn chain(first: &Arc<Job>, last: &Arc<Job>) -> Option<Vec<Arc<Job>>> {
    let mut chain = vec![Arc::clone(first)];
    loop {
        let current = chain.last()?;
        if Arc::ptr_eq(current, last) {
            return Some(chain);
        }
        // What needed a finished job does so no longer. An unfinished one is needed for as long as it is unfinished.
        if current.done().is_some() {
            return None;
        }
        let next = current.needed()?;
        chain.push(next);
    }
}
