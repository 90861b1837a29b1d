//! Sets of resource names, immutable and shared.
//!
//! A thousand proxies of one kind subscribe to the same thousand names. They hold one [`Names`] between them, and a
//! control plane can recognise an interest it has seen before by its digest.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Weak};

use canopus_base::hash::{self, ContentHash};
use parking_lot::Mutex;

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
        let mut added: Vec<&Arc<str>> = added.iter().collect();
        added.sort_unstable();
        let mut names = Vec::with_capacity(self.len() + added.len());
        let mut rest = &**self;
        for name in added {
            let (before, after) = rest.split_at(rest.partition_point(|held| held <= name));
            names.extend_from_slice(before);
            if names.last() != Some(name) {
                names.push(Arc::clone(name));
            }
            rest = after;
        }
        names.extend_from_slice(rest);
        if !removed.is_empty() {
            names.retain(|name| !removed.contains(name));
        }
        Self::from_sorted(names)
    }

    /// The names that are not in `other`.
    pub(crate) fn missing_from(&self, other: &Names) -> Vec<Arc<str>> {
        if self == other {
            return Vec::new();
        }
        let mut others = other.iter().peekable();
        let is_missing = |name: &&Arc<str>| {
            while others.next_if(|other| compare(other, name) == Ordering::Less).is_some() {}
            others.next_if(|other| compare(other, name) == Ordering::Equal).is_none()
        };
        self.iter().filter(is_missing).cloned().collect()
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

/// Names are often the very same allocation in two sets.
fn compare(one: &Arc<str>, other: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(one, other) { Ordering::Equal } else { one.cmp(other) }
}

fn digest(names: &[impl AsRef<str>]) -> ContentHash {
    let mut hasher = hash::Hasher::new();
    for name in names {
        hasher.field(name.as_ref().as_bytes());
    }
    hasher.finish()
}

/// Steps from one set to another that are remembered.
const STEPS: usize = 8;

/// Names of a step that is remembered, at the most: clients choose them.
const STEP_NAMES: usize = 64;

/// Sets of names in use, so that sessions with equal interests share one.
#[derive(Default)]
pub struct NamePool {
    sets: Pool<Shared>,
    /// The last changes of sets. When a service comes, all sessions change the same interest in the same way.
    steps: Mutex<VecDeque<Step>>,
}

/// A set that became another one.
struct Step {
    from: Weak<Shared>,
    added: Names,
    removed: Names,
    to: Weak<Shared>,
}

impl Step {
    fn is(&self, from: &Names, added: &Names, removed: &Names) -> bool {
        ptr::eq(self.from.as_ptr(), Arc::as_ptr(&from.0)) && self.added == *added && self.removed == *removed
    }
}

impl NamePool {
    /// The shared set equal to `names`.
    pub fn share(&self, names: Names) -> Names {
        Names(self.sets.share(names.digest(), names.0, |one, other| one.names == other.names))
    }

    /// The shared set that `names` becomes with `added` put in and then `removed` taken out.
    pub(crate) fn changed(&self, names: &Names, added: &Names, removed: &Names) -> Names {
        let known =
            self.steps.lock().iter().find(|step| step.is(names, added, removed)).map(|step| step.to.clone());
        if let Some(known) = known.and_then(|known| known.upgrade()) {
            return Names(known);
        }
        let changed = self.share(names.changed(added, removed));
        if added.len() + removed.len() <= STEP_NAMES {
            let (from, to) = (Arc::downgrade(&names.0), Arc::downgrade(&changed.0));
            let mut steps = self.steps.lock();
            steps.truncate(STEPS - 1);
            steps.push_front(Step { from, added: added.clone(), removed: removed.clone(), to });
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

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
    fn sets_of_one_digest_and_other_names_are_not_equal() {
        let own = Names::new(["own"]);
        let others: Box<[Arc<str>]> = ["secret".into()].into();
        let forged = Names(Arc::new(Shared { digest: own.digest(), bytes: 6, names: others }));
        assert_ne!(own, forged);
        let pool = NamePool::default();
        let own = pool.share(own);
        assert_eq!(pool.share(forged).to_vec(), ["secret".into()]);
        assert_eq!(own.to_vec(), ["own".into()]);
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
    fn sessions_that_take_the_same_step_share_its_result() {
        let pool = NamePool::default();
        let (before, added, nothing) = (pool.share(Names::new(["a"])), Names::new(["b"]), Names::default());
        let first = pool.changed(&before, &added, &nothing);
        assert_eq!(first, Names::new(["a", "b"]));
        assert!(Arc::ptr_eq(&first.0, &pool.changed(&before, &added, &nothing).0));
        assert_eq!(pool.changed(&before, &nothing, &before), nothing);
        assert_eq!(pool.changed(&before, &added, &before), added);
        let many = Names::new((0..=STEP_NAMES).map(|name| name.to_string()));
        pool.changed(&before, &many, &nothing);
        assert_eq!(pool.steps.lock().len(), 3, "what a client says at length is not kept");
        drop((before, first));
        assert!(pool.steps.lock().iter().all(|step| step.to.strong_count() == 0), "a step keeps no set");
    }

    proptest! {
        #[test]
        fn sets_change_and_differ_as_sets_do(
            held in prop::collection::btree_set("[a-d]{1,2}", 0..12),
            added in prop::collection::vec("[a-d]{1,2}", 0..6),
            removed in prop::collection::btree_set("[a-d]{1,2}", 0..6),
        ) {
            let names = |set: &BTreeSet<String>| Names::new(set.iter().map(String::as_str));
            let more: Vec<Arc<str>> = added.iter().map(|name| name.as_str().into()).collect();
            let expected = held.iter().chain(&added).filter(|name| !removed.contains(*name)).cloned().collect();
            prop_assert_eq!(names(&held).changed(&more, &names(&removed)), names(&expected));
            let missing: Vec<Arc<str>> = held.difference(&removed).map(|name| name.as_str().into()).collect();
            prop_assert_eq!(names(&held).missing_from(&names(&removed)), missing);
        }
    }

    #[test]
    fn pool_forgets_sets_nobody_uses() {
        let pool = NamePool::default();
        let kept = pool.share(Names::new(["kept"]));
        for n in 0..10 * SMALLEST_SWEEP {
            pool.share(Names::new([n.to_string()]));
        }
        assert!(pool.sets.len() <= SMALLEST_SWEEP + 1, "{}", pool.sets.len());
        assert!(Arc::ptr_eq(&pool.share(Names::new(["kept"])).0, &kept.0));
    }
}
