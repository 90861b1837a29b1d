//! What may panic, kept from taking others along.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something has panicked, and is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panicked;

/// Something of one call that may panic whenever it is used, also when it is dropped. The first panic is the end of it.
pub(super) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    /// What `make` makes, unless that panics.
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
        // Nobody waits for it any more, so there is nobody to tell.
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
