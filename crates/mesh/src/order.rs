//!
//! Istio lets the oldest object win, so many lists need *all* objects sorted by age, then name, then namespace. Recomputing
//! such a list for every change would cost the whole mesh. Two ideas avoid that:
//!
//! 1. **The order holds locators, not values.** A [`SortEntry`] has the sort key and a locator that says how to read the
//!    value. Editing an object without changing its age or name leaves the order as it was.
//! 2. **Chunk boundaries depend on content.** A chunk ends at an entry whose hash is a multiple of [`CHUNK_SIZE`], and a group
//!    of chunks ends at an entry whose hash is a multiple of `CHUNK_SIZE * GROUP_SIZE`. Inserting or removing an entry changes the
//!    chunk and the group it is in; all other boundaries stay where they were. (Chunks of fixed length would all shift.)
//!
//! ```text
//! entries   a b c d│e f g│h i j k l│m n o │ ...       │ = entry whose hash ends a chunk
//! chunks    [ 1   ] [ 2 ] [   3   ] [ 4 ]
//! groups    [       A           ] [  B  ...           a few chunks end a group
//! ```
//!
//! [`Chunk`] and [`ChunkGroup`] are query keys. `ServicesInChunk(chunk)` reads the values of one chunk,
//! `ServicesInChunkGroup(group)` joins its chunks, and a list of all services joins the groups. An edited service costs one
//! chunk, one group and the list of groups; an added one costs the same plus the merge in [`Order::new`].
//!
//! Invariant: equal entries in equal order make equal chunks. So hashes and comparisons use the content of a run, and nothing
//! here depends on where in the order a run starts.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use canopus_base::hash::ContentHash;
use jiff::Timestamp;

/// The average number of entries in a chunk.
const CHUNK_SIZE: u64 = 32;
/// The average number of chunks in a group.
const GROUP_SIZE: u64 = 32;
/// Runs are cut at this multiple of their average length, so that equal hashes cannot make one endless.
const MAX_FACTOR: usize = 2;
/// The number of bytes of a name that are compared as one integer.
const PREFIX_BYTES: usize = size_of::<u128>();

/// The sort key of an object, and the locator by which its value is read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortEntry<P> {
    created: Option<Timestamp>,
    /// The first bytes of the name as a big-endian integer, which sorts like the name.
    name_prefix: u128,
    name: Arc<str>,
    hash: u64,
    /// How the value is read.
    pub(crate) locator: P,
}

impl<P> SortEntry<P> {
    /// Creates the entry of an object. The namespace is part of the hash, because names repeat across namespaces.
    pub(crate) fn new(created: Option<Timestamp>, name: Arc<str>, namespace: &str, locator: P) -> Self {
        let hash = ContentHash::compute(format!("{namespace}/{name}").as_bytes()).as_u128();
        let hash = u64::try_from(hash & u128::from(u64::MAX)).expect("the value is masked to 64 bits");
        Self { created, name_prefix: name_prefix(&name), name, hash, locator }
    }

    /// Compares by age, then name.
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

/// Consecutive items of an order, identified by their content. Cheap to clone, hash and compare, so it can be a query key.
#[derive(Clone)]
pub(crate) struct Run<T> {
    hash: u64,
    items: Arc<[T]>,
}

/// Consecutive entries.
pub(crate) type Chunk<P> = Run<Arc<SortEntry<P>>>;
/// Consecutive chunks.
pub(crate) type ChunkGroup<P> = Run<Chunk<P>>;

/// An item of a [`Run`].
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
    fn new(items: &[T]) -> Self {
        // The hash depends on the order of the items, as equality does.
        let mix =
            |hash: u64, item: &T| (hash.rotate_left(5) ^ item.hash()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { hash: items.iter().fold(0, mix), items: items.into() }
    }
}

impl<P> Chunk<P> {
    /// The locators of the entries, in order.
    pub(crate) fn locators(&self) -> impl ExactSizeIterator<Item = &P> {
        self.items.iter().map(|entry| &entry.locator)
    }

