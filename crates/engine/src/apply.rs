//! Making a batch of changes and finding out what they change.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::core::Core;
use crate::graph::Draft;
use crate::intern::NodeId;
use crate::job::{Job, Jobs};
use crate::marks::Marks;
use crate::{Applied, Batch, RootId};

impl Core {
    pub(crate) fn apply(&self, batch: Batch) -> Applied {
        let mut writer = self.writer.lock();
        let stage = self.current();
        let mut draft = Draft::new(stage.world.clone());
        let changed = batch.make(&mut draft, &self.registry);
        if changed.is_empty() {
            return Applied { revision: stage.world.revision, changed: Vec::new() };
        }
        draft.world.revision = stage.world.revision.next();
        // Before marks are spread, or they would miss what readers have evaluated meanwhile.
        self.catch_up(&mut writer, &mut draft, &stage);
        drop(stage);
        let roots = self.bring_up_to_date(&mut draft, changed);
        self.unwatch_released(&mut writer, &mut draft);
        draft.sweep();
        let revision = draft.world.revision;
        self.publish(draft.world, Arc::default());
        Applied { revision, changed: roots }
    }

    /// Brings every watched query up to date, drops memos that are out of date, and lists the changed roots.
    fn bring_up_to_date(&self, draft: &mut Draft, changed: Vec<NodeId>) -> Vec<RootId> {
        let marks = Marks::spread(&draft.world, changed);
        let roots = marks.roots(&draft.world);
        // Moved there and back: a copy would have to be unshared again, node by node.
        let mut stage = self.stage(std::mem::take(&mut draft.world), marks, Arc::<Jobs>::default());
        stage.get_all(&roots);
        draft.world = std::mem::take(&mut stage.world);

        let finished = stage.jobs.take_finished();
        let mut outdated: FxHashSet<NodeId> = stage.marks.into_suspects().collect();
        let mut changed = Vec::new();
        for job in &finished {
            outdated.remove(&job.subject.id());
            changed.extend(settle(draft, job));
        }
        for id in outdated {
            draft.remove(id);
        }
        for job in &finished {
            draft.loosen(job.subject.id());
        }
        changed.sort_unstable();
        changed
    }
}

/// Records a result, and gives the root whose value it changes.
fn settle(draft: &mut Draft, job: &Job) -> Option<RootId> {
    let done = job.done()?;
    if let Some(reads) = &done.reads {
        draft.install(&job.subject, done.outcome.clone(), reads);
    }
    if done.changed { draft.world.root(job.subject.id()) } else { None }
}
