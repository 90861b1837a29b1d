//! Isolation of panics: a value of one call may panic without ending other calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The guarded value panicked and is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panicked;

/// A value of one call that may panic whenever it is used, also when it is dropped. The first panic is the end of it.
pub(super) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    /// Calls `make` and guards its value, unless it panics.
    pub(super) fn new(make: impl FnOnce() -> T) -> Self {
        Self(caught(make).ok())
    }

    /// Uses it; an error if it panics, or did so before.
    pub(super) fn with<R>(&mut self, using: impl FnOnce(&mut T) -> R) -> Result<R, Panicked> {
        let inner = self.0.as_mut().ok_or(Panicked)?;
        let used = caught(|| using(inner));
        if used.is_err() {
            self.let_go();
        }
        used
    }

    fn let_go(&mut self) {
        // Nobody waits for the value any more, so a panic need not be reported.
        let _ = caught(|| self.0 = None);
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    // What is left half done belongs to the call and goes with it. The locks that calls share are given back on the way.
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| Panicked)
}
