//! Starting to watch queries.

use crate::adopt::Adoption;
use crate::core::{Core, Writer};
use crate::graph::Draft;
use crate::stage::Stage;
use crate::{RootId, Subject};

/// Times a watch evaluates beside the writer before it makes the writer wait.
const ATTEMPTS: usize = 4;

impl Core {
    /// Evaluates queries and keeps them up to date from a revision on at which they were.
    pub(crate) fn watch(&self, queries: &[Subject]) -> Vec<RootId> {
        for _ in 0..ATTEMPTS {
            let stage = self.current();
            self.resolve_all(&stage, queries);
            if let Some(roots) = self.pin(&mut self.writer.lock(), &stage, queries) {
                return roots;
            }
        }
        let mut writer = self.writer.lock();
        let stage = self.current();
        self.resolve_all(&stage, queries);
        self.pin(&mut writer, &stage, queries)
            .expect("what is evaluated on the current stage can be pinned to it")
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
        let roots = all_there.then(|| self.add_guards(&mut draft, queries));
        // Also if not all are there: the next attempt starts from what is.
        writer.idle.take_in(&adopted, &mut draft);
        self.catch_up(writer, &mut draft, &current);
        draft.sweep();
        self.publish_same(draft.world, &current);
        roots
    }

    fn add_guards(&self, draft: &mut Draft, queries: &[Subject]) -> Vec<RootId> {
        queries.iter().map(|query| draft.watch(query.id(), || self.registry.next_root())).collect()
    }
}
