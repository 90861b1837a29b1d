//! Starting to watch queries.

use std::sync::Arc;

use crate::adopt::Adoption;
use crate::core::{Core, Writer};
use crate::graph::Draft;
use crate::stage::Stage;
use crate::{RootId, Subject};

/// Times a watch evaluates beside the writer before it makes the writer wait.
const ATTEMPTS: usize = 4;

/// Queries a watch adds to the world at once, so that a writer need not wait for all of a large watch.
const PINNED_AT_ONCE: usize = 256;

impl Core {
    /// Evaluates queries and keeps each up to date from a revision on at which it was.
    pub(crate) fn watch(&self, queries: &[Subject]) -> Vec<RootId> {
        let stage = self.current();
        stage.get_all(queries);
        let roots = queries.chunks(PINNED_AT_ONCE).flat_map(|some| self.watch_some(some, &stage)).collect();
        self.tidy_if_many(&stage);
        roots
    }

    fn watch_some(&self, queries: &[Subject], evaluated: &Stage) -> Vec<RootId> {
        if let Some(roots) = self.pin(&mut self.writer.lock(), evaluated, queries) {
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
        let stage = self.restart();
        stage.get_all(queries);
        self.pin(&mut writer, &stage, queries)
            .expect("what is evaluated anew on the current stage can be pinned to it")
    }

    /// Shows the same world without the evaluations made on it; for the writer.
    ///
    /// They may have read memos that have gone from the world since, as nothing held them, and that no job stands for.
    fn restart(&self) -> Arc<Stage> {
        self.publish(self.current().world.clone(), Arc::default());
        self.current()
    }

    /// Adds a guard to each query, given a stage they were evaluated on; not if something they rest on has changed since.
    fn pin(&self, writer: &mut Writer, evaluated: &Stage, queries: &[Subject]) -> Option<Vec<RootId>> {
        let current = self.current();
        let mut draft = Draft::new(current.world.clone());
        let mut adoption = Adoption::new(&mut draft, evaluated);
        for query in queries {
            adoption.adopt(query);
        }
        let adopted = adoption.adopted();
        let all_there = queries.iter().all(|query| draft.world.memo(query.id()).is_some());
        let roots = all_there.then(|| {
            queries.iter().map(|query| draft.watch(query.id(), || self.registry.next_root())).collect()
        });
        // Also if not all are there: the next attempt starts from what is.
        writer.idle.take_in(&adopted, &mut draft);
        draft.sweep();
        self.publish_same(draft.world, &current);
        roots
    }
}
