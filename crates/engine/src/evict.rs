//! Eviction: which memos stay that nobody watches and no memo reads.
//!
//! A result that was asked for once may be asked for again, so unheld memos stay for a while. Their number is bounded; the
//! oldest goes first. A batch that makes an idle memo dirty drops it at once, because keeping it would mean evaluating it for
//! nobody.

use std::collections::VecDeque;

use crate::Subject;
use crate::draft::Draft;

/// The memos that nothing holds, oldest first. May name memos that are held again, or gone.
#[derive(Clone)]
pub(crate) struct IdleMemos {
    queue: VecDeque<Subject>,
    capacity: usize,
}

impl IdleMemos {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::new(), capacity }
    }

    /// Keeps an unheld memo. If there are too many, the next sweep of the draft removes the oldest.
    pub(crate) fn push(&mut self, query: Subject, draft: &mut Draft) {
        self.queue.push_back(query);
        if self.queue.len() > self.capacity
            && let Some(oldest) = self.queue.pop_front()
        {
            // The sweep leaves it alone if something holds it again.
            draft.add_sweep_candidate(oldest.id());
        }
    }

    /// Keeps those of some new memos that nothing holds.
    pub(crate) fn push_unheld(&mut self, queries: &[Subject], draft: &mut Draft) {
        for query in queries {
            if draft.graph.node(query.id()).is_some_and(|node| draft.graph.is_unheld(node)) {
                self.push(query.clone(), draft);
            }
        }
    }
}
