//! Sets of resource names, immutable and shared.
//!
//! A thousand proxies of one kind subscribe to the same thousand names. They hold one [`Names`] between them, and a
//! control plane can recognise an interest it has seen before by its digest.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use canopus_base::hash::{self, ContentHash};

use crate::pool::Pool;

/// A sorted set of names. Clones share it.
#[derive(Clone)]
pub struct Names(Arc<Shared>);

struct Shared {
    digest: ContentHash,
    bytes: usize,
    names: Box<[Arc<str>]>,
}

impl Names {
    /// The set of these names, in any order, repeats allowed.
    pub fn new<N: Into<Arc<str>>>(names: impl IntoIterator<Item = N>) -> Self {
        let mut names: Vec<Arc<str>> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        Self::from_sorted(names)
    }

    fn from_sorted(names: Vec<Arc<str>>) -> Self {
        let bytes = names.iter().map(|name| name.len()).sum();
        Self(Arc::new(Shared { digest: digest(&names), bytes, names: names.into() }))
    }

    /// How long the names are, all together.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// A hash of the names: equal sets have equal digests.
    pub fn digest(&self) -> ContentHash {
        self.0.digest
    }

    /// Whether `name` is in the set.
    pub fn contains(&self, name: &str) -> bool {
        self.0.names.binary_search_by(|held| (**held).cmp(name)).is_ok()
    }

    /// The set with `added` put in and then `removed` taken out.
    pub(crate) fn changed(&self, added: &[Arc<str>], removed: &Names) -> Self {
        if added.is_empty() && removed.is_empty() {
            return self.clone();
        }
        let all = self.iter().chain(added);
        Self::new(all.filter(|name| !removed.contains(name)).cloned())
    }

    /// Those of these names that are not in `other`.
    pub(crate) fn missing_from(&self, other: &Names) -> Vec<Arc<str>> {
        if self == other {
            return Vec::new();
        }
        let missing = self.iter().filter(|name| !other.contains(name));
        missing.cloned().collect()
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::from_sorted(Vec::new())
    }
}

impl Deref for Names {
    type Target = [Arc<str>];

    fn deref(&self) -> &[Arc<str>] {
        &self.0.names
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.digest == other.0.digest && self.0.names == other.0.names)
    }
}

impl Eq for Names {}

impl Hash for Names {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest.hash(state);
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

fn digest(names: &[impl AsRef<str>]) -> ContentHash {
    let mut hasher = hash::Hasher::new();
    for name in names {
        hasher.field(name.as_ref().as_bytes());
    }
    hasher.finish()
}

/// Sets of names in use, so that sessions with equal interests share one.
#[derive(Default)]
pub struct NamePool(Pool<Shared>);

impl NamePool {
    /// The shared set equal to `names`.
    pub fn share(&self, names: Names) -> Names {
        Names(self.0.share(names.digest(), names.0, |one, other| one.names == other.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SMALLEST_SWEEP;

    #[test]
    fn equal_sets_are_equal_in_any_order_and_with_repeats() {
        let one = Names::new(["b", "a", "b"]);
        assert_eq!(one, Names::new(["a", "b"]));
        assert_ne!(one, Names::new(["ab"]));
        assert_eq!(one.to_vec(), ["a".into(), "b".into()]);
        assert!(one.contains("a") && !one.contains("c"));
    }

    #[test]
    fn changes_add_then_remove() {
        let names = Names::new(["a", "b"]);
        assert_eq!(names.changed(&["c".into()], &Names::new(["a"])), Names::new(["b", "c"]));
        assert_eq!(names.changed(&["c".into()], &Names::new(["c"])), names);
        assert_eq!(names.missing_from(&Names::new(["a"])), ["b".into()]);
    }

    #[test]
    fn pool_returns_the_same_allocation_while_it_is_in_use() {
        let pool = NamePool::default();
        let first = pool.share(Names::new(["a"]));
        let second = pool.share(Names::new(["a"]));
        assert!(Arc::ptr_eq(&first.0, &second.0));
    }

    #[test]
    fn pool_forgets_sets_nobody_uses() {
        let pool = NamePool::default();
        let kept = pool.share(Names::new(["kept"]));
        for n in 0..10 * SMALLEST_SWEEP {
            pool.share(Names::new([n.to_string()]));
        }
        assert!(pool.0.len() <= SMALLEST_SWEEP + 1, "{}", pool.0.len());
        assert!(Arc::ptr_eq(&pool.share(Names::new(["kept"])).0, &kept.0));
    }
}
