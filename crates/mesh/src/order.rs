//! The order of what all namespaces have, oldest first, cut into stretches.
//!
//! Where things are is kept apart from what they are: when one of them changes, the order stays as it is. A stretch is
//! known by what is in it, and where one ends is decided by the thing at its end: when a thing comes or goes, the stretch
//! it is in is another one and all others are what they were.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use canopus_base::hash::ContentHash;
use jiff::Timestamp;

/// How many things a stretch has in the middle.
const USUAL_LENGTH: u64 = 128;
/// How many it has at most.
const GREATEST_LENGTH: usize = 1024;
/// How many bytes of names are compared at once.
const HEAD: usize = size_of::<u128>();

/// What the place of something among those of all namespaces depends on, besides its namespace, and how it is found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank<P> {
    created: Option<Timestamp>,
    /// The beginning of its name, as a number of the same order.
    head: u128,
    name: Arc<str>,
    hash: u64,
    /// Where it is found.
    pub(crate) place: P,
}

impl<P> Rank<P> {
    /// The rank of something of a namespace, which it says to tell it from those of other namespaces.
    pub(crate) fn new(created: Option<Timestamp>, name: Arc<str>, namespace: &str, place: P) -> Self {
        let hash = ContentHash::of(format!("{namespace}/{name}").as_bytes()).as_u128();
        let hash = u64::try_from(hash & u128::from(u64::MAX)).expect("no more than that is left");
        Self { created, head: head(&name), name, hash, place }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let rest = || match self.name.len().min(other.name.len()) {
            ..=HEAD => self.name.len().cmp(&other.name.len()),
            _ => self.name.cmp(&other.name),
        };
        self.created.cmp(&other.created).then(self.head.cmp(&other.head)).then_with(rest)
    }

    fn ends_stretch(&self) -> bool {
        self.hash.is_multiple_of(USUAL_LENGTH)
    }
}

fn head(name: &str) -> u128 {
    let mut bytes = [0; HEAD];
    let length = name.len().min(HEAD);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    u128::from_be_bytes(bytes)
}

/// Some things that follow each other.
#[derive(Clone)]
pub(crate) struct Stretch<P> {
    hash: u64,
    ranks: Arc<[Arc<Rank<P>>]>,
}

impl<P> Stretch<P> {
    fn new(ranks: &[&Arc<Rank<P>>]) -> Self {
        // Order matters to what is in a stretch, and so it does to this.
        let mix = |hash: u64, rank: &&Arc<Rank<P>>| hash.rotate_left(5).wrapping_mul(31) ^ rank.hash;
        Self { hash: ranks.iter().fold(0, mix), ranks: ranks.iter().copied().cloned().collect() }
    }

    /// Where its things are found, in order.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = &P> {
        self.ranks.iter().map(|rank| &rank.place)
    }
}

impl<P: Eq> PartialEq for Stretch<P> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.ranks, &other.ranks) || self.ranks == other.ranks)
    }
}

impl<P: Eq> Eq for Stretch<P> {}

impl<P: Ord> PartialOrd for Stretch<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> Ord for Stretch<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash).then_with(|| self.ranks.cmp(&other.ranks))
    }
}

impl<P> Hash for Stretch<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<P: fmt::Debug> fmt::Debug for Stretch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place =
            |rank: Option<&Arc<Rank<P>>>| rank.map(|rank| format!("{:?}", rank.place)).unwrap_or_default();
        write!(f, "{}..={}", place(self.ranks.first()), place(self.ranks.last()))
    }
}

/// The order of all that namespaces have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order<P: Eq> {
    /// All things, by age, then name, then namespace.
    pub(crate) stretches: Vec<Stretch<P>>,
}

impl<P: Eq> Order<P> {
    /// Merges the sorted lists of namespaces, which are sorted too.
    pub(crate) fn new(namespaces: &[Arc<str>], ranks: impl Fn(&Arc<str>) -> Arc<Vec<Arc<Rank<P>>>>) -> Self {
        let ranks: Vec<_> = namespaces.iter().map(ranks).collect();
        let mut all: Vec<&Arc<Rank<P>>> = ranks.iter().flat_map(|ranks| ranks.iter()).collect();
        // Stable: namespaces are in order already.
        all.sort_by(|a, b| a.compare(b));
        let mut stretches = Vec::new();
        for stretch in all.chunk_by(|rank, _| !rank.ends_stretch()) {
            stretches.extend(stretch.chunks(GREATEST_LENGTH).map(Stretch::new));
        }
        Self { stretches }
    }
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
                Arc::new(Rank::new(Some(created), name.as_str().into(), namespace, place))
            });
            Arc::new(ranks.collect())
        };
        let namespaces: Vec<_> = things.iter().map(|(namespace, _)| (*namespace).into()).collect();
        Order::new(&namespaces, ranks)
    }

    fn places(order: &Order<String>) -> Vec<&str> {
        order.stretches.iter().flat_map(Stretch::places).map(String::as_str).collect()
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
    fn one_stretch_changes_when_a_thing_goes() {
        let mut things = [("a", many(2000)), ("b", many(2000))];
        let before = order(&things);
        assert!(before.stretches.len() > 10, "{}", before.stretches.len());
        things[0].1.remove(1000);
        let after = order(&things);
        assert_eq!(places(&after).len(), 3999);
        let new = after.stretches.iter().filter(|stretch| !before.stretches.contains(stretch));
        assert!(new.count() <= 1);
    }

    #[test]
    fn stretches_do_not_grow_without_end() {
        let same = (0..5000).map(|_| (0, "same".to_owned())).collect();
        let order = order(&[("a", same)]);
        assert!(order.stretches.iter().all(|stretch| stretch.places().len() <= GREATEST_LENGTH));
        assert_eq!(places(&order).len(), 5000);
    }
}
