//! Which memos stay that nobody watches.

use std::collections::VecDeque;

use crate::Subject;
use crate::graph::Draft;

/// Memos that nothing holds, kept for a while in case they are asked for again, the oldest first to go.
#[derive(Clone)]
pub(crate) struct Idle {
    queue: VecDeque<Subject>,
    capacity: usize,
}

impl Idle {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::new(), capacity }
    }

    /// Keeps a memo that nothing holds; the draft's next sweep removes the one it displaces.
    pub(crate) fn push(&mut self, query: Subject, draft: &mut Draft) {
        self.queue.push_back(query);
        if self.queue.len() > self.capacity
            && let Some(oldest) = self.queue.pop_front()
        {
            // If it has come to be held since, the sweep leaves it alone.
            draft.loosen(oldest.id());
        }
    }

    /// Keeps those of some new memos that nothing holds.
    pub(crate) fn take_in(&mut self, queries: &[Subject], draft: &mut Draft) {
        for query in queries {
            if draft.world.node(query.id()).is_some_and(|node| draft.world.is_unheld(node)) {
                self.push(query.clone(), draft);
            }
        }
    }
}
