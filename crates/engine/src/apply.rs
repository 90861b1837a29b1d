//! Making a batch of changes and finding out what they change.
//!
//! A batch is applied to a draft of the world in five steps. Inputs and buckets are set. What readers have evaluated since
//! the last batch becomes part of the draft, so that marks reach it. The eager layer is brought up to date. Marks spread from
//! what really changed, and the watched memos among the marked are brought up to date. The draft is published.
//!
//! The invariant: in a published world every memo is up to date. A dirty memo that nobody needed is dropped rather than kept.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::core::Core;
use crate::graph::Draft;
use crate::intern::NodeId;
use crate::job::Job;
use crate::marks::Marks;
use crate::{Applied, Batch, RootId, Subject};

impl Core {
    pub(crate) fn apply(&self, batch: Batch) -> Applied {
        let mut writer = self.writer.lock();
        let stage = self.current();
        let mut draft = Draft::new(stage.world.clone());
        let mut changed = batch.make(&mut draft, &self.registry);
        if changed.is_empty() {
            return Applied { revision: stage.world.revision, changed: Vec::new() };
        }
        draft.world.revision = stage.world.revision.next();
        // Before marks are spread, or they would miss what readers have evaluated meanwhile.
        self.catch_up(&mut writer, &mut draft, &stage);
        drop(stage);
        changed.extend(self.refresh(&mut draft, Marks::spread_eager, &changed, Marks::needed));
        changed.extend(self.refresh(&mut draft, Marks::spread_lazy, &changed, Marks::watched));
        let mut roots: Vec<RootId> = changed.iter().filter_map(|id| draft.world.root(*id)).collect();
        roots.sort_unstable();
        self.unwatch_released(&mut writer, &mut draft);
        draft.sweep();
        let revision = draft.world.revision;
        self.publish(draft.world, Arc::default());
        Applied { revision, changed: roots }
    }

    /// Marks memos above what changed, brings those that are needed up to date, drops the other marked ones, and lists the
    /// memos whose value is a new one.
    fn refresh(
        &self,
        draft: &mut Draft,
        spread: fn(&crate::world::World, &[NodeId]) -> Marks,
        changed: &[NodeId],
        needed: fn(&Marks, &crate::world::World) -> Vec<Subject>,
    ) -> Vec<NodeId> {
        let marks = spread(&draft.world, changed);
        if marks.len() == 0 {
            return Vec::new();
        }
        self.counters.add_marks(marks.len() as u64);
        let needed = needed(&marks, &draft.world);
        // Moved there and back: a copy would have to be unshared again, node by node.
        let mut stage = self.stage(std::mem::take(&mut draft.world), marks, Arc::default());
        stage.get_all(&needed);
        draft.world = std::mem::take(&mut stage.world);

        let finished = stage.jobs.take_finished();
        let mut stale: FxHashSet<NodeId> = stage.marks.into_dirty().collect();
        let mut changed = Vec::new();
        for job in &finished {
            stale.remove(&job.subject.id());
            changed.extend(settle(draft, job));
        }
        for id in stale {
            draft.remove(id);
        }
        for job in &finished {
            draft.loosen(job.subject.id());
        }
        changed
    }
}

/// Records a result, and gives the memo if it has a new value.
fn settle(draft: &mut Draft, job: &Job) -> Option<NodeId> {
    let done = job.done()?;
    if let Some(reads) = &done.reads {
        draft.install(&job.subject, done.outcome.clone(), reads);
    }
    done.changed.then(|| job.subject.id())
}