    fn ends_group(&self) -> bool {
        let last = self.items.last();
        last.is_some_and(|last| last.ends_chunk() && (last.hash / CHUNK_SIZE).is_multiple_of(GROUP_SIZE))
    }
}

impl<P> ChunkGroup<P> {
    /// The chunks, in order.
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
        let locator = |entry: &Arc<SortEntry<P>>| format!("{:?}", entry.locator);
        let ends = [self.items.first(), self.items.last()].map(|end| end.map(locator).unwrap_or_default());
        f.write_str(&ends.join("..="))
    }
}

impl<P: fmt::Debug> fmt::Debug for ChunkGroup<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chunks from {:?}", self.items.len(), self.items.first())
    }
}

/// All entries of the mesh, sorted by age, then name, then namespace, in groups of chunks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order<P: Eq + fmt::Debug> {
    pub(crate) groups: Vec<ChunkGroup<P>>,
}

impl<P: Eq + fmt::Debug> Order<P> {
    /// Merges the sorted entries of each namespace. The namespaces must be sorted.
    pub(crate) fn new(
        namespaces: &[Arc<str>],
        entries: impl Fn(&Arc<str>) -> Arc<Vec<Arc<SortEntry<P>>>>,
    ) -> Self {
        let entries: Vec<_> = namespaces.iter().map(entries).collect();
        // Age and name prefix nearly always decide. Keeping them beside the pointer saves a dereference per comparison.
        let keyed = entries
            .iter()
            .flat_map(|entries| entries.iter())
            .map(|entry| (entry.created, entry.name_prefix, entry));
        let mut keyed: Vec<_> = keyed.collect();
        // The sort is stable and namespaces come sorted, so ties are in order of namespace.
        keyed.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| a.2.compare(b.2)));
        let all: Vec<_> = keyed.into_iter().map(|(_, _, entry)| entry.clone()).collect();
        let chunks = cut(&all, CHUNK_SIZE, |entry| entry.ends_chunk());
        Self { groups: cut(&chunks, GROUP_SIZE, Chunk::ends_group) }
    }
}

/// Cuts after each item that ends a run, and where a run exceeds [`MAX_FACTOR`] times its average length.
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
        let entries = |namespace: &Arc<str>| {
            let of_namespace = things.iter().filter(|(name, _)| **name == **namespace);
            let entries = of_namespace.flat_map(|(_, things)| things).map(|(second, name)| {
                let created = Timestamp::from_second(*second).unwrap();
                let place = format!("{namespace}/{name}");
                Arc::new(SortEntry::new(Some(created), name.as_str().into(), namespace, place))
            });
            Arc::new(entries.collect())
        };
        let namespaces: Vec<_> = things.iter().map(|(namespace, _)| (*namespace).into()).collect();
        Order::new(&namespaces, entries)
    }

    fn places(order: &Order<String>) -> Vec<&str> {
        chunks(order).into_iter().flat_map(Chunk::locators).map(String::as_str).collect()
    }

    fn chunks(order: &Order<String>) -> Vec<&Chunk<String>> {
        order.groups.iter().flat_map(ChunkGroup::chunks).collect()
    }

    fn many(count: usize) -> Vec<(i64, String)> {
        let mut all: Vec<_> = (0..count).map(|number| (0, format!("thing-{number}"))).collect();
        all.sort();
        all
    }

    #[test]
    fn older_entries_come_first_then_names_then_namespaces() {
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
    fn one_group_and_few_chunks_change_when_an_entry_is_removed() {
        let mut things = [("a", many(20_000)), ("b", many(20_000))];
        let before = order(&things);
        assert!(before.groups.len() > 10, "{}", before.groups.len());
        things[0].1.remove(10_000);
        let after = order(&things);
        assert_eq!(places(&after).len(), 39_999);
        let new = after.groups.iter().filter(|group| !before.groups.contains(group));
        assert_eq!(new.count(), 1);
        let known = chunks(&before);
        let new = chunks(&after).into_iter().filter(|chunk| !known.contains(chunk));
        assert!(new.count() <= 4);
    }

    #[test]
    fn runs_are_bounded_when_all_hashes_are_equal() {
        let same = (0..50_000).map(|_| (0, "same".to_owned())).collect();
        let order = order(&[("a", same)]);
        assert!(chunks(&order).iter().all(|chunk| chunk.locators().len() <= 64));
        assert!(order.groups.iter().all(|group| group.chunks().len() <= 64));
        assert_eq!(places(&order).len(), 50_000);
    }
}
