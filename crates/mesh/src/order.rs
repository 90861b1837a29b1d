//! The order of what all namespaces have, oldest first, cut into stretches, and these into sections.
//!
//! Where things are is kept apart from what they are: when one of them changes, the order stays as it is. A stretch is
//! known by what is in it, and where one ends is decided by the thing at its end: when a thing comes or goes, the stretch
//! and the section it is in are other ones, and all others are what they were.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use canopus_base::hash::ContentHash;
use jiff::Timestamp;

/// One in so many things ends a stretch.
const CHUNK_SIZE: u64 = 32;
/// One in so many stretches ends a section.
const GROUP_SIZE: u64 = 32;
/// How many times longer than that they are at most.
const MAX_FACTOR: usize = 2;
/// How many bytes of names are compared at once.
const PREFIX_BYTES: usize = size_of::<u128>();

/// What the place of something among those of all namespaces depends on, besides its namespace, and how it is found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortEntry<P> {
    created: Option<Timestamp>,
    /// The beginning of its name, as a number of the same order.
    name_prefix: u128,
    name: Arc<str>,
    hash: u64,
    /// Where it is found.
    pub(crate) locator: P,
}

impl<P> SortEntry<P> {
    /// The rank of something of a namespace, which it says to tell it from those of other namespaces.
    pub(crate) fn new(created: Option<Timestamp>, name: Arc<str>, namespace: &str, place: P) -> Self {
        let hash = ContentHash::of(format!("{namespace}/{name}").as_bytes()).as_u128();
        let hash = u64::try_from(hash & u128::from(u64::MAX)).expect("no more than that is left");
        Self { created, name_prefix: name_prefix(&name), name, hash, locator: place }
    }

    /// By age, then name.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let rest = || match self.name.len().min(other.name.len()) {
            ..=PREFIX_BYTES => self.name.len().cmp(&other.name.len()),
            _ => self.name.cmp(&other.name),
        };
        self.created.cmp(&other.created).then(self.name_prefix.cmp(&other.name_prefix)).then_with(rest)
    }

    fn ends_chunk(&self) -> bool {
        self.hash.is_multiple_of(CHUNK_SIZE)
    }
}

fn name_prefix(name: &str) -> u128 {
    let mut bytes = [0; PREFIX_BYTES];
    let length = name.len().min(PREFIX_BYTES);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    u128::from_be_bytes(bytes)
}

/// Some things that follow each other, known by a hash.
#[derive(Clone)]
pub(crate) struct Run<T> {
    hash: u64,
    items: Arc<[T]>,
}

/// Places that follow each other.
pub(crate) type Chunk<P> = Run<Arc<SortEntry<P>>>;
/// Stretches that follow each other.
pub(crate) type ChunkGroup<P> = Run<Chunk<P>>;

/// What runs are made of.
pub(crate) trait RunItem: Clone {
    fn hash(&self) -> u64;
}

impl<P> RunItem for Arc<SortEntry<P>> {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl<T: Clone> RunItem for Run<T> {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl<T: RunItem> Run<T> {
    fn new(things: &[T]) -> Self {
        // Order matters to what is in a run, and so it does to this.
        let mix =
            |hash: u64, thing: &T| (hash.rotate_left(5) ^ thing.hash()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { hash: things.iter().fold(0, mix), items: things.into() }
    }
}

impl<P> Chunk<P> {
    /// Where its things are found, in order.
    pub(crate) fn locators(&self) -> impl ExactSizeIterator<Item = &P> {
        self.items.iter().map(|rank| &rank.locator)
    }

    fn ends_group(&self) -> bool {
        let last = self.items.last();
        last.is_some_and(|last| last.ends_chunk() && (last.hash / CHUNK_SIZE).is_multiple_of(GROUP_SIZE))
    }
}

impl<P> ChunkGroup<P> {
    /// The stretches in order.
    pub(crate) fn chunks(&self) -> std::slice::Iter<'_, Chunk<P>> {
        self.items.iter()
    }
}

impl<T: Eq> PartialEq for Run<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.items, &other.items) || self.items == other.items)
    }
}

impl<T: Eq> Eq for Run<T> {}

impl<T: Ord> PartialOrd for Run<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> Ord for Run<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash).then_with(|| self.items.cmp(&other.items))
    }
}

impl<T> Hash for Run<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<P: fmt::Debug> fmt::Debug for Chunk<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |rank: &Arc<SortEntry<P>>| format!("{:?}", rank.locator);
        let ends = [self.items.first(), self.items.last()].map(|end| end.map(place).unwrap_or_default());
        f.write_str(&ends.join("..="))
    }
}

impl<P: fmt::Debug> fmt::Debug for ChunkGroup<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stretches from {:?}", self.items.len(), self.items.first())
    }
}

/// The order of all that namespaces have: by age, then name, then namespace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order<P: Eq + fmt::Debug> {
    /// All things.
    pub(crate) groups: Vec<ChunkGroup<P>>,
}

