//! Forks: engines that start as a copy of another.
//!
//! Graphs are persistent, so a fork shares everything with its origin until one of them changes. Both intern keys in the same
//! table, so that a subject means the same in either.

use std::sync::Arc;

use crate::Engine;
use crate::core::Core;
use crate::evict::IdleMemos;
use crate::graph::Graph;

impl Engine {
    /// A second engine that starts with the inputs and memos of this one. What is applied to either never shows in the other.
    ///
    /// Costs next to nothing: the two share all memory until one of them changes, and then whatever is still equal. Roots
    /// watched here are watched there too, under the same ids and for as long as the fork lives.
    #[must_use = "a fork has no effect on the engine it was made from"]
    pub fn fork(&self) -> Self {
        self.fork_with(|graph| graph)
    }

    /// A fork in which nothing is watched: applying a batch to it evaluates nothing but eager queries until something is
    /// asked for.
    ///
    /// For questions about a few results, such as what one of them would be if an input were different.
    #[must_use = "a fork has no effect on the engine it was made from"]
    pub fn fork_unwatched(&self) -> Self {
        self.fork_with(Graph::without_watches)
    }

    fn fork_with(&self, adapt: impl FnOnce(Graph) -> Graph) -> Self {
        // A fork never waits for a writer. If none is at work, it takes recent evaluations along.
        let idle = self.core.writer.try_lock().map(|mut writer| {
            self.core.clean_up(&mut writer);
            writer.idle.clone()
        });
        let Core { options, interner, .. } = &*self.core;
        let idle = idle.unwrap_or_else(|| IdleMemos::new(options.idle));
        let graph = adapt(self.core.current().graph.clone());
        Self { core: Arc::new(Core::new(*options, Arc::clone(interner), graph, idle)) }
    }
}
