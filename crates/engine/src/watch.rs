//! Watching queries.
//!
//! A watch evaluates beside the writer, on whatever stage is current, and then *pins* the results: it takes the writer's lock,
//! adopts them into the current graph and adds a guard to each. If a batch was applied meanwhile and changed something they
//! depend on, they cannot be adopted and are evaluated again. After a few such failures the watch evaluates while it holds
//! the lock, so that it ends however fast batches come.

use std::sync::Arc;

use crate::adopt::Adoption;
use crate::core::{Core, Writer};
use crate::draft::Draft;
use crate::evaluation::Stage;
use crate::{RootId, Subject};

/// How often a watch evaluates beside the writer before it makes the writer wait.
const ATTEMPTS: usize = 4;

/// Queries pinned per lock of the writer, so that a large watch does not hold up batches for long.
const PINNED_PER_LOCK: usize = 256;

impl Core {
    /// Evaluates queries and keeps each up to date from the revision on at which it is pinned.
    pub(crate) fn watch(&self, queries: &[Subject]) -> Vec<RootId> {
        let stage = self.current();
        stage.get_all(queries);
        let roots =
            queries.chunks(PINNED_PER_LOCK).flat_map(|chunk| self.watch_chunk(chunk, &stage)).collect();
        self.clean_up_if_many_finished(&stage);
        roots
    }

    fn watch_chunk(&self, queries: &[Subject], evaluated_on: &Stage) -> Vec<RootId> {
        if let Some(roots) = self.pin(&mut self.writer.lock(), evaluated_on, queries) {
            return roots;
        }
        for _ in 1..ATTEMPTS {
            let stage = self.current();
            stage.get_all(queries);
            if let Some(roots) = self.pin(&mut self.writer.lock(), &stage, queries) {
                return roots;
            }
        }
        let mut writer = self.writer.lock();
        let stage = self.republish_without_jobs();
        stage.get_all(queries);
        self.pin(&mut writer, &stage, queries)
            .expect("results that were evaluated on the current stage can be pinned to it")
    }

    /// Publishes the current graph again without the evaluations made on it. Only for the writer.
    ///
    /// A job may have read a memo that was evicted since and that no other job stands for. Such a job can never be adopted.
    fn republish_without_jobs(&self) -> Arc<Stage> {
        self.publish(self.current().graph.clone(), Arc::default());
        self.current()
    }

    /// Adds a guard to each query, given a stage on which they were evaluated. `None` if some result does not hold any more.
    fn pin(&self, writer: &mut Writer, evaluated_on: &Stage, queries: &[Subject]) -> Option<Vec<RootId>> {
        let current = self.current();
        let mut draft = Draft::new(current.graph.clone());
        let mut adoption = Adoption::new(&mut draft, evaluated_on);
        for query in queries {
            adoption.adopt(query);
        }
        let adopted = adoption.adopted();
        let has_all = queries.iter().all(|query| draft.graph.memo(query.id()).is_some());
        let roots = has_all.then(|| {
            queries.iter().map(|query| draft.watch(query.id(), || self.interner.next_root())).collect()
        });
        // Published even if some are missing: the next attempt starts from what could be adopted.
        writer.idle.push_unheld(&adopted, &mut draft);
        draft.sweep();
        self.publish_same_revision(draft.graph, &current);
        roots
    }
}