impl<P: Eq + fmt::Debug> Order<P> {
    /// Merges the sorted lists of namespaces, which are sorted too.
    pub(crate) fn new(
        namespaces: &[Arc<str>],
        ranks: impl Fn(&Arc<str>) -> Arc<Vec<Arc<SortEntry<P>>>>,
    ) -> Self {
        let ranks: Vec<_> = namespaces.iter().map(ranks).collect();
        // Beside each rank is what nearly always decides: so many of them are not looked up again and again.
        let keyed =
            ranks.iter().flat_map(|ranks| ranks.iter()).map(|rank| (rank.created, rank.name_prefix, rank));
        let mut keyed: Vec<_> = keyed.collect();
        // Stable: namespaces are in order already.
        keyed.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| a.2.compare(b.2)));
        let all: Vec<_> = keyed.into_iter().map(|(_, _, rank)| rank.clone()).collect();
        let stretches = cut(&all, CHUNK_SIZE, |rank| rank.ends_chunk());
        Self { groups: cut(&stretches, GROUP_SIZE, Chunk::ends_group) }
    }
}

/// Cuts after each thing that ends a run, and where one would grow far beyond its usual length.
fn cut<T: RunItem>(things: &[T], usual: u64, is_end: impl Fn(&T) -> bool) -> Vec<Run<T>> {
    let greatest = usize::try_from(usual).unwrap_or(usize::MAX).saturating_mul(MAX_FACTOR);
    let runs = things.chunk_by(|thing, _| !is_end(thing));
    runs.flat_map(|run| run.chunks(greatest)).map(Run::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Namespaces with the age and name of each thing they have.
    type Things<'a> = [(&'a str, Vec<(i64, String)>)];

    fn order(things: &Things<'_>) -> Order<String> {
        let ranks = |namespace: &Arc<str>| {
            let of_namespace = things.iter().filter(|(name, _)| **name == **namespace);
            let ranks = of_namespace.flat_map(|(_, things)| things).map(|(second, name)| {
                let created = Timestamp::from_second(*second).unwrap();
                let place = format!("{namespace}/{name}");
                Arc::new(SortEntry::new(Some(created), name.as_str().into(), namespace, place))
            });
            Arc::new(ranks.collect())
        };
        let namespaces: Vec<_> = things.iter().map(|(namespace, _)| (*namespace).into()).collect();
        Order::new(&namespaces, ranks)
    }

    fn places(order: &Order<String>) -> Vec<&str> {
        stretches(order).into_iter().flat_map(Chunk::locators).map(String::as_str).collect()
    }

    fn stretches(order: &Order<String>) -> Vec<&Chunk<String>> {
        order.groups.iter().flat_map(ChunkGroup::chunks).collect()
    }

    fn many(count: usize) -> Vec<(i64, String)> {
        let mut all: Vec<_> = (0..count).map(|number| (0, format!("thing-{number}"))).collect();
        all.sort();
        all
    }

    #[test]
    fn older_things_come_first_then_names_then_namespaces() {
        let thing = |(second, name): (i64, &str)| (second, name.to_owned());
        let first =
            [(1, "x"), (3, "b"), (4, "a-name-of-more-than-sixteen-b"), (4, "a-name-of-more-than-two")];
        let second =
            [(2, "z"), (3, "a"), (3, "b"), (4, "a-name-of-more-t"), (4, "a-name-of-more-than-sixteen-a")];
        let things = [("a", first.map(thing).to_vec()), ("b", second.map(thing).to_vec())];
        let expected = [
            "a/x",
            "b/z",
            "b/a",
            "a/b",
            "b/b",
            "b/a-name-of-more-t",
            "b/a-name-of-more-than-sixteen-a",
            "a/a-name-of-more-than-sixteen-b",
            "a/a-name-of-more-than-two",
        ];
        assert_eq!(places(&order(&things)), expected);
    }

    #[test]
    fn one_section_and_one_stretch_change_when_a_thing_goes() {
        let mut things = [("a", many(20_000)), ("b", many(20_000))];
        let before = order(&things);
        assert!(before.groups.len() > 10, "{}", before.groups.len());
        things[0].1.remove(10_000);
        let after = order(&things);
        assert_eq!(places(&after).len(), 39_999);
        let new = after.groups.iter().filter(|section| !before.groups.contains(section));
        assert_eq!(new.count(), 1);
        let known = stretches(&before);
        let new = stretches(&after).into_iter().filter(|stretch| !known.contains(stretch));
        assert!(new.count() <= 4);
    }

    #[test]
    fn runs_do_not_grow_without_end() {
        let same = (0..50_000).map(|_| (0, "same".to_owned())).collect();
        let order = order(&[("a", same)]);
        assert!(stretches(&order).iter().all(|stretch| stretch.locators().len() <= 64));
        assert!(order.groups.iter().all(|section| section.chunks().len() <= 64));
        assert_eq!(places(&order).len(), 50_000);
    }
}
