//! Immutable lists made of segments that other lists share.
//!
//! A mesh has many services and routes, and nearly every namespace sees nearly all of them. A `Vec` for each namespace would
//! copy tens of thousands of pointers on every change. A [`List`] is a sequence of shared segments of a few dozen items: a
//! changed item replaces one segment, and lists with the same segments share them.
//!
//! Equality compares items, not segments, and skips the leading segments that both lists share. Two lists of the same items
//! are therefore equal however they are divided, which lets the engine cut off changes that moved a segment boundary only.

use std::iter::FusedIterator;
use std::sync::Arc;

/// An immutable sequence of items, stored in segments that other lists may share.
#[derive(Debug)]
pub struct List<T> {
    segments: Arc<[Segment<T>]>,
}

/// A run of consecutive items of a list.
pub type Segment<T> = Arc<Vec<Arc<T>>>;

impl<T> List<T> {
    /// Concatenates segments. Empty ones are dropped.
    pub fn from_segments(segments: impl IntoIterator<Item = Segment<T>>) -> Self {
        Self { segments: segments.into_iter().filter(|segment| !segment.is_empty()).collect() }
    }

    /// Concatenates lists, sharing their segments.
    pub(crate) fn concat<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Self
    where
        T: 'a,
    {
        Self { segments: lists.into_iter().flat_map(|list| list.segments.iter().cloned()).collect() }
    }

    /// Puts a segment in front of a list.
    pub(crate) fn prepend(first: Segment<T>, rest: &Self) -> Self {
        if first.is_empty() {
            return rest.clone();
        }
        Self::from_segments(std::iter::once(first).chain(rest.segments.iter().cloned()))
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Iterates over the items in order.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { segments: self.segments.iter(), segment: [].iter() }
    }

    /// Copies the items into one vector.
    pub fn to_vec(&self) -> Vec<Arc<T>> {
        let mut all = Vec::with_capacity(self.len());
        self.segments.iter().for_each(|segment| all.extend_from_slice(segment));
        all
    }

    /// Whether both are the same allocation, rather than equal lists.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.segments, &other.segments)
    }

    /// The items after the first `segments` segments.
    fn after_segments(&self, segments: usize) -> impl Iterator<Item = &Arc<T>> {
        self.segments[segments..].iter().flat_map(|segment| segment.iter())
    }
}

impl<T> From<Vec<Arc<T>>> for List<T> {
    fn from(items: Vec<Arc<T>>) -> Self {
        Self::from_segments([Arc::new(items)])
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self { segments: self.segments.clone() }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { segments: Arc::default() }
    }
}

impl<T: Eq> PartialEq for List<T> {
    /// Compares items, however they are divided into segments. Shared leading segments are not compared.
    fn eq(&self, other: &Self) -> bool {
        if self.is_same(other) {
            return true;
        }
        let mut pairs = self.segments.iter().zip(other.segments.iter());
        let shared = pairs.position(|(one, other)| !Arc::ptr_eq(one, other));
        let shared = shared.unwrap_or_else(|| self.segments.len().min(other.segments.len()));
        self.after_segments(shared).eq(other.after_segments(shared))
    }
}

impl<T: Eq> Eq for List<T> {}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a Arc<T>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Iterator over the items of a [`List`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    segments: std::slice::Iter<'a, Segment<T>>,
    segment: std::slice::Iter<'a, Arc<T>>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a Arc<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(next) = self.segment.next() {
                return Some(next);
            }
            self.segment = self.segments.next()?.iter();
        }
    }
}

impl<T> FusedIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(numbers: &[u32]) -> Segment<u32> {
        Arc::new(numbers.iter().copied().map(Arc::new).collect())
    }

    #[test]
    fn items_come_in_the_order_of_their_segments() {
        let list = List::prepend(
            segment(&[1]),
            &List::from_segments([segment(&[]), segment(&[2, 3]), segment(&[4])]),
        );
        assert_eq!(list.iter().map(|number| **number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((list.len(), list.to_vec().len(), list.is_empty()), (4, 4, false));
        assert!(List::from_segments([segment(&[])]).is_empty());
    }

    #[test]
    fn lists_are_equal_when_they_have_the_same_items() {
        let shared = segment(&[1, 2]);
        let list = List::from_segments([shared.clone(), segment(&[3, 4])]);
        assert_eq!(list, List::from_segments([shared.clone(), segment(&[3]), segment(&[4])]));
        assert_eq!(list, List::from(vec![1.into(), 2.into(), 3.into(), 4.into()]));
        assert_ne!(list, List::from_segments([shared.clone(), segment(&[3, 5])]));
        assert_ne!(list, List::from_segments([shared.clone()]));
        assert_ne!(List::from_segments([shared]), list);
    }

    #[test]
    fn concatenated_lists_share_their_segments() {
        let lists = [
            List::from_segments([segment(&[1]), segment(&[2])]),
            List::default(),
            List::from_segments([segment(&[3])]),
        ];
        let joined = List::concat(&lists);
        assert_eq!(joined.iter().map(|number| **number).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(Arc::ptr_eq(&joined.segments[2], &lists[2].segments[0]));
    }

    #[test]
    fn list_is_unchanged_when_an_empty_segment_is_prepended() {
        let list = List::from_segments([segment(&[1])]);
        assert!(List::prepend(segment(&[]), &list).is_same(&list));
    }
}
