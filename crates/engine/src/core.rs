//! The state that all handles of one engine share: the published stage, and the writer's lock.
//!
//! Readers take the current [`Stage`] and never wait for a writer. Whoever holds [`Core::writer`] is the one writer: it edits
//! a draft of the current graph and publishes the result as a new stage. Evaluations that readers made on the old stage are
//! not lost: [`Core::adopt_finished`] copies those that still hold into the draft.
//!
//! Dropping a guard must not wait for the writer either. Dropped guards are noted and taken off their memos by the next
//! writer.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::adopt::Adoption;
use crate::draft::Draft;
use crate::evaluation::{Jobs, Stage, WorkerPool};
use crate::evict::IdleMemos;
use crate::graph::Graph;
use crate::marks::Marks;
use crate::node::Interner;
use crate::stats::Counters;
use crate::{Options, Subject};

/// Once this many guards were dropped, the next drop takes them off their memos.
const RELEASED_LIMIT: usize = 256;

/// Once this many jobs of one revision are part of the graph, the stage lets go of them.
const ADOPTED_JOBS_LIMIT: usize = 1024;

/// State that the handles of one engine share.
pub(crate) struct Core {
    pub(crate) interner: Arc<Interner>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) options: Options,
    workers: Arc<WorkerPool>,
    current: RwLock<Arc<Stage>>,
    pub(crate) writer: Mutex<Writer>,
    /// Queries whose guards were dropped since a writer last looked.
    released: Mutex<Vec<Subject>>,
}

/// State that only the writer uses.
pub(crate) struct Writer {
    pub(crate) idle: IdleMemos,
}

impl Core {
    pub(crate) fn new(options: Options, interner: Arc<Interner>, graph: Graph, idle: IdleMemos) -> Self {
        let counters = Arc::new(Counters::default());
        let workers = Arc::new(WorkerPool::new(options.threads));
        let stage = Stage {
            graph,
            marks: Marks::default(),
            jobs: Arc::default(),
            interner: Arc::clone(&interner),
            counters: Arc::clone(&counters),
            workers: Arc::clone(&workers),
        };
        Self {
            interner,
            counters,
            workers,
            current: RwLock::new(Arc::new(stage)),
            writer: Mutex::new(Writer { idle }),
            released: Mutex::default(),
            options,
        }
    }

    pub(crate) fn current(&self) -> Arc<Stage> {
        Arc::clone(&self.current.read())
    }

    pub(crate) fn stage(&self, graph: Graph, marks: Marks, jobs: Arc<Jobs>) -> Stage {
        let (interner, counters) = (Arc::clone(&self.interner), Arc::clone(&self.counters));
        Stage { graph, marks, jobs, interner, counters, workers: Arc::clone(&self.workers) }
    }

    /// Makes a graph the current one. Only for the writer.
    pub(crate) fn publish(&self, graph: Graph, jobs: Arc<Jobs>) {
        let stage = Arc::new(self.stage(graph, Marks::default(), jobs));
        let old = std::mem::replace(&mut *self.current.write(), stage);
        // Dropped after the lock is released: this may free much of the old graph.
        drop(old);
    }

    /// Makes a graph the current one that differs from a stage's only in its memos. Only for the writer.
    pub(crate) fn publish_same_revision(&self, graph: Graph, stage: &Stage) {
        // Both stages share their jobs, so that their readers wait for each other instead of evaluating twice. A new list
        // is started now and then, or jobs that are part of the graph would stay for as long as the revision does.
        let jobs = if self.has_many_adopted_jobs(stage) { Arc::default() } else { Arc::clone(&stage.jobs) };
        self.publish(graph, jobs);
    }

    fn has_many_adopted_jobs(&self, stage: &Stage) -> bool {
        stage.jobs.len() > stage.jobs.finished_len() + self.options.idle + ADOPTED_JOBS_LIMIT
    }

    /// Notes a dropped guard. Cleans up if there are many and no writer is at work.
    pub(crate) fn release(&self, query: Subject) {
        let has_many = {
            let mut released = self.released.lock();
            released.push(query);
            released.len() >= RELEASED_LIMIT
        };
        if has_many {
            self.try_clean_up();
        }
    }

    /// Takes dropped guards off their memos. Returns whether there were any.
    pub(crate) fn unwatch_released(&self, writer: &mut Writer, draft: &mut Draft) -> bool {
        let released = std::mem::take(&mut *self.released.lock());
        for query in &released {
            if draft.unwatch(query.id()) {
                writer.idle.push(query.clone(), draft);
            }
        }
        !released.is_empty()
    }

    /// Makes finished evaluations of a stage and dropped guards part of a draft. Returns whether there were any.
    pub(crate) fn adopt_finished(&self, writer: &mut Writer, draft: &mut Draft, stage: &Stage) -> bool {
        let finished = stage.jobs.take_finished();
        // Nobody watches these queries, so no more of them are kept than idle memos.
        let latest = &finished[finished.len().saturating_sub(self.options.idle)..];
        let mut adoption = Adoption::new(draft, stage);
        for job in latest {
            adoption.adopt(&job.subject);
        }
        let adopted = adoption.adopted();
        let released = self.unwatch_released(writer, draft);
        writer.idle.push_unheld(&adopted, draft);
        released || !adopted.is_empty()
    }

    /// Cleans up if many evaluations on a stage are not part of the graph yet.
    pub(crate) fn clean_up_if_many_finished(&self, stage: &Stage) {
        if stage.jobs.finished_len() > self.options.idle {
            self.try_clean_up();
        }
    }

    /// [`Core::clean_up`], unless a writer is at work.
    pub(crate) fn try_clean_up(&self) {
        if let Some(mut writer) = self.writer.try_lock() {
            self.clean_up(&mut writer);
        }
    }

    /// Publishes a graph with the finished evaluations of the current stage and without dropped guards.
    pub(crate) fn clean_up(&self, writer: &mut Writer) {
        let stage = self.current();
        let mut draft = Draft::new(stage.graph.clone());
        if self.adopt_finished(writer, &mut draft, &stage) || self.has_many_adopted_jobs(&stage) {
            draft.sweep();
            self.publish_same_revision(draft.graph, &stage);
        }
    }
}
