//! Applying a batch: set inputs, find out what they change, publish the result.
//!
//! ```text
//!  batch ──► changed inputs ──► eager memos ──► changed eager memos ──► watched memos ──► changed roots
//!            and buckets        marked and      join the changed        marked and
//!                               refreshed       inputs                  refreshed
//! ```
//!
//! All of it happens on a draft; readers see the previous revision until the draft is published. Both refreshes work the
//! same way: marks spread from what changed, the marked memos that somebody needs are verified or evaluated again, and the
//! other marked memos are dropped, because a published graph contains no memo that may be stale. The eager layer goes first
//! and is closed downwards (eager queries read only inputs, buckets and each other), so its result is final before the first
//! lazy memo is marked.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::core::Core;
use crate::draft::Draft;
use crate::evaluation::Job;
use crate::graph::Graph;
use crate::ids::NodeId;
use crate::marks::Marks;
use crate::{Applied, Batch, RootId, Subject};

/// A layer of queries that is refreshed as a whole.
struct Layer {
    /// Marks the memos of the layer that are above changed nodes.
    mark: fn(&Graph, &[NodeId]) -> Marks,
    /// Lists the marked memos that must be up to date afterwards.
    needed: fn(&Marks, &Graph) -> Vec<Subject>,
}

const EAGER: Layer = Layer { mark: Marks::spread_eager, needed: Marks::needed_outside_eager_layer };
const LAZY: Layer = Layer { mark: Marks::spread_lazy, needed: Marks::watched };

impl Core {
    pub(crate) fn apply(&self, batch: Batch) -> Applied {
        let mut writer = self.writer.lock();
        let stage = self.current();
        let mut draft = Draft::new(stage.graph.clone());
        let mut changed = batch.apply_to(&mut draft, &self.interner);
        if changed.is_empty() {
            return Applied { revision: stage.graph.revision, changed: Vec::new() };
        }
        draft.graph.revision = stage.graph.revision.next();
        // Before marks spread: they must reach the memos that readers have added since the last batch.
        self.adopt_finished(&mut writer, &mut draft, &stage);
        drop(stage);
        changed.extend(self.refresh(&mut draft, &changed, &EAGER));
        changed.extend(self.refresh(&mut draft, &changed, &LAZY));
        let mut roots: Vec<RootId> = changed.iter().filter_map(|id| draft.graph.root(*id)).collect();
        roots.sort_unstable();
        self.unwatch_released(&mut writer, &mut draft);
        draft.sweep();
        let revision = draft.graph.revision;
        self.publish(draft.graph, Arc::default());
        Applied { revision, changed: roots }
    }

    /// Brings one layer up to date after some nodes changed. Returns its memos that have a new value.
    fn refresh(&self, draft: &mut Draft, changed: &[NodeId], layer: &Layer) -> Vec<NodeId> {
        let marks = (layer.mark)(&draft.graph, changed);
        if marks.is_empty() {
            return Vec::new();
        }
        self.counters.add_marks(marks.len() as u64);
        let needed = (layer.needed)(&marks, &draft.graph);
        // The graph is moved into the stage and back. A copy would make every later edit copy the nodes it touches.
        let mut stage = self.stage(std::mem::take(&mut draft.graph), marks, Arc::default());
        stage.get_all(&needed);
        draft.graph = std::mem::take(&mut stage.graph);

        let finished = stage.jobs.take_finished();
        let mut unverified: FxHashSet<NodeId> = stage.marks.into_dirty().collect();
        let mut changed = Vec::new();
        for job in &finished {
            unverified.remove(&job.subject.id());
            changed.extend(install(draft, job));
        }
        for id in unverified {
            draft.remove(id);
        }
        for job in &finished {
            draft.add_sweep_candidate(job.subject.id());
        }
        changed
    }
}

/// Records the result of a job. Returns its query if the value is a new one.
fn install(draft: &mut Draft, job: &Job) -> Option<NodeId> {
    let result = job.result()?;
    if let Some(reads) = &result.reads {
        draft.install(&job.subject, result.outcome.clone(), reads);
    }
    result.changed.then(|| job.subject.id())
}
