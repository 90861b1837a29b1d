//! The published stage and the one writer that replaces it.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::adopt::Adoption;
use crate::crew::Crew;
use crate::evict::Idle;
use crate::graph::Draft;
use crate::intern::Registry;
use crate::job::Jobs;
use crate::marks::Marks;
use crate::stage::Stage;
use crate::stats::Counters;
use crate::world::World;
use crate::{Options, Subject};

/// Guards dropped since the last edit, beyond which the next drop cleans up.
const MANY_RELEASED: usize = 256;

/// Evaluations of one revision, beyond which those already part of the world are let go.
const MANY_JOBS: usize = 1024;

/// What the handles of one engine share.
pub(crate) struct Core {
    pub(crate) registry: Arc<Registry>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) options: Options,
    crew: Arc<Crew>,
    current: RwLock<Arc<Stage>>,
    pub(crate) writer: Mutex<Writer>,
    /// Queries whose guards were dropped; a drop never waits for the writer.
    released: Mutex<Vec<Subject>>,
}

/// What only the writer looks at.
pub(crate) struct Writer {
    pub(crate) idle: Idle,
}

impl Core {
    pub(crate) fn new(options: Options, registry: Arc<Registry>, world: World, idle: Idle) -> Self {
        let counters = Arc::new(Counters::default());
        let crew = Arc::new(Crew::new(options.threads));
        let stage = Stage {
            world,
            marks: Marks::default(),
            jobs: Arc::default(),
            registry: Arc::clone(&registry),
            counters: Arc::clone(&counters),
            crew: Arc::clone(&crew),
        };
        Self {
            registry,
            counters,
            crew,
            current: RwLock::new(Arc::new(stage)),
            writer: Mutex::new(Writer { idle }),
            released: Mutex::default(),
            options,
        }
    }

    pub(crate) fn current(&self) -> Arc<Stage> {
        Arc::clone(&self.current.read())
    }

    pub(crate) fn stage(&self, world: World, marks: Marks, jobs: Arc<Jobs>) -> Stage {
        let (registry, counters) = (Arc::clone(&self.registry), Arc::clone(&self.counters));
        Stage { world, marks, jobs, registry, counters, crew: Arc::clone(&self.crew) }
    }

    /// Shows a world to everybody; for the writer.
    pub(crate) fn publish(&self, world: World, jobs: Arc<Jobs>) {
        let stage = Arc::new(self.stage(world, Marks::default(), jobs));
        let old = std::mem::replace(&mut *self.current.write(), stage);
        // Outside the lock: this may be the last reference to much of the old world.
        drop(old);
    }

    /// Shows a world that differs from a stage's only in its memos; for the writer.
    pub(crate) fn publish_same(&self, world: World, stage: &Stage) {
        // Sharing jobs lets readers of both wait for each other; now and then those that are done with are let go.
        let jobs = if self.has_many_jobs(stage) { Arc::default() } else { Arc::clone(&stage.jobs) };
        self.publish(world, jobs);
    }

    fn has_many_jobs(&self, stage: &Stage) -> bool {
        stage.jobs.len() > stage.jobs.untaken() + self.options.idle + MANY_JOBS
    }

    /// Notes a dropped guard and cleans up now and then.
    pub(crate) fn release(&self, query: Subject) {
        let many = {
            let mut released = self.released.lock();
            released.push(query);
            released.len() >= MANY_RELEASED
        };
        if many {
            self.try_tidy();
        }
    }

    /// Takes dropped guards off their memos.
    pub(crate) fn unwatch_released(&self, writer: &mut Writer, draft: &mut Draft) -> bool {
        let released = std::mem::take(&mut *self.released.lock());
        for query in &released {
            if draft.unwatch(query.id()) {
                writer.idle.push(query.clone(), draft);
            }
        }
        !released.is_empty()
    }

    /// Makes what readers have evaluated and released part of a draft.
    pub(crate) fn catch_up(&self, writer: &mut Writer, draft: &mut Draft, stage: &Stage) -> bool {
        let finished = stage.jobs.take_finished();
        // More could not be kept: nobody watches them.
        let latest = &finished[finished.len().saturating_sub(self.options.idle)..];
        let mut adoption = Adoption::new(draft, stage);
        for job in latest {
            adoption.adopt(&job.subject);
        }
        let adopted = adoption.adopted();
        let released = self.unwatch_released(writer, draft);
        writer.idle.take_in(&adopted, draft);
        released || !adopted.is_empty()
    }

    /// Cleans up after evaluations on a stage if there were many.
    pub(crate) fn tidy_if_many(&self, stage: &Stage) {
        if stage.jobs.untaken() > self.options.idle {
            self.try_tidy();
        }
    }

    /// Makes what readers have evaluated and released part of the world, unless a writer is at work.
    pub(crate) fn try_tidy(&self) {
        if let Some(mut writer) = self.writer.try_lock() {
            self.tidy(&mut writer);
        }
    }

    pub(crate) fn tidy(&self, writer: &mut Writer) {
        let stage = self.current();
        let mut draft = Draft::new(stage.world.clone());
        if self.catch_up(writer, &mut draft, &stage) || self.has_many_jobs(&stage) {
            draft.sweep();
            self.publish_same(draft.world, &stage);
        }
    }
}
