//! [`ResourceSet`]: the resources of one type for one client, immutable and shared by all clients that get the same.
//!
//! A session keeps the set that it sent last and is given the next one. The difference of two sets is computed once, however
//! many sessions move from one to the other.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use canopus_base::hash::ContentHash;
pub use canopus_proto::resource::Resource;
use parking_lot::Mutex;

use crate::mention::mentioned;
use crate::names::Names;
use crate::pool::Pool;

/// The state of one type for one client: resources sorted by name, one per name. Clones share it.
#[derive(Clone)]
pub struct ResourceSet(Arc<Shared>);

struct Shared {
    sum: Sum,
    digest: ContentHash,
    resources: Box<[Resource]>,
    /// The last difference asked for: sessions of one view move between the same two states.
    recent: Mutex<Option<(ContentHash, Arc<Difference>)>>,
    /// The last names looked for, in what another set lacks: sessions of one view look for the same.
    mentions: Mutex<Option<Mentions>>,
}

/// Which of some names occur in the resources that another set lacks.
struct Mentions {
    other: ContentHash,
    names: ContentHash,
    found: Arc<[Arc<str>]>,
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
        let sum = Sum::compute(&resources);
        Self::summed(resources, sum, None)
    }

    /// The set of these resources, sorted, each name once, with what they add up to and how they differ from an older set.
    fn summed(resources: Vec<Resource>, sum: Sum, recent: Option<(ContentHash, Arc<Difference>)>) -> Self {
        let digest = sum.digest();
        let (recent, mentions) = (Mutex::new(recent), Mutex::default());
        Self(Arc::new(Shared { sum, digest, resources: resources.into(), recent, mentions }))
    }

    /// The set with these changes made, and what they are.
    fn patched(&self, changes: &[Change], sum: Sum) -> Self {
        let mut difference = Difference::default();
        let mut resources = Vec::with_capacity(self.len() + changes.len());
        for (resource, is_new) in merged(self, changes) {
            if is_new {
                difference.updated.extend(u32::try_from(resources.len()));
            }
            resources.push(resource.clone());
        }
        let removed = changes.iter().filter(|change| change.now.is_none());
        difference.removed.extend(removed.map(|change| Arc::clone(&change.name)));
        Self::summed(resources, sum, Some((self.digest(), Arc::new(difference))))
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
        // Sessions that are behind ask for another difference: it is not to be forgotten over those that are not.
        if self == older {
            return Arc::default();
        }
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

impl ResourceSet {
    /// The members of `names` that occur in resources which `other` lacks or has in another version.
    pub(crate) fn mentions_beyond(&self, other: &ResourceSet, names: &Names) -> Arc<[Arc<str>]> {
        if names.is_empty() || self == other {
            return Arc::default();
        }
        let mut mentions = self.0.mentions.lock();
        if let Some(known) = &*mentions
            && known.other == other.digest()
            && known.names == names.digest()
        {
            return Arc::clone(&known.found);
        }
        let beyond = difference(other, self).updated;
        let bodies = beyond.iter().filter_map(|at| self.get_at(*at as usize)).map(|resource| &*resource.body);
        let found: Arc<[Arc<str>]> = mentioned(bodies, names).into();
        *mentions =
            Some(Mentions { other: other.digest(), names: names.digest(), found: Arc::clone(&found) });
        found
    }

    /// The names that are here and not in `older`.
    pub(crate) fn added_since<'a>(&'a self, older: &'a ResourceSet) -> impl Iterator<Item = &'a Arc<str>> {
        let difference = self.since(older);
        let updated =
            (0..difference.updated.len()).filter_map(move |at| self.get_at(difference.updated[at] as usize));
        updated.map(|resource| &resource.name).filter(|name| older.get(name).is_none())
    }
}

/// What one name stands for from now on: a resource, or nothing.
#[derive(Clone, Debug)]
pub struct Change {
    /// The name.
    pub name: Arc<str>,
    /// The resource of that name, if there is one.
    pub now: Option<Resource>,
}

/// What is held with these changes made, in order, and whether it is one of the changes. Both are sorted by name.
fn merged<'a>(
    held: &'a [Resource],
    changes: &'a [Change],
) -> impl Iterator<Item = (&'a Resource, bool)> + use<'a> {
    let (mut held, mut changes) = (held.iter().peekable(), changes.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (held.peek(), changes.peek()) {
                (Some(held), Some(change)) => held.name.cmp(&change.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            if order != Ordering::Greater
                && let Some(held) = held.next()
                && order == Ordering::Less
            {
                return Some((held, false));
            }
            if let Some(now) = changes.next().and_then(|change| change.now.as_ref()) {
                return Some((now, true));
            }
        }
    })
}

/// What the names and versions of some resources add up to, in any order: a change of one resource is one step.
#[derive(Clone, Copy, Default)]
struct Sum {
    total: u128,
    count: u64,
}

impl Sum {
    fn compute<'a>(resources: impl IntoIterator<Item = &'a Resource>) -> Self {
        let mut sum = Self::default();
        resources.into_iter().for_each(|resource| sum.add(resource));
        sum
    }

    fn add(&mut self, resource: &Resource) {
        self.total = self.total.wrapping_add(term(resource));
        self.count += 1;
    }

    fn subtract(&mut self, resource: &Resource) {
        self.total = self.total.wrapping_sub(term(resource));
        self.count -= 1;
    }

    fn digest(self) -> ContentHash {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.total.to_le_bytes());
        bytes[16..].copy_from_slice(&self.count.to_le_bytes());
        ContentHash::compute(&bytes)
    }
}

