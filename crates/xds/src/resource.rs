//! Immutable sets of resources.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use canopus_base::hash::{ContentHash, Hasher};
pub use canopus_proto::resource::Resource;
use parking_lot::Mutex;

use crate::names::Names;
use crate::pool::Pool;

/// The state of one type for one client: resources sorted by name, one per name. Clones share it.
#[derive(Clone)]
pub struct ResourceSet(Arc<Shared>);

struct Shared {
    digest: ContentHash,
    resources: Box<[Resource]>,
    /// The last difference asked for: sessions of one view move between the same two states.
    recent: Mutex<Option<(ContentHash, Arc<Difference>)>>,
}

/// What turns one [`ResourceSet`] into another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Positions, in the newer set, of the resources that are new or have another version.
    pub(crate) updated: Vec<u32>,
    /// Names that only the older set has.
    pub(crate) removed: Vec<Arc<str>>,
}

impl ResourceSet {
    /// The set of these resources, in any order. Of several with one name the last stays.
    pub fn new(resources: impl IntoIterator<Item = Resource>) -> Self {
        let mut resources: Vec<Resource> = resources.into_iter().collect();
        if !resources.is_sorted_by(|a, b| a.name < b.name) {
            // The sort is stable, so reversing first puts the last of equal names in front, where it survives.
            resources.reverse();
            resources.sort_by(|a, b| a.name.cmp(&b.name));
            resources.dedup_by(|later, kept| later.name == kept.name);
        }
        let mut hasher = Hasher::new();
        for resource in &resources {
            hasher.field(resource.name.as_bytes());
            hasher.update(&resource.version.as_u128().to_le_bytes());
        }
        Self(Arc::new(Shared {
            digest: hasher.finish(),
            resources: resources.into(),
            recent: Mutex::default(),
        }))
    }

    /// A hash of all names and versions: sets with equal digests need no update between them.
    pub fn digest(&self) -> ContentHash {
        self.0.digest
    }

    /// The resource called `name`.
    pub fn get(&self, name: &str) -> Option<&Resource> {
        self.position(name).map(|at| &self.0.resources[at as usize])
    }

    pub(crate) fn get_at(&self, at: usize) -> Option<&Resource> {
        self.0.resources.get(at)
    }

    pub(crate) fn position(&self, name: &str) -> Option<u32> {
        let found = self.0.resources.binary_search_by(|held| (*held.name).cmp(name));
        found.ok().and_then(|at| u32::try_from(at).ok())
    }

    /// The set without the resources of these names.
    pub(crate) fn without(&self, names: &Names) -> Self {
        if names.iter().all(|name| self.position(name).is_none()) {
            return self.clone();
        }
        let left = self.iter().filter(|resource| !names.contains(&resource.name));
        left.cloned().collect()
    }

    /// What a client that has `older` lacks, and what it has too much.
    pub(crate) fn since(&self, older: &ResourceSet) -> Arc<Difference> {
        let mut recent = self.0.recent.lock();
        match &*recent {
            Some((from, difference)) if *from == older.digest() => difference.clone(),
            _ => {
                let difference = Arc::new(difference(older, self));
                *recent = Some((older.digest(), difference.clone()));
                difference
            }
        }
    }
}

fn difference(older: &ResourceSet, newer: &ResourceSet) -> Difference {
    let mut difference = Difference::default();
    if older == newer {
        return difference;
    }
    let mut old = older.iter().peekable();
    for (at, new) in (0u32..).zip(newer.iter()) {
        while let Some(gone) = old.next_if(|old| old.name < new.name) {
            difference.removed.push(gone.name.clone());
        }
        let same_name = old.next_if(|old| compare_names(old, new) == Ordering::Equal);
        if same_name.is_none_or(|old| old.version != new.version) {
            difference.updated.push(at);
        }
    }
    difference.removed.extend(old.map(|gone| gone.name.clone()));
    difference
}

/// Names are often the very same allocation in both sets.
fn compare_names(a: &Resource, b: &Resource) -> Ordering {
    if Arc::ptr_eq(&a.name, &b.name) {
        return Ordering::Equal;
    }
    a.name.cmp(&b.name)
}

impl Default for ResourceSet {
    fn default() -> Self {
        Self::new([])
    }
}

impl Deref for ResourceSet {
    type Target = [Resource];

    fn deref(&self) -> &[Resource] {
        &self.0.resources
    }
}

impl FromIterator<Resource> for ResourceSet {
    fn from_iter<I: IntoIterator<Item = Resource>>(resources: I) -> Self {
        Self::new(resources)
    }
}

impl PartialEq for ResourceSet {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for ResourceSet {}

impl fmt::Debug for ResourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Sets in use, so that clients which get the same share one.
#[derive(Default)]
pub struct SetPool(Pool<Shared>);

impl SetPool {
    /// The shared set equal to `set`.
    pub fn share(&self, set: ResourceSet) -> ResourceSet {
        ResourceSet(self.0.share(set.digest(), set.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SMALLEST_SWEEP;

    #[test]
    fn pool_has_one_of_equal_sets_and_none_that_nobody_uses() {
        let pool = SetPool::default();
        let first = pool.share(set(&[("a", "1")]));
        assert!(Arc::ptr_eq(&first.0, &pool.share(set(&[("a", "1")])).0));
        for number in 0..1000 {
            pool.share(ResourceSet::new([Resource::new(format!("r{number}"), "1")]));
        }
        assert!(pool.0.len() <= 2 * SMALLEST_SWEEP);
        assert!(Arc::ptr_eq(&first.0, &pool.share(set(&[("a", "1")])).0));
    }

    fn set(items: &[(&str, &'static str)]) -> ResourceSet {
        items.iter().map(|(name, body)| Resource::new(*name, *body)).collect()
    }

    #[test]
    fn sets_are_sorted_and_the_last_of_equal_names_stays() {
        let set = set(&[("b", "1"), ("a", "1"), ("b", "2")]);
        let names: Vec<_> = set.iter().map(|r| &*r.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(set.get("b").unwrap().body, "2");
        assert!(set.get("c").is_none());
    }

    #[test]
    fn digest_covers_names_and_versions() {
        assert_eq!(set(&[("a", "1"), ("b", "2")]), set(&[("b", "2"), ("a", "1")]));
        assert_ne!(set(&[("a", "1")]), set(&[("a", "2")]));
        assert_ne!(set(&[("a", "1")]), set(&[("b", "1")]));
    }

    #[test]
    fn difference_names_what_is_new_changed_and_gone() {
        let older = set(&[("a", "1"), ("b", "1"), ("c", "1"), ("x", "1")]);
        let newer = set(&[("0", "1"), ("a", "1"), ("b", "2"), ("d", "1")]);
        let difference = newer.since(&older);
        assert_eq!(difference.updated, [0, 2, 3]);
        assert_eq!(difference.removed, ["c".into(), "x".into()]);
        assert_eq!(*newer.since(&newer), Difference::default());
        assert_eq!(newer.since(&older), difference);
    }

    #[test]
    fn difference_is_computed_once_for_many_sessions() {
        let older = set(&[("a", "1")]);
        let newer = set(&[("a", "2")]);
        assert!(Arc::ptr_eq(&newer.since(&older), &newer.since(&set(&[("a", "1")]))));
    }
}
