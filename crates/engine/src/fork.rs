//! Worlds that start as copies.

use std::sync::Arc;

use crate::Engine;
use crate::core::Core;
use crate::evict::Idle;
use crate::world::World;

impl Engine {
    /// A second world that starts as this one; what is applied to either never shows in the other.
    ///
    /// Costs next to nothing: the two share everything until one of them changes, and then all that is equal. Roots
    /// watched here are watched there too, under the same ids and for as long as the fork lives.
    #[must_use = "a fork has no effect on the engine it was made from"]
    pub fn fork(&self) -> Self {
        self.split(|world| world)
    }

    /// A fork in which nothing is watched: what is applied to it costs nothing until something is asked.
    ///
    /// For questions about a few results, such as what one of them would be if an input were another.
    #[must_use = "a sketch has no effect on the engine it was made from"]
    pub fn sketch(&self) -> Self {
        self.split(World::unwatched)
    }

    fn split(&self, adapt: impl FnOnce(World) -> World) -> Self {
        // A fork never waits for a writer. If there is none, what was asked for lately is taken along.
        let idle = self.core.writer.try_lock().map(|mut writer| {
            self.core.tidy(&mut writer);
            writer.idle.clone()
        });
        let Core { options, registry, .. } = &*self.core;
        let idle = idle.unwrap_or_else(|| Idle::new(options.idle));
        let world = adapt(self.core.current().world.clone());
        Self { core: Arc::new(Core::new(*options, Arc::clone(registry), world, idle)) }
    }
}