fn term(resource: &Resource) -> u128 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&ContentHash::compute(resource.name.as_bytes()).as_u128().to_le_bytes());
    bytes[16..].copy_from_slice(&resource.version.as_u128().to_le_bytes());
    ContentHash::compute(&bytes).as_u128()
}

fn difference(older: &ResourceSet, newer: &ResourceSet) -> Difference {
    let mut difference = Difference::default();
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
        Arc::ptr_eq(&self.0, &other.0) || (self.0.digest == other.0.digest && is_same_set(&self.0, &other.0))
    }
}

/// Whether two sets hold the same bytes by the same names. The digest alone must not decide whose bytes a client gets.
fn is_same_set(one: &Shared, other: &Shared) -> bool {
    let mut pairs = one.resources.iter().zip(&*other.resources);
    one.resources.len() == other.resources.len() && pairs.all(|(one, other)| is_same(one, other))
}

fn is_same(one: &Resource, other: &Resource) -> bool {
    let is_shared = one.body.as_ptr() == other.body.as_ptr() && one.body.len() == other.body.len();
    one == other && (is_shared || one.body == other.body)
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
        ResourceSet(self.0.share(set.digest(), set.0, is_same_set))
    }

    /// The shared set of these resources, which is put together only if nobody has it.
    pub fn gather<'a>(&self, resources: impl Iterator<Item = &'a Resource>) -> ResourceSet {
        let resources: Vec<&Resource> = resources.collect();
        // Of resources with one name only the last stays, which is no set that has this sum: it is then put together.
        let holds_all = |found: &Shared| {
            let place =
                |wanted: &Resource| found.resources.binary_search_by(|held| held.name.cmp(&wanted.name));
            let held =
                |wanted: &&Resource| place(wanted).is_ok_and(|at| is_same(&found.resources[at], wanted));
            found.resources.len() == resources.len() && resources.iter().all(held)
        };
        let found = self.0.get(Sum::compute(resources.iter().copied()).digest(), holds_all);
        found.map_or_else(|| self.share(resources.into_iter().cloned().collect()), ResourceSet)
    }

    /// The shared set that `set` becomes by these changes; of several of one name the last counts. Whoever has `set` is told
    /// of the changes without a look at anything else.
    pub fn change(&self, set: &ResourceSet, mut changes: Vec<Change>) -> ResourceSet {
        changes.reverse();
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        changes.dedup_by(|earlier, kept| earlier.name == kept.name);
        let mut sum = set.0.sum;
        changes.retain(|change| {
            let held = set.get(&change.name);
            let version = |resource: &Resource| resource.version;
            let differs = held.map(version) != change.now.as_ref().map(version);
            if differs {
                held.into_iter().for_each(|held| sum.subtract(held));
                change.now.iter().for_each(|now| sum.add(now));
            }
            differs
        });
        if changes.is_empty() {
            return set.clone();
        }
        let is_wanted = |found: &Shared| {
            let mut wanted = merged(set, &changes);
            let is_next = |held: &Resource| wanted.next().is_some_and(|(next, _)| is_same(held, next));
            found.resources.iter().all(is_next) && wanted.next().is_none()
        };
        let found = self.0.get(sum.digest(), is_wanted);
        found.map_or_else(|| self.share(set.patched(&changes, sum)), ResourceSet)
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

    fn changes(items: &[(&str, Option<&'static str>)]) -> Vec<Change> {
        let change = |(name, body): &(&str, Option<&'static str>)| Change {
            name: (*name).into(),
            now: body.map(|body| Resource::new(*name, body)),
        };
        items.iter().map(change).collect()
    }

    #[test]
    fn changed_set_is_the_one_made_anew_and_knows_what_changed() {
        let older = set(&[("a", "1"), ("b", "1"), ("c", "1"), ("x", "1")]);
        let newer = set(&[("0", "1"), ("a", "1"), ("b", "2"), ("d", "1")]);
        let steps = [("x", None), ("d", Some("1")), ("b", Some("3")), ("0", Some("1")), ("a", Some("1"))];
        let steps = [changes(&steps), changes(&[("c", None), ("nobody", None), ("b", Some("2"))])].concat();
        let changed = SetPool::default().change(&older, steps);
        assert_eq!(changed, newer);
        assert_eq!(changed.to_vec(), newer.to_vec());
        assert_eq!(*changed.since(&older), difference(&older, &newer));
    }

    #[test]
    fn equal_sets_are_shared_however_they_came_about() {
        let pool = SetPool::default();
        let first = pool.share(set(&[("a", "2"), ("b", "1")]));
        let changed = pool.change(&set(&[("a", "1"), ("b", "1")]), changes(&[("a", Some("2"))]));
        assert!(Arc::ptr_eq(&first.0, &changed.0));
        let gathered = pool.gather(set(&[("b", "1"), ("a", "2")]).iter());
        assert!(Arc::ptr_eq(&first.0, &gathered.0));
        assert!(Arc::ptr_eq(&first.0, &pool.change(&first, changes(&[("a", Some("2"))])).0));
    }

    #[test]
    fn last_of_equal_names_is_gathered() {
        let resources = [Resource::new("a", "1"), Resource::new("a", "2")];
        assert_eq!(SetPool::default().gather(resources.iter()), set(&[("a", "2")]));
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
    fn set_of_one_digest_and_other_bytes_is_given_to_nobody_else() {
        let victim = Resource::new("a", "secret");
        let forged = Resource { body: "forged".into(), ..victim.clone() };
        let (one, other) = (ResourceSet::new([victim.clone()]), ResourceSet::new([forged.clone()]));
        assert_eq!(one.digest(), other.digest());
        assert_ne!(one, other);
        let pool = SetPool::default();
        let first = pool.share(one);
        assert_eq!(pool.share(other.clone())[0].body, "forged");
        assert_eq!(pool.gather(std::iter::once(&forged))[0].body, "forged");
        let empty = ResourceSet::default();
        let change = Change { name: "a".into(), now: Some(forged) };
        assert_eq!(pool.change(&empty, vec![change])[0].body, "forged");
        assert_eq!(first[0].body, "secret");
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
