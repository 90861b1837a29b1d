//! Worlds that start as copies.

use std::sync::Arc;

use crate::Engine;
use crate::core::Core;

impl Engine {
    /// A second world that starts as this one; what is applied to either never shows in the other.
    ///
    /// Costs next to nothing: the two share everything until one of them changes, and then all that is equal. Roots
    /// watched here are watched there too, under the same ids and for as long as the fork lives.
    #[must_use = "a fork has no effect on the engine it was made from"]
    pub fn fork(&self) -> Self {
        // So that the fork has the memos of queries that were asked for lately.
        self.core.try_tidy();
        let world = self.core.current().world.clone();
        Self { core: Arc::new(Core::new(self.core.options, Arc::clone(&self.core.registry), world)) }
    }
}
