//! Equal values in use, held once.

use std::sync::{Arc, Weak};

use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use parking_lot::Mutex;

/// Below this many values nothing is swept.
pub(crate) const SMALLEST_SWEEP: usize = 64;

/// Values that somebody uses, by their digest.
pub(crate) struct Pool<T> {
    values: Mutex<Values<T>>,
}

struct Values<T> {
    by_digest: FastMap<ContentHash, Weak<T>>,
    /// Size at which unused entries are dropped next.
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { values: Mutex::new(Values { by_digest: FastMap::default(), sweep_at: 0 }) }
    }
}

impl<T> Pool<T> {
    /// The value of this digest that is in use already.
    pub(crate) fn get(&self, digest: ContentHash) -> Option<Arc<T>> {
        self.values.lock().by_digest.get(&digest).and_then(Weak::upgrade)
    }

    /// The value of this digest that is in use already, else this one.
    pub(crate) fn share(&self, digest: ContentHash, value: Arc<T>) -> Arc<T> {
        let mut values = self.values.lock();
        if let Some(shared) = values.by_digest.get(&digest).and_then(Weak::upgrade) {
            return shared;
        }
        if values.by_digest.len() >= values.sweep_at {
            values.by_digest.retain(|_, value| value.strong_count() > 0);
            values.sweep_at = (2 * values.by_digest.len()).max(SMALLEST_SWEEP);
        }
        values.by_digest.insert(digest, Arc::downgrade(&value));
        value
    }

    /// How many values the pool remembers, in use or not.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.values.lock().by_digest.len()
    }
}
