//! Equal values in use, held once.
//!
//! Digests find values and never stand for them: they are not made to withstand somebody who looks for collisions, and clients
//! choose what is digested. Whoever asks says how to recognise the value, and one that is another is not shared.

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
    /// The value of this digest that is in use already, if it is the one that `is_wanted` recognises.
    pub(crate) fn get(&self, digest: ContentHash, is_wanted: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        let found = self.values.lock().by_digest.get(&digest).and_then(Weak::upgrade);
        found.filter(|found| is_wanted(found))
    }

    /// The equal value that is in use already, else this one.
    pub(crate) fn share(
        &self,
        digest: ContentHash,
        value: Arc<T>,
        is_equal: impl FnOnce(&T, &T) -> bool,
    ) -> Arc<T> {
        let mut values = self.values.lock();
        if let Some(shared) = values.by_digest.get(&digest).and_then(Weak::upgrade) {
            return if is_equal(&shared, &value) { shared } else { value };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_collide_are_not_taken_for_each_other() {
        let pool = Pool::<&str>::default();
        let digest = ContentHash::compute(b"the same for both");
        let is_equal = |one: &&str, other: &&str| one == other;
        let victim = pool.share(digest, Arc::new("victim"), is_equal);
        let attacker = pool.share(digest, Arc::new("attacker"), is_equal);
        assert_eq!((*victim, *attacker), ("victim", "attacker"));
        assert!(Arc::ptr_eq(&pool.share(digest, Arc::new("victim"), is_equal), &victim));
        assert!(pool.get(digest, |found| *found == "attacker").is_none());
        assert!(pool.get(digest, |found| *found == "victim").is_some());
    }
}
